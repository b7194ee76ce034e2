#include "loader/quant/stored_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iterator>

#include "loader/checkpoint/convert.h"
#include "loader/quant/coded_w4.h"
#include "loader/quant/number_codes.h"

namespace pinion {
namespace {

// A tensor of the module, which its weight's list then has.
Error bind_one(const Checkpoint& checkpoint, const std::string& name, std::initializer_list<int64_t> shape,
               std::initializer_list<DType> dtypes, TensorView* out, std::vector<std::string>* names) {
  names->push_back(name);
  return checkpoint.bind(name, shape, dtypes, out);
}

// A scale for each row, or one for all.
Error bind_row_scales(const Checkpoint& checkpoint, const std::string& name, int64_t n, TensorView* out) {
  const std::string where = checkpoint.where(name);
  const TensorView* scale = checkpoint.find(name);
  if (!scale) return error("no such tensor", where, "the scales of 8-bit weights");
  if (!is_float(scale->dtype)) {
    return error("type differs", where, "BF16, F16 or F32", std::string(dtype_name(scale->dtype)));
  }
  const std::vector<int64_t> column = {n, 1}, one = {1, 1};
  const std::vector<int64_t> shapes[] = {column, {n}, one, {1}, {}};
  if (std::ranges::find(shapes, scale->shape) == std::end(shapes)) {
    return error("shape differs", where, shape_text(column) + ", " + shape_text({&n, 1}) + " or one number",
                 shape_text(scale->shape));
  }
  *out = *scale;
  return {};
}

// Ranges of activations that files may have measured beforehand: Pinion takes those of each token as it comes.
void add_activation_scales(const Checkpoint& checkpoint, const std::string& module, std::vector<std::string>* names) {
  for (const char* suffix : {".input_scale", ".activation_scale"}) {
    if (checkpoint.find(module + suffix)) names->push_back(module + suffix);
  }
}

Error bind_fp8(const Checkpoint& checkpoint, const std::string& module, CodedMatrix* out,
               std::vector<std::string>* names) {
  const std::string weight = module + ".weight";
  if (Error e = bind_one(checkpoint, weight, {out->n, out->k}, {DType::f8_e4m3}, &out->codes, names)) return e;
  const bool is_inverse = checkpoint.find(weight + "_scale_inv") != nullptr;
  const std::string scale = weight + (is_inverse ? "_scale_inv" : "_scale");
  add_activation_scales(checkpoint, module, names);
  if (out->scheme.group_size > 0) {
    const int64_t block_rows = (out->n + out->scheme.block_rows - 1) / out->scheme.block_rows;
    return bind_one(checkpoint, scale, {block_rows, out->groups()}, kFloatTypes, &out->scale, names);
  }
  names->push_back(scale);
  if (Error e = bind_row_scales(checkpoint, scale, out->n, &out->scale)) return e;
  if (out->scale.elements() == 1) out->scheme.block_rows = out->n;
  return {};
}

Error check_words(const Checkpoint& checkpoint, const std::string& module, const char* axis, int64_t size,
                  int64_t per_word) {
  if (size % per_word == 0) return {};
  return error("codes do not fill their words", checkpoint.where(module),
               std::string(axis) + " a multiple of " + std::to_string(per_word), std::to_string(size));
}

Error bind_nvfp4(const Checkpoint& checkpoint, const std::string& module, CodedMatrix* out,
                 std::vector<std::string>* names) {
  const std::string weight = module + ".weight";
  TensorView divisor;
  if (Error e = check_words(checkpoint, module, "inputs", out->k, kNvGroup)) return e;
  if (Error e = bind_one(checkpoint, weight + "_packed", {out->n, out->k / 2}, {DType::u8}, &out->codes, names)) {
    return e;
  }
  if (Error e =
          bind_one(checkpoint, weight + "_scale", {out->n, out->groups()}, {DType::f8_e4m3}, &out->scale, names)) {
    return e;
  }
  if (Error e = bind_one(checkpoint, weight + "_global_scale", {1}, {DType::f32}, &divisor, names)) return e;
  read_floats(divisor, &out->scale_divisor);
  if (!(out->scale_divisor > 0) || std::isinf(out->scale_divisor)) {
    return error("out of range", checkpoint.where(divisor.name), "above 0 and finite",
                 std::to_string(out->scale_divisor));
  }
  if (checkpoint.find(module + ".input_global_scale")) names->push_back(module + ".input_global_scale");
  return {};
}

// Which group each input belongs to. In order, there is nothing to look up.
Error bind_order(const Checkpoint& checkpoint, const std::string& name, CodedMatrix* out,
                 std::vector<std::string>* names) {
  if (!out->scheme.has_order && !checkpoint.find(name)) return {};
  if (Error e = bind_one(checkpoint, name, {out->k}, {DType::i32}, &out->order, names)) return e;
  bool in_order = true;
  for (int64_t i = 0; i < out->k; ++i) {
    const int64_t group = static_cast<int32_t>(word(out->order, i));
    if (group < 0 || group >= out->groups()) {
      return error("no such group", checkpoint.where(name), "less than " + std::to_string(out->groups()),
                   std::to_string(group));
    }
    in_order = in_order && group == i / out->group_size();
  }
  if (in_order) out->order = {};
  return {};
}

// Only a file in which that order is the inputs' own is read.
Error refuse_order(const Checkpoint& checkpoint, const CodedMatrix& m) {
  if (!m.order.data) return {};
  return error("not supported", checkpoint.where(m.order.name), "inputs in their order",
               "groups of an order of their own (actorder)");
}

Error bind_bytes(const Checkpoint& checkpoint, const std::string& module, CodedMatrix* out,
                 std::vector<std::string>* names) {
  const std::string weight = module + ".weight";
  const int64_t n = out->n, groups = out->groups();
  if (Error e = bind_one(checkpoint, weight, {n, out->k}, {DType::i8}, &out->codes, names)) return e;
  if (Error e = bind_one(checkpoint, weight + "_scale", {n, groups}, kFloatTypes, &out->scale, names)) return e;
  if (!out->scheme.symmetric) {
    const std::string zero = weight + "_zero_point";
    if (Error e = bind_one(checkpoint, zero, {n, groups}, {DType::i8}, &out->zero, names)) return e;
  }
  if (Error e = bind_order(checkpoint, weight + "_g_idx", out, names)) return e;
  add_activation_scales(checkpoint, module, names);
  return refuse_order(checkpoint, *out);
}

Error bind_packed(const Checkpoint& checkpoint, const std::string& module, CodedMatrix* out,
                  std::vector<std::string>* names) {
  const std::string weight = module + ".weight";
  const int64_t n = out->n, k = out->k, groups = out->groups();
  const auto bind = [&](const char* suffix, std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes,
                        TensorView* tensor) {
    return bind_one(checkpoint, weight + suffix, shape, dtypes, tensor, names);
  };
  TensorView shape;
  if (Error e = bind("_packed", {n, out->words(k)}, {DType::i32}, &out->codes)) return e;
  if (Error e = bind("_scale", {n, groups}, kFloatTypes, &out->scale)) return e;
  if (Error e = bind("_shape", {2}, {DType::i64, DType::i32}, &shape)) return e;
  const int64_t step = shape.dtype == DType::i64 ? 2 : 1;  // words an element; the sizes fit into the lower
  const std::vector<int64_t> stored = {word(shape, 0), word(shape, step)};
  if (stored != std::vector<int64_t>{n, k}) {
    return error("another shape inside", checkpoint.where(shape.name), shape_text(std::vector{n, k}),
                 shape_text(stored));
  }
  if (!out->scheme.symmetric) {
    if (Error e = bind("_zero_point", {out->words(n), groups}, {DType::i32}, &out->zero)) return e;
  }
  if (Error e = bind_order(checkpoint, weight + "_g_idx", out, names)) return e;
  add_activation_scales(checkpoint, module, names);
  return refuse_order(checkpoint, *out);
}

// What gptq and awq have in common.
Error bind_columns(const Checkpoint& checkpoint, const std::string& module, int64_t code_lines, int64_t code_columns,
                   CodedMatrix* out, std::vector<std::string>* names) {
  const int64_t n = out->n, groups = out->groups();
  const auto bind = [&](const char* suffix, std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes,
                        TensorView* tensor) {
    return bind_one(checkpoint, module + suffix, shape, dtypes, tensor, names);
  };
  if (Error e = check_words(checkpoint, module, "outputs", n, out->codes_a_word())) return e;
  if (Error e = bind(".qweight", {code_lines, code_columns}, {DType::i32}, &out->codes)) return e;
  if (Error e = bind(".scales", {groups, n}, kFloatTypes, &out->scale)) return e;
  return bind(".qzeros", {groups, out->words(n)}, {DType::i32}, &out->zero);
}

Error bind_gptq(const Checkpoint& checkpoint, const std::string& module, CodedMatrix* out,
                std::vector<std::string>* names) {
  if (Error e = check_words(checkpoint, module, "inputs", out->k, out->codes_a_word())) return e;
  if (Error e = bind_columns(checkpoint, module, out->words(out->k), out->n, out, names)) return e;
  // Some tools write a bias of zeros beside every matrix.
  const TensorView* bias = checkpoint.find(module + ".bias");
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (bias && std::ranges::all_of(bias->contents(), is_zero)) names->push_back(bias->name);
  return bind_order(checkpoint, module + ".g_idx", out, names);
}

Error bind_awq(const Checkpoint& checkpoint, const std::string& module, CodedMatrix* out,
               std::vector<std::string>* names) {
  return bind_columns(checkpoint, module, out->k, out->words(out->n), out, names);
}

Error bind_bitnet(const Checkpoint& checkpoint, const std::string& module, CodedMatrix* out,
                  std::vector<std::string>* names) {
  const std::string weight = module + ".weight", scale = weight + "_scale";
  if (Error e = check_words(checkpoint, module, "outputs", out->n, 4)) return e;
  if (Error e = bind_one(checkpoint, weight, {out->n / 4, out->k}, {DType::u8}, &out->codes, names)) return e;
  out->scheme.block_rows = out->n;
  if (Error e = bind_one(checkpoint, scale, {1}, kFloatTypes, &out->scale, names)) return e;
  float value = 0.0f;
  read_floats(out->scale, &value);
  const float factor = out->scheme.divides ? 1.0f / value : value;
  if (factor > 0.0f && std::isfinite(factor)) return {};
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value));
  return error("unfit scale", scale, "a positive number", text.data());
}

