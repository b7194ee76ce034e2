#include "engine/model/bind.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "engine/model/head_balance.h"
#include "engine/model/tensor_reader.h"
#include "engine/model/weight_format.h"
#include "loader/checkpoint/fused_experts.h"
#include "loader/quant/stored_weights.h"

namespace pinion {
namespace {

struct Binder : TensorReader {
  const LoadOptions& options;
  std::vector<PackJob>* jobs;
  std::set<std::string> matrices = {};  // by the names that patterns of what to keep are compared with

  // A tensor that nothing asked for means that the model computes something else than its config says.
  Error nothing_left() const {
    std::vector<std::string_view> left;
    for (const TensorView& tensor : model->checkpoint.tensors) {
      const bool copy_of_embedding = model->config.tied_head && tensor.name == model->config.names.head + ".weight";
      const bool rope_table = tensor.name.ends_with(".rotary_emb.inv_freq");  // old files hold it; config.json says it
      const bool of_model = options.mtp && !tensor.name.starts_with(kMtpPrefix);
      if (bound.contains(tensor.name) || copy_of_embedding || rope_table || of_model) continue;
      left.push_back(tensor.name);
    }
    if (left.empty()) return {};
    const std::string others = left.size() > 1 ? ", and " + std::to_string(left.size() - 1) + " more" : "";
    return error("tensor that a " + model->config.family + " model of this config.json does not have",
                 where(std::string(left[0])) + others);
  }

  // --- matrices

  void tell_conversion(const std::string& module, const std::string& from, const Packing& to) {
    const auto same = std::ranges::find_if(model->conversions, [&](const Conversion& one) {
      return one.from == from && one.requantised_because == to.requantised_because && one.to == to.format;
    });
    if (same == model->conversions.end()) {
      model->conversions.push_back({from, to.requantised_because, to.format, module, 1});
    } else {
      ++same->modules;
    }
  }

  void add_job(PackJob job, const MatrixTensor& spec) {
    if (spec.expert != kNoExpert) model->expert_bytes += packed_bytes({&job, 1});
    jobs->push_back(std::move(job));
    if (spec.role != MatrixRole::up || !is_read_with_gate(model->config, spec)) return;
    PackJob &gate = (*jobs)[jobs->size() - 2], &up = jobs->back();  // the list has gate right before up
    gate.interleaved = up.interleaved = interleave_of(gate, up);
  }

  // Files with codes often leave the MTP layer as it was, and do not say so.
  std::optional<Quantization> quantization_of(const std::string& module) const {
    const TensorView* weight = options.mtp ? model->checkpoint.find(module + ".weight") : nullptr;
    return weight && is_float(weight->dtype) ? std::nullopt : model->config.quantization;
  }

  // Of matrices that share a tensor; nothing where they have none.
  Error bind_bias(std::span<const MatrixTensor> parts, int64_t rows, std::span<float>* out) {
    if (!parts.front().has_bias) return {};
    TensorView view;
    if (Error e = bind(parts.front().module() + ".bias", {rows}, &view)) return e;
    if (Error e = read_bias(view, 1.0f, out)) return e;
    int64_t first = 0;
    for (const MatrixTensor& part : parts) {
      for (float& value : out->subspan(static_cast<size_t>(first), static_cast<size_t>(part.n)))
        value *= part.bias_scale;
      first += part.n;
    }
    return {};
  }

  // Binds one tensor and splits its rows among `parts`: one matrix, or several that are fused.
  Error bind_matrix(std::span<const MatrixTensor> parts) {
    const MatrixTensor& one = parts.front();
    const std::string module = one.module();
    int64_t rows = 0;
    for (const MatrixTensor& part : parts) rows += part.n;
    LinearWeight found;
    if (Error e = bind_linear(model->checkpoint, quantization_of(module), module, rows, one.k, &found)) return e;
    bound.insert(found.tensors.begin(), found.tensors.end());
    std::span<float> biases;
    if (Error e = bind_bias(parts, rows, &biases)) return e;
    matrices.insert(module + ".weight");
    const Packing packing = one.is_exact ? Packing{} : packing_of(options, model->config, module, found);
    if (!found.stored_as.empty() && !packing.as_stored) tell_conversion(module, found.stored_as, packing);
    int64_t first = 0;
    for (const MatrixTensor& part : parts) {
      add_rows(found, first, packing, part);
      matrix_of(*model, part).alpha = part.alpha;
      if (one.has_bias) {
        const auto stored = biases.subspan(static_cast<size_t>(first), static_cast<size_t>(part.n));
        const auto own = in_order(part.order, part.order.is_part() ? biases : stored);
        Linear& linear = matrix_of(*model, part);
        linear.bias = own.data() + linear.first;
      }
      first += part.n;
    }
    return {};
  }

