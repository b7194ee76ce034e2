#include "engine/model/bind.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "engine/model/weight_format.h"
#include "kernels/math.h"
#include "loader/checkpoint/convert.h"
#include "loader/checkpoint/fused_experts.h"
#include "loader/quant/stored_weights.h"

namespace pinion {
namespace {

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

struct Binder {
  const LoadOptions& options;
  Model* model;
  std::vector<PackJob>* jobs;
  std::set<std::string> bound;  // tensors by name

  Error bind(const std::string& name, std::initializer_list<int64_t> shape, TensorView* out) {
    bound.insert(name);
    return model->checkpoint.bind(name, shape, out);
  }

  std::string where(const std::string& name) const { return model->checkpoint.folder + ": " + name; }

  // A tensor that nothing asked for means that the model computes something else than its config says.
  Error nothing_left() const {
    std::vector<std::string_view> left;
    for (const TensorView& tensor : model->checkpoint.tensors) {
      const bool copy_of_embedding = model->config.tied_head && tensor.name == model->config.names.head + ".weight";
      const bool rope_table = tensor.name.ends_with(".rotary_emb.inv_freq");  // old files hold it; config.json says it
      if (!bound.contains(tensor.name) && !copy_of_embedding && !rope_table) left.push_back(tensor.name);
    }
    if (left.empty()) return {};
    const std::string others = left.size() > 1 ? ", and " + std::to_string(left.size() - 1) + " more" : "";
    return error("tensor that a " + model->config.family + " model of this config.json does not have",
                 where(std::string(left[0]) + others));
  }

  // --- vectors

  // The model's copy of a tensor's numbers.
  Error read(const TensorView& tensor, std::span<float>* out) {
    const auto n = static_cast<size_t>(tensor.elements());
    *out = {model->vectors.emplace_back(std::make_unique<float[]>(n)).get(), n};
    read_floats(tensor, out->data());
    return all_finite(*out) ? Error{} : error("NaN or infinity in the weights", where(tensor.name));
  }

  Error bias(const TensorView& tensor, float scale, std::span<float>* out) {
    if (Error e = read(tensor, out)) return e;
    for (float& value : *out) value *= scale;
    return {};
  }

  Error norm(const VectorTensor& spec, const float** out) {
    TensorView tensor;
    std::span<float> values;
    if (Error e = bind(spec.name, {spec.n}, &tensor)) return e;
    if (Error e = read(tensor, &values)) return e;
    for (float& value : values) value += spec.offset;
    *out = values.data();
    return {};
  }

  // [channels, 1, taps] -> [taps][channels]
  Error convolution(const VectorTensor& spec, const float** out) {
    const GatedDelta& d = model->config.delta;
    TensorView tensor;
    std::span<float> values;
    if (Error e = bind(spec.name, {d.channels(), 1, d.taps}, &tensor)) return e;
    if (Error e = read(tensor, &values)) return e;
    const std::vector<float> stored(values.begin(), values.end());
    const auto channels = static_cast<size_t>(d.channels()), taps = static_cast<size_t>(d.taps);
    for (size_t i = 0; i < stored.size(); ++i) values[i % taps * channels + i / taps] = stored[i];
    *out = values.data();
    return {};
  }

  // The file holds the logarithm.
  Error decay_rate(const VectorTensor& spec, const float** out) {
    if (Error e = norm(spec, out)) return e;
    const std::span<float> rate(model->vectors.back().get(), static_cast<size_t>(spec.n));
    for (float& value : rate) value = static_cast<float>(portable_exp(static_cast<double>(value)));
    return all_finite(rate) ? Error{} : error("out of range", where(spec.name), "logarithms of floats");
  }

  Error vector(const VectorTensor& spec, Layer* layer) {
    const float** out = &vector_of(*layer, spec.role);
    if (spec.role == VectorRole::delta_conv) return convolution(spec, out);
    if (spec.role == VectorRole::delta_rate) return decay_rate(spec, out);
    return norm(spec, out);
  }

  // --- matrices

  void tell_conversion(const std::string& module, const std::string& from, const Packing& to) {
    const auto same = std::ranges::find_if(model->conversions, [&](const Conversion& one) {
      return one.from == from && one.why_not == to.why_not && one.to == to.format;
    });
    if (same == model->conversions.end()) {
      model->conversions.push_back({from, to.why_not, to.format, module, 1});
    } else {
      ++same->modules;
    }
  }

  void add_job(PackJob job, const MatrixTensor& spec) {
    if (spec.expert != kNoExpert) model->expert_bytes += packed_bytes({&job, 1});
    jobs->push_back(std::move(job));
    if (spec.role != MatrixRole::up) return;
    PackJob &gate = (*jobs)[jobs->size() - 2], &up = jobs->back();
    gate.interleaved = up.interleaved = interleave_of(gate, up);
  }

