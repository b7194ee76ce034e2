#include "loader/quant/stored_weights.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/base/text.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/quant/adapters.h"
#include "loader/quant/code_layouts.h"

namespace pinion {
namespace {

// Ranges of activations from calibration, in some files. They are unused: activations are quantised per token.
constexpr std::initializer_list<const char*> kActivationScales = {".input_scale", ".activation_scale"};

// One scale for each of n rows, or one for all rows.
Error bind_row_scales(const ModuleTensors& tensors, const char* suffix, int64_t n, TensorView* out) {
  tensors.names->push_back(tensors.module + suffix);
  const std::string where = tensors.where(suffix);
  const TensorView* scale = tensors.find(suffix);
  if (!scale) return error("no such tensor", where, "the scales of 8-bit weights");
  if (!is_float(scale->dtype)) {
    return error("type differs", where, "BF16, F16 or F32", std::string(dtype_name(scale->dtype)));
  }
  const std::vector<int64_t> column = {n, 1}, single = {1, 1};
  const std::vector<int64_t> shapes[] = {column, {n}, single, {1}, {}};
  if (std::ranges::find(shapes, scale->shape) == std::end(shapes)) {
    return error("shape differs", where, shape_text(column) + ", " + shape_text({&n, 1}) + " or one number",
                 shape_text(scale->shape));
  }
  *out = *scale;
  return {};
}

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
               std::string(axis) + " a multiple of " + std::to_string(per_word), std::to_string(size));
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
    return error("out of range", tensors.where(".weight_global_scale"), "above 0 and finite",
                 std::to_string(out->scale_divisor));
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
      return error("no such group", tensors.where(suffix), "less than " + std::to_string(out->groups()),
                   std::to_string(group));
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

Error bind_bytes(const ModuleTensors& tensors, CodedMatrix* out) {
  const int64_t n = out->n, groups = out->groups();
  if (Error e = tensors.bind(".weight", {n, out->k}, {DType::i8}, &out->codes)) return e;
  if (Error e = tensors.bind(".weight_scale", {n, groups}, kFloatTypes, &out->scale)) return e;
  if (!out->scheme.symmetric) {
    if (Error e = tensors.bind(".weight_zero_point", {n, groups}, {DType::i8}, &out->zero)) return e;
  }
  tensors.add_unused(kActivationScales);
  return bind_actorder(tensors, out);
}

Error bind_packed(const ModuleTensors& tensors, CodedMatrix* out) {
  const int64_t n = out->n, k = out->k, groups = out->groups();
  TensorView shape;
  if (Error e = tensors.bind(".weight_packed", {n, out->words(k)}, {DType::i32}, &out->codes)) return e;
  if (Error e = tensors.bind(".weight_scale", {n, groups}, kFloatTypes, &out->scale)) return e;
  if (Error e = tensors.bind(".weight_shape", {2}, {DType::i64, DType::i32}, &shape)) return e;
  const int64_t step = shape.dtype == DType::i64 ? 2 : 1;  // words per element; the sizes fit in the lower one
  const std::vector<int64_t> stored = {word(shape, 0), word(shape, step)}, expected = {n, k};
  if (stored != expected) {
    return error("stores another shape", tensors.where(".weight_shape"), shape_text(expected), shape_text(stored));
  }
  if (!out->scheme.symmetric) {
    if (Error e = tensors.bind(".weight_zero_point", {out->words(n), groups}, {DType::i32}, &out->zero)) return e;
  }
  tensors.add_unused(kActivationScales);
  return bind_actorder(tensors, out);
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

constexpr CodeFormat kFormats[] = {
    {StoredAs::int8, "int8", false, nullptr, nullptr, nullptr, nullptr},
    {StoredAs::fp8, "FP8 E4M3", false, bind_fp8, read_fp8_row, nullptr, nullptr},
    {StoredAs::bytes, "int-quantized", false, bind_bytes, nullptr, read_byte_codes, read_byte_zero_points},
    {StoredAs::packed, "pack-quantized", false, bind_packed, nullptr, read_packed_codes, read_packed_zero_points},
    {StoredAs::gptq, "GPTQ", true, bind_gptq, nullptr, read_gptq_codes, read_gptq_zero_points},
    {StoredAs::awq, "AWQ", true, bind_awq, nullptr, read_awq_codes, read_awq_zero_points},
    {StoredAs::nvfp4, "NVFP4", false, bind_nvfp4, read_nvfp4_row, nullptr, nullptr},
    {StoredAs::bitnet, "BitNet", false, bind_bitnet, nullptr, read_bitnet_codes, read_bitnet_zero_points},
};

static_assert(std::size(kFormats) == static_cast<size_t>(StoredAs::bitnet) + 1, "one row for each format");

const CodeFormat& format_of(const CodeScheme& scheme) {
  return *std::ranges::find(kFormats, scheme.stored_as, &CodeFormat::stored_as);
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
  if (!scheme) return tensors.bind(".weight", {n, k}, kFloatTypes, &out->weight);
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
  return rows;
}

}  // namespace pinion