  // Rows of a tensor from `first` on, as a matrix: those of them that are here.
  void add_rows(const LinearWeight& found, int64_t first, const Packing& packing, const MatrixTensor& part) {
    const RowRange rows = divide(*model, part);
    Matrix* out = &matrix_of(*model, part).weight;
    *out = {.format = packing.format, .k = part.k, .rotation = packing.rotation};
    if (rows.count == 0) return;
    LinearWeight own = part.order.is_part() ? found : rows_of(found, first + rows.first, rows.count);
    PackJob job = {std::move(own.weight), packing.format, out, std::move(own.scale),
                   reader_of(own.coded, packing.as_stored && traits_of(packing.format).bits == 4)};
    job.rotation = packing.rotation;
    job.order = part.order.of_rows(rows.first, rows.count);
    add_job(std::move(job), part);
  }

  // Binds matrices in their order. Neighbours with the same module name share one tensor (fused q/k/v).
  Error bind_matrices(std::span<const MatrixTensor> specs) {
    while (!specs.empty()) {
      const std::string module = specs.front().module();
      const auto other = std::ranges::find_if(specs, [&](const MatrixTensor& one) { return one.module() != module; });
      const auto parts = specs.first(static_cast<size_t>(other - specs.begin()));
      if (Error e = bind_matrix(parts)) return e;
      specs = specs.subspan(parts.size());
    }
    return {};
  }

  // Binds a layer whose experts all lie in one gate_up and one down tensor (gpt-oss).
  Error bind_expert_tensors(int64_t index, std::span<const MatrixTensor> specs) {
    const ModelConfig& c = model->config;
    FusedExperts found;
    if (Error e = bind_fused_experts(model->checkpoint, c, index, &found)) return e;
    std::span<float> gate_up_bias, down_bias;
    if (Error e = read_bias(found.gate_up.bias, 1.0f, &gate_up_bias)) return e;
    split_gate_up(c.experts.inner_size, gate_up_bias);
    if (Error e = read_bias(found.down.bias, c.branch_scale, &down_bias)) return e;
    for (const FusedMatrix* m : {&found.gate_up, &found.down}) {
      for (const TensorView* view : {&m->values, &m->scales, &m->bias}) bound.insert(view->name);
      matrices.insert(m->module + ".weight");
      const Format to = weight_format(options, m->module + ".weight", false);
      const bool keeps_values = m->stored_as.empty() || to == Format::bf16;  // which holds MXFP4's numbers, too
      if (!keeps_values) tell_conversion(m->module, m->stored_as, {.format = to});
    }
    for (const MatrixTensor& spec : specs) {
      const bool is_down = spec.role == MatrixRole::down;
      const FusedMatrix& from = is_down ? found.down : found.gate_up;
      const int64_t parts = is_down ? 1 : 2, part = spec.role == MatrixRole::up ? 1 : 0;
      const RowRange own = divide(*model, spec);
      Linear& out = matrix_of(*model, spec);
      const Format format = weight_format(options, from.module + ".weight", false);
      out.weight = {.format = format, .k = spec.k, .rotation = weight_rotation(options, format, spec.k)};
      out.bias = (is_down ? down_bias : gate_up_bias).data() + (spec.expert * parts + part) * spec.n + own.first;
      if (own.count == 0) continue;
      const SteppedRows rows = {part + own.first * parts, parts, own.count};
      PackJob job = expert_job(from, spec.expert, rows, format, &out.weight);
      job.rotation = out.weight.rotation;
      add_job(std::move(job), spec);
    }
    return {};
  }

  // Binds a layer whose experts' matrices follow one another in one tensor of inputs and one of outputs.
  Error bind_expert_rows(std::span<const MatrixTensor> specs) {
    const int64_t count = model->config.experts.count, inner = model->config.experts.inner_size;
    std::map<std::string, LinearWeight> tensors;
    for (const MatrixTensor& spec : specs) {
      const bool is_down = spec.role == MatrixRole::down;
      const int64_t rows = is_down ? spec.n : 2 * inner, from = spec.role == MatrixRole::up ? inner : 0;
      const std::string module = spec.module();
      const auto [found, is_new] = tensors.try_emplace(module);
      LinearWeight& whole = found->second;
      if (is_new) {
        if (Error e = bind_stacked_experts(model->checkpoint, module, count, rows, spec.k, &whole)) return e;
        bound.insert(whole.tensors.begin(), whole.tensors.end());
        matrices.insert(module + ".weight");
      }
      add_rows(whole, spec.expert * rows + from, packing_of(options, model->config, module, whole), spec);
    }
    return {};
  }

