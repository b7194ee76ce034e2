// Reads a checkpoint's vectors and small matrices into floats that the model owns.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "engine/model/model.h"
#include "kernels/base/math.h"
#include "kernels/half.h"
#include "loader/checkpoint/number_formats.h"

namespace pinion {

struct VectorReader {
  Model* model;
  std::set<std::string> bound = {};  // names of all tensors that were read

  Error bind(const std::string& name, std::initializer_list<int64_t> shape, TensorView* out) {
    bound.insert(name);
    return model->checkpoint.bind(name, shape, out);
  }
  std::string where(const std::string& name) const { return model->checkpoint.where(name); }

  std::span<float> new_vector(int64_t n) {
    return {model->vectors.emplace_back(std::make_unique<float[]>(n)).get(), static_cast<size_t>(n)};
  }

  Error read(const TensorView& tensor, std::span<float>* out) {
    *out = new_vector(tensor.elements());
    read_floats(tensor, out->data());
    return all_finite(*out) ? Error{} : error("NaN or infinity in the weights", where(tensor.name));
  }

  Error read_bias(const TensorView& tensor, float scale, std::span<float>* out) {
    if (Error e = read(tensor, out)) return e;
    for (float& value : *out) value *= scale;
    return {};
  }

  Error read_vector(const std::string& name, std::initializer_list<int64_t> shape, float offset,
                    std::span<float>* out) {
    TensorView tensor;
    if (Error e = bind(name, shape, &tensor)) return e;
    if (Error e = read(tensor, out)) return e;
    for (float& value : *out) value += offset;
    return {};
  }

  Error read_norm(const std::string& module, int64_t n, Norm* out) {
    std::span<float> weight, bias;
    if (Error e = read_vector(module + ".weight", {n}, model->config.norm_offset, &weight)) return e;
    out->weight = weight.data();
    if (!model->config.norm_bias) return {};
    if (Error e = read_vector(module + ".bias", {n}, 0.0f, &bias)) return e;
    out->bias = bias.data();
    return {};
  }

  // Reorders numbers that the file stores one per row of a tensor to the order of a matrix's rows.
  std::span<float> in_order(const RowOrder& order, std::span<float> stored) {
    if (order.is_identity()) return stored;
    const std::span<float> ordered = new_vector(order.selects_rows() ? order.rows : std::ssize(stored));
    for (int64_t i = 0; i < std::ssize(ordered); ++i) ordered[i] = stored[order.file_row(i)];
    return ordered;
  }

  // [channels, 1, taps] -> [taps][channels]
  Error read_convolution(const VectorTensor& spec, std::span<float>* out) {
    const Recurrence& d = model->config.recurrence;
    TensorView tensor;
    if (Error e = bind(spec.name, {d.channels(), 1, d.taps}, &tensor)) return e;
    if (Error e = read(tensor, out)) return e;
    const std::vector<float> stored(out->begin(), out->end());
    for (int64_t i = 0; i < std::ssize(stored); ++i) {
      (*out)[i % d.taps * d.channels() + i / d.taps] = d.input_scale(i / d.taps) * stored[i];
    }
    return {};
  }

  // The file has the logarithm of the rate.
  Error read_decay_rate(const VectorTensor& spec, std::span<float>* out) {
    if (Error e = read_vector(spec.name, {spec.n}, spec.offset, out)) return e;
    for (float& value : *out) value = static_cast<float>(portable_exp(value));
    return all_finite(*out) ? Error{} : error("out of range", where(spec.name), "logarithms of floats");
  }

  // The file has x of alpha = softplus(x) = log(1 + e^x), which is computed here by an exponential that cannot
  // overflow.
  Error read_xielu_alpha(const VectorTensor& spec, std::span<float>* out) {
    if (Error e = read_vector(spec.name, {spec.n}, spec.offset, out)) return e;
    for (float& value : *out) {
      const double x{value};
      value = static_cast<float>(std::max(x, 0.0) + portable_log(1.0 + portable_exp(-std::abs(x))));
    }
    return {};
  }

  Error read_number(const VectorTensor& spec, std::span<float>* out) {
    TensorView tensor;
    if (Error e = bind(spec.name, {}, &tensor)) return e;
    return read(tensor, out);
  }

  // Weights of every head: the rows of one tensor, or one tensor per head.
  Error read_head_rows(const VectorTensor& spec, std::span<float>* out) {
    const int64_t dims = model->config.head_dim, heads = spec.n / dims;
    if (spec.name.find("{}") == std::string::npos) return read_vector(spec.name, {heads, dims}, spec.offset, out);
    *out = new_vector(spec.n);
    for (int64_t head = 0; head < heads; ++head) {
      std::span<float> row;
      if (Error e = read_vector(module_name(spec.name, head), {dims}, spec.offset, &row)) return e;
      std::ranges::copy(row, out->data() + head * dims);
    }
    return {};
  }

  // A small matrix, rounded to bf16 like all matrices.
  Error read_small_matrix(const VectorTensor& spec, std::span<float>* out) {
    if (Error e = read_vector(spec.name, {spec.rows, spec.n / spec.rows}, spec.offset, out)) return e;
    for (float& value : *out) value = to_float(to_bf16(value));
    return {};
  }

  // The scale is 1 if the model does not use it; files have the tensor all the same.
  Error read_altup_scale(const VectorTensor& spec, std::span<float>* out) {
    if (Error e = read_vector(spec.name, {spec.n}, spec.offset, out)) return e;
    if (!model->config.altup.scales) std::ranges::fill(*out, 1.0f);
    return {};
  }

  Error read_role(const VectorTensor& spec, std::span<float>* out) {
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

  Error read_layer_vector(const VectorTensor& spec, Layer* layer) {
    std::span<float> values;
    if (Error e = read_role(spec, &values)) return e;
    vector_of(*layer, spec.role) = in_order(spec.order, values).data();
    return {};
  }
};

}  // namespace pinion
