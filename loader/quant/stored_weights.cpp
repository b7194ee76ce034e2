#include "loader/quant/stored_weights.h"

#include <cmath>

#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf.h"

namespace pinion {
namespace {

int largest_code(const CodeScheme& scheme) { return (1 << scheme.bits) - 1; }

// The first number of the row that is out of range, among its codes, then among its zero points.
Error explain_bytes(const CodedMatrix& m, int64_t row) {
  const int middle = 1 << (m.scheme.bits - 1);
  const auto fits = [middle](int8_t value) { return -middle <= value && value < middle; };
  const auto find = [&](const TensorView& tensor, int64_t count) -> Error {
    if (!tensor.data) return {};
    const auto* values = reinterpret_cast<const int8_t*>(tensor.data) + row * count;
    const auto* bad = std::find_if_not(values, values + count, fits);
    if (bad == values + count) return {};
    return error("out of range", tensor.name + " row " + std::to_string(row),
                 std::to_string(-middle) + " to " + std::to_string(middle - 1), *bad);
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

constexpr uint32_t kExponentBits = 23;

uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffffu; }

// The divisor that turns the scales of one column into f16: 1 for F16, else the power of two that brings the largest
// into [2^15, 2^16), the top of f16's range, which leaves the most room below.
float column_scale(DType dtype, std::span<const float> scales) {
  uint32_t largest = 0;
  for (const float scale : scales) largest = std::max(largest, magnitude_bits(scale));
  if (dtype == DType::f16 || largest == 0) return 1.0f;
  return std::bit_cast<float>(((largest >> kExponentBits) - 15) << kExponentBits);
}

// True if the scales of one column, divided by column_scale, are normal f16 numbers or zeros.
bool fit_f16(std::span<const float> scales) {
  // Exponents of a float for which column_scale and 16 times the largest scale are normal numbers, too.
  constexpr uint32_t kMin = 31, kMax = 246, kMaxDistance = 29;
  uint32_t largest = 0, smallest_less_one = ~0u, bits_beyond_f16 = 0;
  for (const float scale : scales) {
    const uint32_t size = magnitude_bits(scale);
    largest = std::max(largest, size);
    smallest_less_one = std::min(smallest_less_one, size - 1);  // wraps around for 0, which thus never is the smallest
    bits_beyond_f16 |= size & 0x1fffu;
  }
  if (largest == 0) return true;
  const uint32_t top = largest >> kExponentBits, bottom = (smallest_less_one + 1) >> kExponentBits;
  return bits_beyond_f16 == 0 && top >= kMin && top <= kMax && bottom + kMaxDistance >= top;
}

// Scales of rows [first, first + rows) of the stored matrix, whatever first_row is, out [rows][groups].
void read_scales(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t groups = m.groups();
  if (m.format->by_column) {
    std::vector<float> line(rows);
    for (int64_t g = 0; g < groups; ++g) {
      read_floats(m.scale, g * m.n + first, rows, line.data());
      for (int64_t r = 0; r < rows; ++r) out[r * groups + g] = line[r];
    }
    return;
  }
  if (m.scale.dtype == DType::f8_e4m3) return read_fp8_scales(m, first * groups, rows * groups, out);
  for (int64_t r = 0; r < rows; ++r) {
    read_floats(m.scale, (first + r) / m.scheme.rows_per_scale * groups, groups, out + r * groups);
  }
  for (int64_t i = 0; m.scheme.divides && i < rows * groups; ++i) out[i] = 1.0f / out[i];
}

// Integer codes [rows][k] and zero points [rows][groups] of the same rows: the middle of the codes if none are stored.
// All zero points of a row with an out-of-range code are NaN.
void read_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* codes, float* zero_points) {
  m.format->read_codes(m, first, rows, codes);
  const int middle = m.scheme.stored_as == StoredAs::bitnet ? 1 : 1 << (m.scheme.bits - 1);
  std::fill_n(zero_points, rows * m.groups(), static_cast<float>(middle));
  if (m.zero.data) m.format->read_zero_points(m, first, rows, zero_points);
  if (m.scheme.stored_as != StoredAs::bytes) return;
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t all = 0;
    for (int64_t i = r * m.k; i < (r + 1) * m.k; ++i) all |= codes[i];
    if (all > largest_code(m.scheme)) std::fill_n(zero_points + r * m.groups(), m.groups(), NAN);
  }
}

bool all_scales_fit(const CodedMatrix& m) {
  if (m.scale.dtype == DType::f16) return true;
  constexpr int64_t kRows = 64;  // read together: at least a cache line if rows are columns of the file
  const int64_t groups = m.groups();
  std::vector<float> scales(kRows * groups);
  for (int64_t first = 0; first < m.n; first += kRows) {
    const int64_t rows = std::min(kRows, m.n - first);
    read_scales(m, first, rows, scales.data());
    for (int64_t r = 0; r < rows; ++r) {
      if (!fit_f16(std::span(scales).subspan(r * groups, groups))) return false;
    }
  }
  return true;
}

// Appends rows of a matrix with a format of find_w4_format, from first_row on. Returns the first row with an invalid
// scale or zero point, or -1.
int64_t read_w4_rows(const CodedMatrix& m, int64_t first, int64_t rows, W4Rows* out) {
  first += m.first_row;
  const int64_t groups = m.groups();
  std::vector<float> zero_points(rows * groups), scales(rows * groups);
  std::vector<uint8_t> codes(rows * m.k);
  read_codes(m, first, rows, codes.data(), zero_points.data());
  read_scales(m, first, rows, scales.data());
  for (int64_t r = 0; r < rows; ++r) {
    const float column = column_scale(m.scale.dtype, std::span(scales).subspan(r * groups, groups));
    out->scales.push_back(column);
    for (int64_t k = 0; k < padded_k(m.k); k += kGroupK) {
      const int64_t source = r * groups + k / m.group_size();
      const float zero = zero_points[source], scale = scales[source];
      if (!std::isfinite(zero) || !std::isfinite(scale)) return r;
      out->zero_points.push_back(static_cast<uint8_t>(zero * kZeroSteps));
      out->group_scales.push_back(to_f16(scale / column));
      const auto begin = codes.begin() + r * m.k + k;
      out->codes.insert(out->codes.end(), begin, begin + std::min(kGroupK, m.k - k));
      out->codes.resize(out->group_scales.size() * kGroupK, static_cast<uint8_t>(std::min(zero, 15.0f)));
    }
  }
  return -1;
}

// Reads the rows of a tensor with a type of kept_format.
RowReader block_reader_of(const TensorView& rows) {
  const BlockFormat& format = *block_format(rows.dtype);
  const auto read = [rows, &format](int64_t first, int64_t count, W4Rows* out) -> int64_t {
    const int64_t k = rows.shape[1], blocks = k / format.elements;
    std::vector<uint8_t> codes(k);
    std::vector<W4Block> groups(k / kGroupK);
    const auto is_finite = [](const W4Block& g) { return std::isfinite(g.scale) && std::isfinite(g.minimum); };
    for (int64_t r = 0; r < count; ++r) {
      format.read_codes(rows.data + (first + r) * blocks * format.bytes, blocks, codes.data(), groups.data());
      if (!std::ranges::all_of(groups, is_finite)) return r;
      append_w4_row(groups, codes.data(), out);
    }
    return -1;
  };
  return {.stored_as = std::string(format.name) + ", as it is", .read = {}, .explain_nan = {}, .read_w4 = read};
}

// True if the module's tensors are codes.
bool has_codes(const ModuleTensors& tensors, StoredAs stored_as) {
  if (stored_as != StoredAs::fp8 && stored_as != StoredAs::bitnet) return tensors.find(".qweight");
  const TensorView* tensor = tensors.find(".weight");
  return tensor && tensor->dtype == (stored_as == StoredAs::fp8 ? DType::f8_e4m3 : DType::u8);
}

Error bind_stored(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
                  const std::string& module, int64_t n, int64_t k, LinearWeight* out) {
  const ModuleTensors tensors = {checkpoint, module, &out->tensors};
  const CodeScheme* scheme = nullptr;
  if (quantization && quantization->by_tensors) {
    const CodeScheme& only = quantization->groups[0].scheme;
    if (has_codes(tensors, only.stored_as)) scheme = &only;
  } else if (quantization) {
    if (Error e = find_scheme(*quantization, module, &scheme)) return e;
  }
  if (!scheme) {
    if (Error e = tensors.bind(".weight", {n, k}, kFloatTypes, &out->weight)) return e;
    if (is_block(out->weight.dtype)) out->stored_as = dtype_name(out->weight.dtype);
    return {};
  }
  const CodeFormat& format = format_of(*scheme);
  out->stored_as = description(format, *scheme);
  if (scheme->stored_as == StoredAs::int8) {
    if (Error e = tensors.bind(".weight", {n, k}, {DType::i8}, &out->weight)) return e;
    return bind_row_scales(tensors, ".weight_scale", n, &out->scale);
  }
  CodedMatrix& coded = out->coded;
  coded.format = &format, coded.scheme = *scheme, coded.n = n, coded.k = k;
  if (Error e = format.bind(tensors, &coded)) return e;
  out->weight = coded.codes;
  out->weight.shape = {n, k};
  return {};
}

}  // namespace