  Error bind_layer(int64_t index) {
    const ModelConfig& c = model->config;
    Layer* out = &model->layers[static_cast<size_t>(index)];
    place_layer(c, index, out);
    for (const VectorTensor& spec : layer_vectors(c, index)) {
      if (Error e = read_layer_vector(spec, out)) return e;
    }
    balance_heads(c, index, &model->layers);
    const std::vector<MatrixTensor> specs = layer_matrices(c, index);
    const bool shared = c.experts.fused || c.experts.stacked;
    const auto first_expert =
        std::ranges::find_if(specs, [&](const MatrixTensor& spec) { return shared && spec.expert != kNoExpert; });
    if (Error e = bind_matrices({specs.begin(), first_expert})) return e;
    const std::span<const MatrixTensor> of_experts(first_expert, specs.end());
    if (of_experts.empty()) return {};
    return c.experts.fused ? bind_expert_tensors(index, of_experts) : bind_expert_rows(of_experts);
  }

  Error bind_head() {
    const MatrixTensor spec = head_matrix(model->config);
    if (!model->config.tied_head) return bind_matrix({&spec, 1});
    std::span<float> bias;
    if (Error e = bind_bias({&spec, 1}, spec.n, &bias)) return e;
    matrices.insert(spec.module() + ".weight");
    LinearWeight embedding;
    embedding.weight = model->embedding;
    add_rows(embedding, 0, packing_of(options, model->config, spec.module(), embedding), spec);
    if (spec.has_bias) model->head.bias = bias.data() + model->head.first;
    return {};
  }

  // What an MTP layer's model begins with, in the place of an embedding.
  Error bind_mtp_input() {
    const ModelConfig& c = model->config;
    const auto is_of_it = [](const TensorView& tensor) { return tensor.name.starts_with(kMtpPrefix); };
    if (std::ranges::none_of(model->checkpoint.tensors, is_of_it)) {
      return error("no tensors of an MTP layer (`--speculate ngram` needs none)", where(std::string(kMtpPrefix) + "*"));
    }
    const MatrixTensor fc = mtp_matrix(c);
    if (Error e = bind_matrix({&fc, 1})) return e;
    if (Error e = read_norm(c.names.mtp_embedding_norm, c.hidden_size, &model->mtp.embedding_norm)) return e;
    return read_norm(c.names.mtp_hidden_norm, c.hidden_size, &model->mtp.hidden_norm);
  }

  Error bind_embedding() {
    const ModelConfig& c = model->config;
    return bind(c.names.embedding + ".weight", {c.vocab_size, c.hidden_size}, &model->embedding);
  }

  // What the layers' own embeddings and several streams have of the model.
  Error bind_streams() {
    const ModelConfig& c = model->config;
    model->altup = {std::vector<Linear>(other_streams(c)), std::vector<Linear>(other_streams(c))};
    if (c.layer_input.size > 0) {
      const int64_t size = c.layer_input.size;
      TensorView& rows = model->layer_inputs.embedding;
      if (Error e = bind(c.names.layer_embedding + ".weight", {c.layer_input.vocab_size, c.layers * size}, &rows)) {
        return e;
      }
      rows.shape = {c.layer_input.vocab_size * c.layers, size};
      if (Error e = read_norm(c.names.layer_input_norm, size, &model->layer_inputs.norm)) return e;
    }
    return bind_matrices(stream_matrices(c));
  }

  Error bind_all() {
    const ModelConfig& c = model->config;
    if (Error e = options.mtp ? bind_mtp_input() : bind_embedding()) return e;
    model->layers.resize(static_cast<size_t>(c.layers));
    for (int64_t i = 0; i < c.layers; ++i) {
      if (Error e = bind_layer(i)) return e;
    }
    if (Error e = read_norm(c.names.final_norm, c.hidden_size, &model->final_norm)) return e;
    if (!options.mtp) {
      if (Error e = bind_streams()) return e;
      if (Error e = bind_head()) return e;
      if (Error e = check_keep(options, matrices, model->checkpoint.folder)) return e;
    }
    return nothing_left();
  }
};

}  // namespace

Error bind_tensors(const LoadOptions& options, Model* model, std::vector<PackJob>* jobs) {
  return Binder{{model}, options, jobs}.bind_all();
}

}  // namespace pinion
