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
    if (Error e = model->checkpoint.bind(name, shape, out)) return e;
    return keep(*out);
  }
  Error keep(const TensorView& tensor) {
    if (!tensor.data) return error("no such tensor in the packed model", where(tensor.name));
    model->unpacked[tensor.name] = tensor;
    return {};
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

  Error read_vector(const std::string& name, std::initializer_list<int64_t> shape, float offset, std::span<float>* to) {
    TensorView tensor;
    if (Error e = bind(name, shape, &tensor)) return e;
    if (Error e = read(tensor, to)) return e;
    for (float& value : *to) value += offset;
    return {};
  }

  Error read_norm(std::string_view key, int64_t n, Vector* out) {
    const std::string& module = model->config.name(key);
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

  // Weights of every head: the rows of one tensor, or one tensor per head.
  Error read_head_rows(const VectorTensor& spec, std::span<float>* out) {
    const int64_t heads = spec.rows, dims = spec.n / heads;
    const float offset = model->config.norm_offset;
    if (spec.name.find("{}") == std::string::npos) return read_vector(spec.name, {heads, dims}, offset, out);
    *out = new_vector(spec.n);
    for (int64_t head = 0; head < heads; ++head) {
      std::span<float> row;
      if (Error e = read_vector(module_name(spec.name, head), {dims}, offset, &row)) return e;
      std::ranges::copy(row, out->data() + head * dims);
    }
    return {};
  }

  Error bind_vector(const VectorTensor& spec, TensorView* out) {
    const Recurrence& r = model->config.recurrence;
    if (spec.form == VectorForm::convolution) return bind(spec.name, {r.channels(), 1, r.taps}, out);
    if (spec.form == VectorForm::scalar) return bind(spec.name, {}, out);
    if (spec.form == VectorForm::matrix) return bind(spec.name, {spec.rows, spec.n / spec.rows}, out);
    const TensorView* found = model->checkpoint.find(spec.name);
    // ERNIE's corrections of the router have two dimensions.
    if (found && found->shape == std::vector<int64_t>{1, spec.n}) return bind(spec.name, {1, spec.n}, out);
    return bind(spec.name, {spec.n}, out);
  }

  // The weight for a number of the file.
  float weight_of(VectorForm form, float value) const {
    using enum VectorForm;
    const double x{value};
    if (form == rms_norm || form == norm || form == head_norm) return value + model->config.norm_offset;
    if (form == logarithm) {
      return model->config.recurrence.negative_rates ? -value : static_cast<float>(portable_exp(x));
    }
    if (form == softplus) {  // by an exponential that cannot overflow
      return static_cast<float>(std::max(x, 0.0) + portable_log(1.0 + portable_exp(-std::abs(x))));
    }
    if (form == matrix) return to_float(to_bf16(value));
    return form == altup_scale && !model->config.altup.scales ? 1.0f : value;
  }

  Error read_form(const VectorTensor& spec, std::span<float>* out) {
    const bool has_head_rows = model->config.qk_norm == QkNorm::layer_norm_heads;
    if (spec.form == VectorForm::head_norm && has_head_rows) return read_head_rows(spec, out);
    TensorView tensor;
    if (Error e = bind_vector(spec, &tensor)) return e;
    if (Error e = read(tensor, out)) return e;
    if (spec.form != VectorForm::convolution) {
      for (float& value : *out) value = weight_of(spec.form, value);
      return all_finite(*out) ? Error{} : error("out of range", where(spec.name), "logarithms of floats");
    }
    const Recurrence& r = model->config.recurrence;  // [channels, 1, taps] -> [taps][channels]
    const std::vector<float> stored(out->begin(), out->end());
    for (int64_t i = 0; i < std::ssize(stored); ++i) {
      (*out)[i % r.taps * r.channels() + i / r.taps] = r.input_scale(i / r.taps) * stored[i];
    }
    return {};
  }

  Error read_layer_vector(const VectorTensor& spec, Layer* layer) {
    std::span<float> values;
    if (Error e = read_form(spec, &values)) return e;
    Vector& vector = (*layer)[spec.role];
    (spec.is_bias ? vector.bias : vector.weight) = in_order(spec.order, values).data();
    return {};
  }
};

}  // namespace pinion
