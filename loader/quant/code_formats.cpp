// The tensors and the bits of each format of codes, without the multiplication. Codes of rows [first, first + rows) go
// to out [rows][k], from 0 on; signed ones are shifted by half of the range. Stored zero points go to out
// [rows][groups], NaN if ambiguous. `first` counts rows of the stored matrix.
#include "loader/quant/stored_weights.h"

#include <array>
#include <cmath>
#include <iterator>

#include "kernels/base/text.h"
#include "loader/checkpoint/number_formats.h"

namespace pinion {

Error bind_row_scales(const ModuleTensors& tensors, const char* suffix, int64_t n, TensorView* out) {
  tensors.names->push_back(tensors.module + suffix);
  const std::string where = tensors.where(suffix);
  const TensorView* scale = tensors.find(suffix);
  if (!scale) return error("no such tensor", where, "the scales of 8-bit weights");
  if (!is_float(scale->dtype)) return error("type differs", where, "BF16, F16 or F32", dtype_name(scale->dtype));
  const std::vector<int64_t> column = {n, 1}, single = {1, 1};
  const std::vector<int64_t> shapes[] = {column, {n}, single, {1}, {}};
  if (std::ranges::find(shapes, scale->shape) == std::end(shapes)) {
    return error("shape differs", where, shape_text(column) + ", " + shape_text({&n, 1}) + " or one number",
                 shape_text(scale->shape));
  }
  *out = *scale;
  return {};
}

namespace {

// Code i of a word.
uint8_t code(uint32_t word, int64_t i, int bits) {
  return static_cast<uint8_t>(word >> static_cast<uint32_t>(i) * static_cast<uint32_t>(bits) & ((1u << bits) - 1));
}

// out [32 / bits]: all codes of a word, its lowest bits first.
void spread(uint32_t word, int bits, uint8_t* out) {
  if (bits == 8) {
    std::memcpy(out, &word, sizeof word);
    return;
  }
  uint64_t nibbles = word;
  nibbles = (nibbles | nibbles << 16) & 0x0000ffff0000ffff;
  nibbles = (nibbles | nibbles << 8) & 0x00ff00ff00ff00ff;
  nibbles = (nibbles | nibbles << 4) & 0x0f0f0f0f0f0f0f0f;
  std::memcpy(out, &nibbles, sizeof nibbles);
}

// Index, in its word, of the code of a column.
int64_t awq_index(int64_t column) {
  constexpr uint8_t kIndices[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  return kIndices[column % 8];
}

// out [rows][groups]: f(row, group).
template <class F>
void for_each_zero_point(const CodedMatrix& m, int64_t first, int64_t rows, float* out, F f) {
  for (int64_t r = first; r < first + rows; ++r) {
    for (int64_t g = 0; g < m.groups(); ++g) *out++ = f(r, g);
  }
}

// Columns of words are read in slices of this many lines, which stay in cache from one column to the next.
constexpr int64_t kSliceLines = 64;

constexpr std::array<float, 256> kFp8Values = [] {
  std::array<float, 256> values = {};
  for (size_t i = 0; i < values.size(); ++i) values[i] = f8_e4m3_to_float(static_cast<uint8_t>(i));
  return values;
}();

void read_byte_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.codes.data) + first * m.k;
  const uint32_t middle = 1u << (m.scheme.bits - 1);
  // A byte out of range becomes larger than the largest code.
  for (int64_t i = 0; i < rows * m.k; ++i) out[i] = static_cast<uint8_t>(codes[i] + middle);
}

void read_packed_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t per_word = m.codes_per_word(), row_words = m.words(m.k), whole = m.k / per_word;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row_word = (first + r) * row_words;
    uint8_t* row = out + r * m.k;
    for (int64_t w = 0; w < whole; ++w) spread(word(m.codes, row_word + w), m.scheme.bits, row + w * per_word);
    for (int64_t i = whole * per_word; i < m.k; ++i) {
      row[i] = code(word(m.codes, row_word + whole), i % per_word, m.scheme.bits);
    }
  }
}

void read_gptq_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t per_word = m.codes_per_word(), lines = m.k / per_word, slice = kSliceLines / per_word;
  for (int64_t begin = 0; begin < lines; begin += slice) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t line = begin; line < std::min(begin + slice, lines); ++line) {
        spread(word(m.codes, line * m.n + first + r), m.scheme.bits, out + r * m.k + line * per_word);
      }
    }
  }
}