// In the order of StoredAs.
constexpr CodeFormat kFormats[] = {
    {"int8", false, nullptr, nullptr, nullptr, nullptr},
    {"FP8 E4M3", false, bind_fp8, read_fp8_row, nullptr, nullptr},
    {"int-quantized", false, bind_bytes, nullptr, read_byte_codes, read_byte_zero_points},
    {"pack-quantized", false, bind_packed, nullptr, read_packed_codes, read_packed_zero_points},
    {"GPTQ", true, bind_gptq, nullptr, read_gptq_codes, read_gptq_zero_points},
    {"AWQ", true, bind_awq, nullptr, read_awq_codes, read_awq_zero_points},
    {"NVFP4", false, bind_nvfp4, read_nvfp4_row, nullptr, nullptr},
    {"BitNet", false, bind_bitnet, nullptr, read_bitnet_codes, read_bitnet_zero_points},
};

const CodeFormat& format_of(const CodeScheme& scheme) { return kFormats[static_cast<size_t>(scheme.stored_as)]; }

// "GPTQ, 4 bits, groups of 128"
std::string description(const CodeScheme& scheme) {
  std::string text(format_of(scheme).name);
  if (scheme.stored_as == StoredAs::gptq && !scheme.zeros_less_one) text += " v2";
  if (format_of(scheme).read_codes) text += ", " + std::to_string(scheme.bits) + " bits";
  if (!scheme.symmetric) text += " with zeros";
  if (scheme.divides) text += ", divided by the scale";
  if (scheme.group_size == 0) return text;
  const std::string size = std::to_string(scheme.group_size);
  if (scheme.stored_as == StoredAs::fp8) {
    return text + ", blocks of " + std::to_string(scheme.block_rows) + " x " + size;
  }
  return text + ", groups of " + size;
}

