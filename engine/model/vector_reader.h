// Reads a checkpoint's vectors and small matrices into floats that the model owns.
#pragma once

#include <cmath>

#include "engine/model/model.h"
#include "kernels/base/math.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/number_formats.h"

namespace pinion {

struct VectorReader {
  Model* model;
  std::set<std::string> bound = {};  // names of all tensors that were read

  Error bind(const std::string& name, std::initializer_list<int64_t> shape, TensorView* out) {
    bound.insert(name);
    if (Error e = model->checkpoint.bind(name, shape, out)) return e;
    if (!out->data) return error("no such tensor in the packed model", where(name));
    model->unpacked[name] = *out;
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

  Error read_norm(std::string_view key, int64_t n, Vector* out) {
    const std::string& module = model->config.name(key);
    if (Error e = read_vector({{}, module + ".weight", n, VectorForm::norm}, out)) return e;
    if (!model->config.norm_bias) return {};
    return read_vector({.role = {}, .name = module + ".bias", .n = n, .is_bias = true}, out);
  }

  // Reorders numbers that the file stores one per row of a tensor to the order of a matrix's rows.
  std::span<float> in_order(const RowOrder& order, std::span<float> stored) {
    if (order.is_identity()) return stored;
    const std::span<float> ordered = new_vector(order.selects_rows() ? order.rows : std::ssize(stored));
    for (int64_t i = 0; i < std::ssize(ordered); ++i) ordered[i] = stored[order.file_row(i)];
    return ordered;
  }

  Error bind_vector(const VectorTensor& spec, TensorView* out) {
    const Recurrence& r = model->config.recurrence;
    if (spec.form == VectorForm::scalar) return bind(spec.name, {}, out);
    const bool has_rows = spec.form == VectorForm::head_norm && model->config.qk_norm == QkNorm::layer_norm_heads;
    if (spec.form == VectorForm::rates) return bind(spec.name, {r.value_width(), r.key_dim}, out);
    if (spec.form == VectorForm::blocks) return bind(spec.name, {r.value_heads, r.value_dim, r.value_dim}, out);
    if (has_rows || spec.form == VectorForm::matrix) return bind(spec.name, {spec.rows, spec.n / spec.rows}, out);
    const TensorView* found = model->checkpoint.find(spec.name);
    // ERNIE's corrections of the router have two dimensions, Kimi's rates four.
    if (found && found->shape == std::vector<int64_t>{1, spec.n}) return bind(spec.name, {1, spec.n}, out);
    return found && found->shape.size() == 4 ? bind(spec.name, {1, 1, spec.n, 1}, out) : bind(spec.name, {spec.n}, out);
  }

  // The weight for a number of the file.
  float weight_of(VectorForm form, float value) const {
    using enum VectorForm;
    const double x{value};
    if (form == rms_norm || form == norm || form == head_norm) return value + model->config.norm_offset;
    if (form == logarithm || form == rates) {
      return model->config.recurrence.negative_rates ? -value : static_cast<float>(portable_exp(x));
    }
    if (form == softplus) {  // by an exponential that cannot overflow
      return static_cast<float>(std::max(x, 0.0) + portable_log(1.0 + portable_exp(-std::abs(x))));
    }
    if (form == matrix || form == blocks) return to_float(to_bf16(value));
    return form == altup_scale && !model->config.altup.scales ? 1.0f : value;
  }

  // [channels, key_dim] -> [heads][value_dim / 16, rounded up][key_dim][16]
  void order_rates(const Recurrence& r, std::span<float>* rates) {
    const std::span<float> ordered = new_vector(r.value_heads * r.head_floats());
    for (int64_t i = 0; i < std::ssize(*rates); ++i) {
      const int64_t channel = i / r.key_dim, j = channel % r.value_dim;
      ordered[channel / r.value_dim * r.head_floats() + (j / 16 * r.key_dim + i % r.key_dim) * 16 + j % 16] =
          (*rates)[i];
    }
    *rates = ordered;
  }

  // [channels, 1, taps] -> [taps][channels]. If the name contains "{}", q, k and v have a tensor each.
  Error read_convolution(const VectorTensor& spec, std::span<float>* out) {
    const Recurrence& r = model->config.recurrence;
    const bool is_whole = spec.name.find("{}") == spec.name.npos;
    *out = new_vector(spec.n);
    for (int64_t first = 0, part = 0; first < r.channels(); ++part) {
      const int64_t width = is_whole ? r.channels() : part < 2 ? r.key_width() : r.value_width();
      const std::string name = replaced(spec.name, "{}", std::string_view("qkv").substr(part, 1));
      TensorView tensor;
      std::span<float> stored;
      if (Error e = bind(name, {width, 1, r.taps}, &tensor)) return e;
      if (Error e = read(tensor, &stored)) return e;
      for (int64_t i = 0; i < std::ssize(stored); ++i) {
        const int64_t channel = first + i / r.taps;
        (*out)[i % r.taps * r.channels() + channel] = r.input_scale(channel) * stored[i];
      }
      first += width;
    }
    return {};
  }

  Error read_form(const VectorTensor& spec, std::span<float>* out) {
    if (spec.form == VectorForm::convolution) return read_convolution(spec, out);
    if (spec.name.find("{}") != spec.name.npos) {  // a tensor for each head
      *out = new_vector(spec.n);
      const int64_t dims = spec.n / spec.rows;
      for (int64_t head = 0; head < spec.rows; ++head) {
        std::span<float> row;
        if (Error e = read_form({spec.role, module_name(spec.name, head), dims, VectorForm::norm}, &row)) return e;
        std::ranges::copy(row, out->data() + head * dims);
      }
      return {};
    }
    TensorView tensor;
    if (Error e = bind_vector(spec, &tensor)) return e;
    if (Error e = read(tensor, out)) return e;
    for (float& value : *out) value = weight_of(spec.form, value);
    if (!all_finite(*out)) return error("out of range", where(spec.name), "logarithms of floats");
    if (spec.form == VectorForm::rates) order_rates(model->config.recurrence, out);
    return {};
  }

  Error read_vector(const VectorTensor& spec, Vector* out) {
    std::span<float> values;
    if (Error e = read_form(spec, &values)) return e;
    (spec.is_bias ? out->bias : out->weight) = in_order(spec.order, values).data();
    return {};
  }
};

}  // namespace pinion