void read_awq_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t row_words = m.words(m.n);
  for (int64_t begin = 0; begin < m.k; begin += kSliceLines) {
    const int64_t lines = std::min(kSliceLines, m.k - begin);
    std::array<uint32_t, kSliceLines> column_words = {};
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t column = first + r, index = awq_index(column);
      for (int64_t i = 0; i < lines && (r == 0 || column % 8 == 0); ++i) {
        column_words[i] = word(m.codes, (begin + i) * row_words + column / 8);
      }
      uint8_t* row = out + r * m.k + begin;
      for (int64_t i = 0; i < lines; ++i) row[i] = code(column_words[i], index, 4);
    }
  }
}

void read_bitnet_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t quarter = m.n / 4;
  for (int64_t r = first; r < first + rows; ++r, out += m.k) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(m.codes.data) + r % quarter * m.k;
    const int64_t shift = r / quarter * 2;
    for (int64_t i = 0; i < m.k; ++i) out[i] = static_cast<uint8_t>(bytes[i] >> shift & 3);
  }
}

void read_byte_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const auto* zero_points = reinterpret_cast<const int8_t*>(m.zero.data) + first * m.groups();
  const int middle = 1 << (m.scheme.bits - 1);
  for (int64_t i = 0; i < rows * m.groups(); ++i) {
    const int zero = zero_points[i] + middle;
    out[i] = zero < 0 || zero >= 2 * middle ? NAN : static_cast<float>(zero);
  }
}

void read_packed_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t groups = m.groups(), per_word = m.codes_per_word();
  for_each_zero_point(m, first, rows, out, [&](int64_t row, int64_t g) {
    return code(word(m.zero, row / per_word * groups + g), row % per_word, m.scheme.bits);
  });
}

void read_column_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t row_words = m.words(m.n), per_word = m.codes_per_word();
  // The first version stores the zero point minus 1, and so 0 as the largest code. Some tools read that as 0, some as
  // one more than the largest code, and some corrupted the neighbours when they wrote it.
  const bool is_awq = m.scheme.stored_as == StoredAs::awq;
  const int largest = (1 << m.scheme.bits) - 1, offset = !is_awq && m.scheme.zeros_less_one ? 1 : 0;
  for_each_zero_point(m, first, rows, out, [&](int64_t row, int64_t g) {
    const int64_t at = is_awq ? awq_index(row) : row % per_word;
    const int zero = code(word(m.zero, g * row_words + row / per_word), at, m.scheme.bits) + offset;
    return zero > largest ? NAN : static_cast<float>(zero);
  });
}

void read_fp8_row(const CodedMatrix& m, int64_t row, const float* scales, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.codes.data) + row * m.k;
  for (int64_t g = 0; g < m.groups(); ++g) {
    const int64_t end = std::min(m.k, (g + 1) * m.group_size());
    const float scale = scales[g];
    for (int64_t i = g * m.group_size(); i < end; ++i) out[i] = kFp8Values[codes[i]] * scale;
  }
}

void read_nvfp4_row(const CodedMatrix& m, int64_t row, const float* scales, float* out) {
  const auto* pairs = reinterpret_cast<const uint8_t*>(m.codes.data) + row * (m.k / 2);
  for (int64_t i = 0; i < m.k; i += 2) {
    const float scale = scales[i / kNvGroup];
    const uint8_t pair = pairs[i / 2];
    out[i] = kE2m1Numbers[pair & 15] * scale;
    out[i + 1] = kE2m1Numbers[pair >> 4] * scale;
  }
}

// Ranges of activations from calibration, in some files. They are unused: activations are quantised per token.
constexpr std::initializer_list<const char*> kActivationScales = {".input_scale", ".activation_scale"};

Error bind_fp8(const ModuleTensors& tensors, CodedMatrix* out) {
  const int64_t rows_per_scale = out->scheme.rows_per_scale, n = out->n;
  if (Error e = tensors.bind(".weight", {n, out->k}, {DType::f8_e4m3}, &out->codes)) return e;
  const char* scale = tensors.find(".weight_scale_inv") ? ".weight_scale_inv" : ".weight_scale";
  tensors.add_unused(kActivationScales);
  if (out->scheme.group_size > 0) {
    const int64_t tiles = (n + rows_per_scale - 1) / rows_per_scale;
    return tensors.bind(scale, {tiles, out->groups()}, kFloatTypes, &out->scale);
  }
  if (Error e = bind_row_scales(tensors, scale, n, &out->scale)) return e;
  if (out->scale.elements() == 1) out->scheme.rows_per_scale = n;
  return {};
}

Error check_words(const ModuleTensors& tensors, const char* axis, int64_t size, int64_t per_word) {
  if (size % per_word == 0) return {};
  return error("codes do not fill their words", tensors.where(""),
               std::string(axis) + " a multiple of " + std::to_string(per_word), size);
}