// Whether the module has codes, by its tensors.
bool shows_codes(const Checkpoint& checkpoint, const std::string& module, StoredAs stored_as) {
  if (stored_as != StoredAs::fp8 && stored_as != StoredAs::bitnet) return checkpoint.find(module + ".qweight");
  const TensorView* tensor = checkpoint.find(module + ".weight");
  return tensor && tensor->dtype == (stored_as == StoredAs::fp8 ? DType::f8_e4m3 : DType::u8);
}

int largest_code(const CodeScheme& scheme) { return (1 << scheme.bits) - 1; }

// The first number of the row that has more bits than the scheme, among its codes, then among its zeros.
Error explain_bytes(const CodedMatrix& m, int64_t row) {
  const int middle = 1 << (m.scheme.bits - 1);
  const auto fits = [middle](int8_t value) { return -middle <= value && value < middle; };
  const auto find = [&](const TensorView& tensor, int64_t count) -> Error {
    if (!tensor.data) return {};
    const auto* values = reinterpret_cast<const int8_t*>(tensor.data) + row * count;
    const auto* bad = std::find_if_not(values, values + count, fits);
    if (bad == values + count) return {};
    return error("out of range", tensor.name + " row " + std::to_string(row),
                 std::to_string(-middle) + " to " + std::to_string(middle - 1), std::to_string(*bad));
  };
  if (Error e = find(m.codes, m.k)) return e;
  return find(m.zero, m.groups());
}