std::string description(const CodeFormat& format, const CodeScheme& scheme) {
  std::string text(format.name);
  if (scheme.stored_as == StoredAs::gptq && !scheme.zeros_less_one) text += " v2";
  if (format.read_codes) text += ", " + std::to_string(scheme.bits) + " bits";
  if (!scheme.symmetric) text += " with zeros";
  if (scheme.divides) text += ", divided by the scale";
  if (scheme.group_size == 0) return text;
  const std::string size = std::to_string(scheme.group_size);
  if (scheme.stored_as == StoredAs::fp8) {
    return text + ", blocks of " + std::to_string(scheme.rows_per_scale) + " x " + size;
  }
  return text + ", groups of " + size;
}

void read_rows(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t groups = m.groups();
  std::vector<float> scales(rows * groups);
  first += m.first_row;
  read_scales(m, first, rows, scales.data());
  if (m.format->read_numbers) {
    for (int64_t r = 0; r < rows; ++r) m.format->read_numbers(m, first + r, scales.data() + r * groups, out + r * m.k);
    return;
  }
  std::vector<float> zero_points(rows * groups);
  std::vector<uint8_t> codes(rows * m.k);
  read_codes(m, first, rows, codes.data(), zero_points.data());
  for (int64_t r = 0; r < rows; ++r) {
    multiply(m, codes.data() + r * m.k, zero_points.data() + r * groups, scales.data() + r * groups, out + r * m.k);
  }
}