Error bind_nvfp4(const ModuleTensors& tensors, CodedMatrix* out) {
  const int64_t n = out->n;
  TensorView divisor;
  if (Error e = check_words(tensors, "inputs", out->k, kNvGroup)) return e;
  if (Error e = tensors.bind(".weight_packed", {n, out->k / 2}, {DType::u8}, &out->codes)) return e;
  if (Error e = tensors.bind(".weight_scale", {n, out->groups()}, {DType::f8_e4m3}, &out->scale)) return e;
  if (Error e = tensors.bind(".weight_global_scale", {1}, {DType::f32}, &divisor)) return e;
  read_floats(divisor, &out->scale_divisor);
  if (!(out->scale_divisor > 0) || std::isinf(out->scale_divisor)) {
    return error("out of range", tensors.where(".weight_global_scale"), "above 0 and finite", out->scale_divisor);
  }
  tensors.add_unused({".input_global_scale"});
  return {};
}

// The group of each input. Consecutive groups need no table.
Error bind_order(const ModuleTensors& tensors, const char* suffix, CodedMatrix* out) {
  if (!out->scheme.has_order && !tensors.find(suffix)) return {};
  if (Error e = tensors.bind(suffix, {out->k}, {DType::i32}, &out->order)) return e;
  bool in_order = true;
  for (int64_t i = 0; i < out->k; ++i) {
    const int64_t group = static_cast<int32_t>(word(out->order, i));
    if (group < 0 || group >= out->groups()) {
      return error("no such group", tensors.where(suffix), "less than " + std::to_string(out->groups()), group);
    }
    in_order = in_order && group == i / out->group_size();
  }
  if (in_order) out->order = {};
  return {};
}

// The order of compressed-tensors (actorder). All -1 means that it was never set. The library sorts inputs by group and
// cuts the row at every group_size, so groups of other sizes would assign inputs to a wrong scale.
Error bind_actorder(const ModuleTensors& tensors, CodedMatrix* out) {
  constexpr const char* kSuffix = ".weight_g_idx";
  const TensorView* order = tensors.find(kSuffix);
  if (order && order->dtype == DType::i32 && order->elements() == out->k) {
    for (int64_t i = 0; i < out->k; ++i) {
      if (static_cast<int32_t>(word(*order, i)) != -1) continue;
      tensors.names->push_back(order->name);
      return {};
    }
  }
  if (Error e = bind_order(tensors, kSuffix, out)) return e;
  if (!out->order.data) return {};
  std::vector<int64_t> sizes(out->groups());
  for (int64_t i = 0; i < out->k; ++i) ++sizes[word(out->order, i)];
  const auto wrong = std::ranges::find_if(sizes, [&](int64_t size) { return size != out->group_size(); });
  if (wrong == sizes.end()) return {};
  return error("groups of different sizes", tensors.where(kSuffix), std::to_string(out->group_size()) + " inputs each",
               std::to_string(*wrong) + " in group " + std::to_string(wrong - sizes.begin()));
}

// The tensors of compressed-tensors' integer formats.
Error bind_integers(const ModuleTensors& tensors, const char* codes, DType dtype, int64_t code_columns,
                    int64_t zero_rows, CodedMatrix* out) {
  const int64_t n = out->n, groups = out->groups();
  if (Error e = tensors.bind(codes, {n, code_columns}, {dtype}, &out->codes)) return e;
  if (Error e = tensors.bind(".weight_scale", {n, groups}, kFloatTypes, &out->scale)) return e;
  if (!out->scheme.symmetric) {
    if (Error e = tensors.bind(".weight_zero_point", {zero_rows, groups}, {dtype}, &out->zero)) return e;
  }
  tensors.add_unused(kActivationScales);
  return {};
}

Error bind_bytes(const ModuleTensors& tensors, CodedMatrix* out) {
  if (Error e = bind_integers(tensors, ".weight", DType::i8, out->k, out->n, out)) return e;
  return bind_actorder(tensors, out);
}

Error bind_packed(const ModuleTensors& tensors, CodedMatrix* out) {
  const int64_t n = out->n, k = out->k;
  TensorView shape;
  if (Error e = bind_integers(tensors, ".weight_packed", DType::i32, out->words(k), out->words(n), out)) return e;
  if (Error e = tensors.bind(".weight_shape", {2}, {DType::i64, DType::i32}, &shape)) return e;
  const int64_t step = shape.dtype == DType::i64 ? 2 : 1;  // words per element; the sizes fit in the lower one
  const std::vector<int64_t> stored = {word(shape, 0), word(shape, step)}, expected = {n, k};
  if (stored == expected) return bind_actorder(tensors, out);
  return error("stores another shape", tensors.where(".weight_shape"), shape_text(expected), shape_text(stored));
}