void multiply(const CodedMatrix& m, const uint8_t* codes, const float* zero_points, const float* scales, float* out) {
  if (m.order.data) {
    for (int64_t i = 0; i < m.k; ++i) {
      const uint32_t group = word(m.order, i);
      out[i] = (static_cast<float>(codes[i]) - zero_points[group]) * scales[group];
    }
    return;
  }
  for (int64_t g = 0; g < m.groups(); ++g) {
    const int64_t end = std::min(m.k, (g + 1) * m.group_size());
    const float zero = zero_points[g], scale = scales[g];
    for (int64_t i = g * m.group_size(); i < end; ++i) out[i] = (static_cast<float>(codes[i]) - zero) * scale;
  }
}

}  // namespace

Error bind_linear(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
                  const std::string& module, int64_t n, int64_t k, LinearWeight* out) {
  const std::string name = module + ".weight";
  const CodeScheme* scheme = nullptr;
  if (quantization && quantization->by_tensors) {
    const CodeScheme& only = quantization->groups[0].scheme;
    if (shows_codes(checkpoint, module, only.stored_as)) scheme = &only;
  } else if (quantization) {
    if (Error e = find_scheme(*quantization, module, &scheme)) return e;
  }
  if (!scheme) return bind_one(checkpoint, name, {n, k}, kFloatTypes, &out->weight, &out->tensors);
  out->stored_as = description(*scheme);
  if (scheme->stored_as == StoredAs::int8) {
    if (Error e = bind_one(checkpoint, name, {n, k}, {DType::i8}, &out->weight, &out->tensors)) return e;
    out->tensors.push_back(name + "_scale");
    return bind_row_scales(checkpoint, name + "_scale", n, &out->scale);
  }
  CodedMatrix& coded = out->coded;
  coded = {.format = &format_of(*scheme),
           .scheme = *scheme,
           .n = n,
           .k = k,
           .codes = {},
           .scale = {},
           .zero = {},
           .order = {}};
  if (Error e = coded.format->bind(checkpoint, module, &coded, &out->tensors)) return e;
  out->weight = coded.codes;
  out->weight.shape = {n, k};
  return {};
}

