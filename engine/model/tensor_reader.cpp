#include "engine/model/tensor_reader.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/base/math.h"
#include "kernels/bf16.h"
#include "loader/checkpoint/convert.h"

namespace pinion {

std::span<float> TensorReader::new_vector(size_t n) {
  return {model->vectors.emplace_back(std::make_unique<float[]>(n)).get(), n};
}

Error TensorReader::read(const TensorView& tensor, std::span<float>* out) {
  *out = new_vector(static_cast<size_t>(tensor.elements()));
  read_floats(tensor, out->data());
  return all_finite(*out) ? Error{} : error("NaN or infinity in the weights", where(tensor.name));
}

std::span<float> TensorReader::in_order(const RowOrder& order, std::span<float> stored) {
  if (order.is_of_file()) return stored;
  const std::span<float> own = new_vector(order.is_part() ? static_cast<size_t>(order.rows) : stored.size());
  for (size_t i = 0; i < own.size(); ++i) {
    own[i] = stored[static_cast<size_t>(order.stored(static_cast<int64_t>(i)))];
  }
  return own;
}

Error TensorReader::read_bias(const TensorView& tensor, float scale, std::span<float>* out) {
  if (Error e = read(tensor, out)) return e;
  for (float& value : *out) value *= scale;
  return {};
}

Error TensorReader::read_vector(const std::string& name, std::initializer_list<int64_t> shape, float offset,
                                std::span<float>* out) {
  TensorView tensor;
  if (Error e = bind(name, shape, &tensor)) return e;
  if (Error e = read(tensor, out)) return e;
  for (float& value : *out) value += offset;
  return {};
}

// [channels, 1, taps] -> [taps][channels]
Error TensorReader::read_convolution(const VectorTensor& spec, std::span<float>* out) {
  const Recurrence& d = model->config.recurrence;
  TensorView tensor;
  if (Error e = bind(spec.name, {d.channels(), 1, d.taps}, &tensor)) return e;
  if (Error e = read(tensor, out)) return e;
  const std::vector<float> stored(out->begin(), out->end());
  const auto channels = static_cast<size_t>(d.channels()), taps = static_cast<size_t>(d.taps);
  for (size_t i = 0; i < stored.size(); ++i) {
    const float scale = d.input_scale(static_cast<int64_t>(i / taps));
    (*out)[i % taps * channels + i / taps] = scale * stored[i];
  }
  return {};
}

// The file holds the logarithm.
Error TensorReader::read_decay_rate(const VectorTensor& spec, std::span<float>* out) {
  if (Error e = read_vector(spec.name, {spec.n}, spec.offset, out)) return e;
  for (float& value : *out) value = static_cast<float>(portable_exp(static_cast<double>(value)));
  return all_finite(*out) ? Error{} : error("out of range", where(spec.name), "logarithms of floats");
}

// The file holds what softplus makes these of: log(1 + e^x), without an exponential that overflows.
Error TensorReader::read_xielu_alpha(const VectorTensor& spec, std::span<float>* out) {
  if (Error e = read_vector(spec.name, {spec.n}, spec.offset, out)) return e;
  for (float& value : *out) {
    const double x{value};
    value = static_cast<float>(std::max(x, 0.0) + portable_log(1.0 + portable_exp(-std::abs(x))));
  }
  return {};
}

Error TensorReader::read_number(const VectorTensor& spec, std::span<float>* out) {
  TensorView tensor;
  if (Error e = bind(spec.name, {}, &tensor)) return e;
  return read(tensor, out);
}

// Weights of every head: rows of one tensor, or a tensor for each.
Error TensorReader::read_head_rows(const VectorTensor& spec, std::span<float>* out) {
  const int64_t dims = model->config.head_dim, heads = spec.n / dims;
  if (spec.name.find("{}") == std::string::npos) return read_vector(spec.name, {heads, dims}, spec.offset, out);
  *out = new_vector(static_cast<size_t>(spec.n));
  for (int64_t head = 0; head < heads; ++head) {
    std::span<float> own;
    if (Error e = read_vector(module_name(spec.name, head), {dims}, spec.offset, &own)) return e;
    std::ranges::copy(own, out->data() + head * dims);
  }
  return {};
}

// Rounded to bf16, as all matrices are.
Error TensorReader::read_small_matrix(const VectorTensor& spec, std::span<float>* out) {
  if (Error e = read_vector(spec.name, {spec.rows, spec.n / spec.rows}, spec.offset, out)) return e;
  for (float& value : *out) value = to_float(to_bf16(value));
  return {};
}

// The file has it, too, where it is not used.
Error TensorReader::read_altup_scale(const VectorTensor& spec, std::span<float>* out) {
  if (Error e = read_vector(spec.name, {spec.n}, spec.offset, out)) return e;
  if (!model->config.altup.scales) std::ranges::fill(*out, 1.0f);
  return {};
}

Error TensorReader::read_role(const VectorTensor& spec, std::span<float>* out) {
  if (spec.has_head_rows) return read_head_rows(spec, out);
  if (spec.rows > 0) return read_small_matrix(spec, out);
  switch (spec.role) {
    case VectorRole::state_conv:
      return read_convolution(spec, out);
    case VectorRole::state_rate:
      return read_decay_rate(spec, out);
    case VectorRole::xielu_alpha_p:
    case VectorRole::xielu_alpha_n:
      return read_xielu_alpha(spec, out);
    case VectorRole::xielu_beta:
    case VectorRole::xielu_eps:
      return read_number(spec, out);
    case VectorRole::altup_scale:
      return read_altup_scale(spec, out);
    default:
      return read_vector(spec.name, {spec.n}, spec.offset, out);
  }
}

Error TensorReader::read_layer_vector(const VectorTensor& spec, Layer* layer) {
  std::span<float> values;
  if (Error e = read_role(spec, &values)) return e;
  vector_of(*layer, spec.role) = in_order(spec.order, values).data();
  return {};
}

Error TensorReader::read_norm(const std::string& module, int64_t n, Norm* out) {
  std::span<float> weight, bias;
  if (Error e = read_vector(module + ".weight", {n}, model->config.norm_offset, &weight)) return e;
  out->weight = weight.data();
  if (!model->config.norm_bias) return {};
  if (Error e = read_vector(module + ".bias", {n}, 0.0f, &bias)) return e;
  out->bias = bias.data();
  return {};
}

}  // namespace pinion