// The tensors of gptq and awq.
Error bind_columns(const ModuleTensors& tensors, int64_t code_lines, int64_t code_columns, CodedMatrix* out) {
  const int64_t n = out->n, groups = out->groups();
  if (Error e = check_words(tensors, "outputs", n, out->codes_per_word())) return e;
  if (Error e = tensors.bind(".qweight", {code_lines, code_columns}, {DType::i32}, &out->codes)) return e;
  if (Error e = tensors.bind(".scales", {groups, n}, kFloatTypes, &out->scale)) return e;
  return tensors.bind(".qzeros", {groups, out->words(n)}, {DType::i32}, &out->zero);
}

Error bind_gptq(const ModuleTensors& tensors, CodedMatrix* out) {
  if (Error e = check_words(tensors, "inputs", out->k, out->codes_per_word())) return e;
  if (Error e = bind_columns(tensors, out->words(out->k), out->n, out)) return e;
  // Some tools write a bias of zeros beside every matrix.
  const TensorView* bias = tensors.find(".bias");
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (bias && std::ranges::all_of(bias->contents(), is_zero)) tensors.names->push_back(bias->name);
  return bind_order(tensors, ".g_idx", out);
}

Error bind_awq(const ModuleTensors& tensors, CodedMatrix* out) {
  return bind_columns(tensors, out->k, out->words(out->n), out);
}

Error bind_bitnet(const ModuleTensors& tensors, CodedMatrix* out) {
  if (Error e = check_words(tensors, "outputs", out->n, 4)) return e;
  if (Error e = tensors.bind(".weight", {out->n / 4, out->k}, {DType::u8}, &out->codes)) return e;
  out->scheme.rows_per_scale = out->n;
  if (Error e = tensors.bind(".weight_scale", {1}, kFloatTypes, &out->scale)) return e;
  float value = 0.0f;
  read_floats(out->scale, &value);
  const float factor = out->scheme.divides ? 1.0f / value : value;
  if (factor > 0.0f && std::isfinite(factor)) return {};
  return error("invalid scale", out->scale.name, "a positive number", formatted("%g", static_cast<double>(value)));
}

constexpr CodeFormat kCodeFormats[] = {
    {StoredAs::int8, "int8", false, nullptr, nullptr, nullptr, nullptr},
    {StoredAs::fp8, "FP8 E4M3", false, bind_fp8, read_fp8_row, nullptr, nullptr},
    {StoredAs::bytes, "int-quantized", false, bind_bytes, nullptr, read_byte_codes, read_byte_zero_points},
    {StoredAs::packed, "pack-quantized", false, bind_packed, nullptr, read_packed_codes, read_packed_zero_points},
    {StoredAs::gptq, "GPTQ", true, bind_gptq, nullptr, read_gptq_codes, read_column_zero_points},
    {StoredAs::awq, "AWQ", true, bind_awq, nullptr, read_awq_codes, read_column_zero_points},
    {StoredAs::nvfp4, "NVFP4", false, bind_nvfp4, read_nvfp4_row, nullptr, nullptr},
    {StoredAs::bitnet, "BitNet", false, bind_bitnet, nullptr, read_bitnet_codes, nullptr},
};

static_assert(std::size(kCodeFormats) == static_cast<size_t>(StoredAs::bitnet) + 1, "one row for each format");

}  // namespace

const CodeFormat& format_of(const CodeScheme& scheme) {
  return *std::ranges::find(kCodeFormats, scheme.stored_as, &CodeFormat::stored_as);
}

bool zeros_are_middle(const CodedMatrix& m) {
  if (!m.zero.data) return true;
  if (m.scheme.stored_as == StoredAs::bytes) {
    return std::ranges::all_of(m.zero.contents(), [](std::byte zero) { return zero == std::byte{0}; });
  }
  const bool less_one = m.scheme.stored_as == StoredAs::gptq && m.scheme.zeros_less_one;
  const uint32_t middle = less_one ? 0x77777777u : 0x88888888u;
  for (int64_t i = 0; i < m.zero.elements(); ++i) {
    if (word(m.zero, i) != middle) return false;
  }
  return true;
}

void read_fp8_scales(const CodedMatrix& m, int64_t first, int64_t count, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.scale.data) + first;
  for (int64_t i = 0; i < count; ++i) out[i] = kFp8Values[codes[i]] / m.scale_divisor;
}

}  // namespace pinion