LinearWeight rows_of(const LinearWeight& whole, int64_t first, int64_t count) {
  LinearWeight part = whole;
  const int64_t n = whole.weight.shape[0];
  if (count == n) return part;
  const auto cut = [&](TensorView* tensor) {
    const int64_t row_bytes = tensor->bytes / n;
    tensor->name += "[" + std::to_string(first) + ":" + std::to_string(first + count) + "]";
    tensor->shape[0] = count;
    tensor->data += first * row_bytes;
    tensor->bytes = count * row_bytes;
  };
  cut(&part.weight);
  if (part.scale.elements() > 1) cut(&part.scale);
  part.coded.first_row += first;
  return part;
}

void read_scales(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t groups = m.groups();
  if (m.format->by_column) {
    std::vector<float> line(static_cast<size_t>(rows));
    for (int64_t g = 0; g < groups; ++g) {
      read_floats(m.scale, g * m.n + first, rows, line.data());
      for (int64_t r = 0; r < rows; ++r) out[r * groups + g] = line[static_cast<size_t>(r)];
    }
    return;
  }
  if (m.scale.dtype == DType::f8_e4m3) {
    return read_fp8_scales(m, first * groups, rows * groups, out);
  }
  for (int64_t r = 0; r < rows; ++r) {
    read_floats(m.scale, (first + r) / m.scheme.block_rows * groups, groups, out + r * groups);
  }
  for (int64_t i = 0; m.scheme.divides && i < rows * groups; ++i) out[i] = 1.0f / out[i];
}

void read_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* codes, float* zero_points) {
  m.format->read_codes(m, first, rows, codes);
  m.format->read_zero_points(m, first, rows, zero_points);
  if (m.scheme.stored_as != StoredAs::bytes) return;
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t all = 0;
    for (int64_t i = r * m.k; i < (r + 1) * m.k; ++i) all |= codes[i];
    if (all > largest_code(m.scheme)) std::fill_n(zero_points + r * m.groups(), m.groups(), NAN);
  }
}

void read_rows(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t groups = m.groups();
  const auto count = static_cast<size_t>(rows * groups);
  std::vector<float> scales(count);
  first += m.first_row;
  read_scales(m, first, rows, scales.data());
  if (m.format->read_numbers) {
    for (int64_t r = 0; r < rows; ++r) {
      m.format->read_numbers(m, first + r, scales.data() + r * groups, out + r * m.k);
    }
    return;
  }
  std::vector<float> zero_points(count);
  std::vector<uint8_t> codes(static_cast<size_t>(rows * m.k));
  read_codes(m, first, rows, codes.data(), zero_points.data());
  for (int64_t r = 0; r < rows; ++r) {
    multiply(m, codes.data() + r * m.k, zero_points.data() + r * groups, scales.data() + r * groups, out + r * m.k);
  }
}

Error explain_nan(const CodedMatrix& m, int64_t row) {
  row += m.first_row;
  if (m.scheme.stored_as == StoredAs::bytes) return explain_bytes(m, row);
  if (!m.format->read_zero_points) return {};
  std::vector<float> zero_points(static_cast<size_t>(m.groups()));
  m.format->read_zero_points(m, row, 1, zero_points.data());
  if (std::ranges::none_of(zero_points, [](float zero) { return std::isnan(zero); })) return {};
  const int most = largest_code(m.scheme);
  return error("a zero of 0, which tools read in different ways", m.zero.name + " column " + std::to_string(row),
               "stored less one: below " + std::to_string(most), std::to_string(most));
}

RowReader reader_of(const CodedMatrix& matrix, bool as_w4) {
  if (!matrix.format) return {};
  RowReader reader = {
      .stored_as = description(matrix.scheme),
      .read = [matrix](int64_t first, int64_t count, float* rows) { read_rows(matrix, first, count, rows); },
      .explain_nan = [matrix](int64_t row) { return explain_nan(matrix, row); },
      .scattered = matrix.format->by_column};
  if (!as_w4) return reader;
  reader.stored_as += ", as it is";
  reader.read_w4 = [matrix](int64_t first, int64_t count, W4Rows* rows) {
    return read_w4_rows(matrix, first, count, rows);
  };
  return reader;
}

}  // namespace pinion