Error explain_nan(const CodedMatrix& m, int64_t row) {
  row += m.first_row;
  if (m.scheme.stored_as == StoredAs::bytes) return explain_bytes(m, row);
  if (!m.zero.data) return {};
  std::vector<float> zero_points(m.groups());
  m.format->read_zero_points(m, row, 1, zero_points.data());
  if (std::ranges::none_of(zero_points, [](float zero) { return std::isnan(zero); })) return {};
  const std::string largest = std::to_string(largest_code(m.scheme));
  return error("a zero point of 0, which tools read differently", m.zero.name + " column " + std::to_string(row),
               "stored less one: below " + largest, largest);
}

std::string find_w4_format(const CodedMatrix& m, Format* out) {
  if (m.order.data) return "reordered inputs (act order)";
  if (m.groups() > 1 && m.group_size() % kGroupK != 0) return "groups that are no multiple of 32";
  const bool fit = all_scales_fit(m), symmetric = zeros_are_middle(m);
  release_pages(m.scale.contents());  // packing reads them again, unless the cache has the packed weights
  release_pages(m.zero.contents());
  if (!fit) return "scales that f16 cannot hold";
  *out = symmetric ? Format::w4 : Format::w4z;
  return {};
}

std::optional<Format> kept_format(DType dtype) {
  const BlockFormat* format = block_format(dtype);
  return format ? format->kept : std::nullopt;
}

Error bind_linear(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
                  const std::string& module, int64_t n, int64_t k, LinearWeight* out) {
  if (Error e = bind_stored(checkpoint, quantization, module, n, k, out)) return e;
  return bind_updates(checkpoint, module, n, k, &out->updates, &out->tensors);
}

LinearWeight rows_of(const LinearWeight& whole, int64_t first, int64_t count) {
  LinearWeight rows = whole;
  const int64_t n = whole.weight.shape[0];
  if (count == n) return rows;
  const auto cut = [&](TensorView* tensor) {
    const int64_t row_bytes = tensor->bytes / n;
    tensor->name += "[" + std::to_string(first) + ":" + std::to_string(first + count) + "]";
    tensor->shape[0] = count;
    tensor->data += first * row_bytes;
    tensor->bytes = count * row_bytes;
  };
  cut(&rows.weight);
  if (rows.scale.elements() > 1) cut(&rows.scale);
  for (LowRankUpdate& update : rows.updates) cut(&update.b);
  rows.coded.first_row += first;
  if (whole.reader.read) {
    rows.reader.read = [=, read = whole.reader.read](int64_t from, int64_t n_read, float* out) {
      read(first + from, n_read, out);
    };
    const auto explain = whole.reader.explain_nan;
    if (const auto codes = whole.reader.read_w4) {
      rows.reader.read_w4 = [=](int64_t from, int64_t n_read, W4Rows* out) { return codes(first + from, n_read, out); };
    }
    if (explain) rows.reader.explain_nan = [=](int64_t row) { return explain(first + row); };
  }
  return rows;
}

RowReader reader_of(const LinearWeight& weight, bool keep_codes) {
  const CodedMatrix& matrix = weight.coded;
  if (keep_codes && is_block(weight.weight.dtype)) return block_reader_of(weight.weight);
  RowReader reader = weight.reader;
  if (!matrix.format && keep_codes) reader.stored_as += ", as it is";
  if (!matrix.format && !keep_codes) reader.read_w4 = {};
  if (!matrix.format) return reader;
  reader = {.stored_as = description(*matrix.format, matrix.scheme),
            .read = [matrix](int64_t first, int64_t count, float* rows) { read_rows(matrix, first, count, rows); },
            .explain_nan = [matrix](int64_t row) { return explain_nan(matrix, row); },
            .scattered = matrix.format->by_column};
  if (!keep_codes) return reader;
  reader.stored_as += ", as it is";
  reader.read_w4 = [matrix](int64_t first, int64_t count, W4Rows* rows) {
    return read_w4_rows(matrix, first, count, rows);
  };
  return reader;
}

}  // namespace pinion