  // A tensor that is several matrices, one below the other.
  Error tensor(std::span<const MatrixTensor> parts) {
    const MatrixTensor& one = parts.front();
    const std::string module = one.module();
    int64_t rows = 0;
    for (const MatrixTensor& part : parts) rows += part.n;
    LinearWeight found;
    if (Error e = bind_linear(model->checkpoint, model->config.quantization, module, rows, one.k, &found)) return e;
    bound.insert(found.tensors.begin(), found.tensors.end());
    std::span<float> biases;
    if (one.has_bias) {
      TensorView view;
      if (Error e = bind(module + ".bias", {rows}, &view)) return e;
      if (Error e = bias(view, one.bias_scale, &biases)) return e;
    }
    const Packing packing = one.is_exact ? Packing{} : packing_of(options, model->config, module, found);
    if (!found.stored_as.empty() && !packing.as_stored) tell_conversion(module, found.stored_as, packing);
    int64_t first = 0;
    for (const MatrixTensor& part : parts) {
      Linear& out = matrix_of(*model, part);
      LinearWeight own = rows_of(found, first, part.n);
      PackJob job = {std::move(own.weight), packing.format, &out.weight, std::move(own.scale),
                     reader_of(own.coded, packing.as_stored)};
      job.rotation = packing.rotation;
      add_job(std::move(job), part);
      if (one.has_bias) out.bias = biases.data() + first;
      first += part.n;
    }
    return {};
  }

  // Matrices whose neighbours of one name are one tensor.
  Error tensors(std::span<const MatrixTensor> specs) {
    while (!specs.empty()) {
      const std::string module = specs.front().module();
      const auto other = std::ranges::find_if(specs, [&](const MatrixTensor& one) { return one.module() != module; });
      const auto parts = specs.first(static_cast<size_t>(other - specs.begin()));
      if (Error e = tensor(parts)) return e;
      specs = specs.subspan(parts.size());
    }
    return {};
  }

  // All experts of a layer that share their tensors.
  Error fused_experts(int64_t index, std::span<const MatrixTensor> specs) {
    const ModelConfig& c = model->config;
    FusedExperts found;
    if (Error e = bind_fused_experts(model->checkpoint, c, index, &found)) return e;
    std::span<float> gate_up_bias, down_bias;
    if (Error e = bias(found.gate_up.bias, 1.0f, &gate_up_bias)) return e;
    split_gate_up(c.experts.inner_size, gate_up_bias);
    if (Error e = bias(found.down.bias, c.branch_scale, &down_bias)) return e;
    for (const FusedMatrix* m : {&found.gate_up, &found.down}) {
      for (const TensorView* view : {&m->values, &m->scales, &m->bias}) bound.insert(view->name);
      const Format to = weight_format(options, m->module + ".weight", false);
      const bool is_exact = m->stored_as.empty() || to == Format::bf16;  // which holds MXFP4's numbers, too
      if (!is_exact) tell_conversion(m->module, m->stored_as, {.format = to});
    }
    for (const MatrixTensor& spec : specs) {
      const bool is_down = spec.role == MatrixRole::down;
      const FusedMatrix& from = is_down ? found.down : found.gate_up;
      const int64_t parts = is_down ? 1 : 2, part = spec.role == MatrixRole::up ? 1 : 0;
      Linear& out = matrix_of(*model, spec);
      const Format format = weight_format(options, from.module + ".weight", false);
      PackJob job = expert_job(from, spec.expert, part, parts, format, &out.weight);
      job.rotation = weight_rotation(options, format, spec.k);
      add_job(std::move(job), spec);
      out.bias = (is_down ? down_bias : gate_up_bias).data() + (spec.expert * parts + part) * spec.n;
    }
    return {};
  }

  Error layer(int64_t index) {
    const ModelConfig& c = model->config;
    Layer* out = &model->layers[static_cast<size_t>(index)];
    place_layer(c, index, out);
    for (const VectorTensor& spec : layer_vectors(c, index)) {
      if (Error e = vector(spec, out)) return e;
    }
    const std::vector<MatrixTensor> specs = layer_matrices(c, index);
    const bool fused = c.has_experts(index) && c.experts.fused;
    const auto first_expert =
        std::ranges::find_if(specs, [&](const MatrixTensor& spec) { return fused && spec.expert != kNoExpert; });
    if (Error e = tensors({specs.begin(), first_expert})) return e;
    return fused ? fused_experts(index, {first_expert, specs.end()}) : Error{};
  }

  Error head() {
    const MatrixTensor spec = head_matrix(model->config);
    if (!model->config.tied_head) return tensor({&spec, 1});
    PackJob job = {model->embedding, weight_format(options, spec.module() + ".weight", true), &model->head.weight};
    job.rotation = weight_rotation(options, job.format, spec.k);
    add_job(std::move(job), spec);
    return {};
  }

  Error everything() {
    const ModelConfig& c = model->config;
    if (Error e = bind(c.names.embedding + ".weight", {c.vocab_size, c.hidden_size}, &model->embedding)) return e;
    model->layers.resize(static_cast<size_t>(c.layers));
    for (int64_t i = 0; i < c.layers; ++i) {
      if (Error e = layer(i)) return e;
    }
    if (Error e = norm({{}, c.names.final_norm + ".weight", c.hidden_size, c.norm_offset}, &model->final_norm))
      return e;
    if (Error e = head()) return e;
    return nothing_left();
  }
};

}  // namespace

Error bind_tensors(const LoadOptions& options, Model* model, std::vector<PackJob>* jobs) {
  return Binder{options, model, jobs, {}}.everything();
}

}  // namespace pinion
