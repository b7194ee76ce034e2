#include "loader/quant/stored_weights.h"

#include "loader/quant/code_formats.h"

namespace pinion {
namespace {

// True if the module's tensors are codes.
bool has_codes(const ModuleTensors& tensors, StoredAs stored_as) {
  if (stored_as != StoredAs::fp8 && stored_as != StoredAs::bitnet) return tensors.find(".qweight");
  const TensorView* tensor = tensors.find(".weight");
  return tensor && tensor->dtype == (stored_as == StoredAs::fp8 ? DType::f8_e4m3 : DType::u8);
}

}  // namespace

Error bind_linear(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
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
  rows.coded.first_row += first;
  return rows;
}

}  // namespace pinion
