// Binds the tensors of a checkpoint to the weights of a model, by the list in layer_tensors.h.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "engine/model/vector_reader.h"
#include "kernels/base/text.h"
#include "loader/pack/pack.h"
#include "loader/quant/stored_weights.h"

namespace pinion {
namespace {

// Tables of old files, which the model computes itself, scales of quantised caches, and a packed model's own tensors.
bool is_saved_buffer(std::string_view name) {
  constexpr std::string_view kEndings =
      "rotary_emb.inv_freq rotary_emb.cos_cached rotary_emb.sin_cached rope.freqs .masked_bias _extra_state .k_scale "
      ".v_scale";
  return name.starts_with(kPackedPrefix) ||
         std::ranges::any_of(split(kEndings, ' '), [&](std::string_view ending) { return name.ends_with(ending); });
}

// Makes the jobs that pack the matrices.
struct Binder : VectorReader {
  const LoadOptions& options;
  std::vector<PackJob>* jobs;
  std::vector<std::string_view> packed = {};  // lines of a packed model's layout_text()
  std::set<std::string> matrices = {};        // names of the tensors, for check_keep()

  // Fails for a tensor that was not read: the model may compute something that its config does not describe.
  // Tensors of other modules are only noted.
  Error check_all_bound() const {
    std::vector<std::string_view> left, beside;
    for (const TensorView& tensor : model->checkpoint.tensors) {
      const bool is_outside_mtp = options.mtp && !tensor.name.starts_with(kMtpPrefix);
      if (bound.contains(tensor.name) || is_saved_buffer(tensor.name) || is_outside_mtp) continue;
      const bool is_beside = !options.mtp && is_beside_model(model->config, tensor.name);
      (is_beside ? beside : left).push_back(tensor.name);
    }
    const std::string a_model = "that a " + model->config.family + " model";
    if (!beside.empty()) {
      model->notes.push_back(error("ignored: tensors of modules " + a_model + " does not have",
                                   where(std::string(beside[0])) + and_more(std::ssize(beside) - 1)));
    }
    if (left.empty()) return {};
    return error("tensor " + a_model + " of this config.json does not have",
                 where(std::string(left[0])) + and_more(std::ssize(left) - 1));
  }

  void note_conversion(const std::string& module, const std::string& from, const Packing& to) {
    const auto same = std::ranges::find_if(model->conversions, [&](const Conversion& c) {
      return c.from == from && c.requantised_because == to.requantised_because && c.to == to.format;
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
    if (!spec.is_read_with_gate) return;
    PackJob &gate = (*jobs)[jobs->size() - 2], &up = jobs->back();  // the list has gate directly before up
    gate.interleaved = up.interleaved = interleave_of(gate, up);
  }

  // The quantisation of a module. Quantised files often keep the MTP layer and a copy of the embedding as head in
  // floats without declaring it.
  std::optional<Quantization> quantization_of(const std::string& module) const {
    if (model->checkpoint.is_packed()) return std::nullopt;
    const bool is_tied_head = model->config.tied_head && module == model->config.name("head");
    const TensorView* weight = options.mtp || is_tied_head ? model->checkpoint.find(module + ".weight") : nullptr;
    return weight && is_float(weight->dtype) ? std::nullopt : model->config.quantization;
  }

  // Reads the bias of matrices that share a tensor; leaves `out` empty if they have none.
  Error bind_bias(std::span<const MatrixTensor> fused, int64_t rows, std::span<float>* out) {
    if (!fused.front().has_bias) return {};
    TensorView view;
    if (Error e = bind(fused.front().module() + ".bias", {rows}, &view)) return e;
    if (Error e = read_bias(view, 1.0f, out)) return e;
    int64_t first = 0;
    for (const MatrixTensor& spec : fused) {
      for (float& value : out->subspan(first, spec.n)) value *= spec.bias_scale;
      first += spec.n;
    }
    return {};
  }

  // Binds one tensor and splits its rows among its matrices: one, or several that are fused.
  Error bind_matrix(std::span<const MatrixTensor> fused) {
    const MatrixTensor& first_spec = fused.front();
    const std::string module = first_spec.module();
    int64_t rows = 0;
    for (const MatrixTensor& spec : fused) rows += spec.n;
    LinearWeight found;
    if (Error e = bind_linear(model->checkpoint, quantization_of(module), module, rows, first_spec.k, &found)) return e;
    bound.insert(found.tensors.begin(), found.tensors.end());
    std::span<float> biases;
    if (Error e = bind_bias(fused, rows, &biases)) return e;
    matrices.insert(module + ".weight");
    const Packing packing = first_spec.is_exact ? Packing{} : packing_of(options, model->config, module, found);
    if (!found.stored_as.empty() && !packing.as_stored) note_conversion(module, found.stored_as, packing);
    int64_t first = 0;
    for (const MatrixTensor& spec : fused) {
      add_rows(found, first, packing, spec);
      matrix_of(*model, spec).alpha = spec.alpha;
      if (first_spec.has_bias) {
        const auto stored = spec.order.selects_rows() ? biases : biases.subspan(first, spec.n);
        Linear& linear = matrix_of(*model, spec);
        linear.bias = in_order(spec.order, stored).data() + linear.first;
      }
      first += spec.n;
    }
    return {};
  }

  // The packing of the next matrix, which a packed model records. Beyond its last line the layout differs in any case.
  Packing packed_as(const Packing& chosen, int64_t k) const {
    if (packed.empty()) return chosen;
    const std::string_view line = packed[jobs->size() % packed.size()];
    const bool is_rotated = line.find(", rotated in") != line.npos;
    return {.format = format_named(line.substr(0, line.find(' '))), .rotation = is_rotated ? rotation_of(k) : 1};
  }

  // Adds the job that packs this board's rows of a matrix. first: row of the tensor at which the matrix begins.
  void add_rows(const LinearWeight& found, int64_t first, Packing packing, const MatrixTensor& spec) {
    packing = packed_as(packing, spec.k);
    const RowRange rows = divide(*model, spec);
    Matrix* out = &matrix_of(*model, spec).weight;
    *out = {.format = packing.format, .k = spec.k, .rotation = packing.rotation};
    if (rows.count == 0) return;
    LinearWeight weight = spec.order.selects_rows() ? found : rows_of(found, first + rows.first, rows.count);
    const bool keeps_codes = packing.as_stored && traits_of(packing.format).bits == 4;
    PackJob job = {weight.weight, packing.format, out, std::move(weight.scale),
                   keeps_codes && is_block(weight.weight.dtype) ? code_reader_of(weight.weight)
                                                                : reader_of(weight.coded, keeps_codes)};
    job.rotation = packing.rotation;
    job.order = spec.order.slice(rows.first, rows.count);
    job.source_codes = found.stored_as;
    job.keeps_codes = packing.as_stored;
    job.updates = std::move(weight.updates);
    add_job(std::move(job), spec);
  }

  // Binds matrices in their order. Consecutive ones with the same module name share a tensor (fused q/k/v).
  Error bind_matrices(std::span<const MatrixTensor> specs) {
    while (!specs.empty()) {
      const std::string module = specs.front().module();
      const auto end = std::ranges::find_if(specs, [&](const MatrixTensor& spec) { return spec.module() != module; });
      const auto fused = specs.first(end - specs.begin());
      if (Error e = bind_matrix(fused)) return e;
      specs = specs.subspan(fused.size());
    }
    return {};
  }

  // Binds experts that share one gate_up and one down tensor (gpt-oss).
  Error bind_fused(int64_t layer, std::span<const MatrixTensor> specs) {
    const ModelConfig& c = model->config;
    FusedExperts found;
    if (Error e = bind_fused_experts(model->checkpoint, c, layer, &found)) return e;
    std::span<float> gate_up_bias, down_bias;
    const bool halves = c.experts.halves;
    if (!halves) {
      if (Error e = read_bias(found.gate_up.bias, 1.0f, &gate_up_bias)) return e;
      split_gate_up(c.experts.inner_size, gate_up_bias);
      if (Error e = read_bias(found.down.bias, c.branch_scale, &down_bias)) return e;
    }
    for (const FusedMatrix* m : {&found.gate_up, &found.down}) {
      for (const TensorView* view : {&m->values, &m->scales, &m->bias}) bound.insert(view->name);
      if (Error e = halves ? Error{} : keep(m->bias)) return e;
      matrices.insert(m->module + ".weight");
      const Format to = weight_format(options, m->module + ".weight", false);
      const bool keeps_values = m->stored_as.empty() || to == Format::bf16;  // bf16 represents MXFP4 exactly
      if (!keeps_values) note_conversion(m->module, m->stored_as, {.format = to});
    }
    for (const MatrixTensor& spec : specs) {
      const bool is_down = spec.role == MatrixRole::down;
      const FusedMatrix& from = is_down ? found.down : found.gate_up;
      const int64_t in_tensor = is_down ? 1 : 2, index = spec.role == MatrixRole::up ? 1 : 0;
      const RowRange own = divide(*model, spec);
      Linear& out = matrix_of(*model, spec);
      const Format wanted = weight_format(options, from.module + ".weight", false);
      const Packing to = packed_as({.format = wanted, .rotation = weight_rotation(options, wanted, spec.k)}, spec.k);
      out.weight = {.format = to.format, .k = spec.k, .rotation = to.rotation};
      if (!halves)
        out.bias = (is_down ? down_bias : gate_up_bias).data() + (spec.expert * in_tensor + index) * spec.n + own.first;
      if (own.count == 0) continue;
      const int64_t step = halves ? 1 : in_tensor, first = halves ? index * spec.n : index;
      const SteppedRows rows = {first + own.first * step, step, own.count};
      PackJob job = expert_job(from, spec.expert, rows, to.format, &out.weight);
      job.rotation = out.weight.rotation;
      job.source_codes = from.stored_as;
      add_job(std::move(job), spec);
    }
    return {};
  }

  Error bind_stacked_bias(const MatrixTensor& spec, int64_t experts, int64_t rows, std::span<float>* out) {
    TensorView view;
    if (!spec.has_bias) return {};
    if (Error e = bind(spec.module() + ".bias", {experts, rows}, &view)) return e;
    return read_bias(view, spec.bias_scale, out);
  }

  // Binds experts that are stacked in one tensor for each matrix, or for gate and up together.
  Error bind_stacked(std::span<const MatrixTensor> specs) {
    const int64_t count = model->config.experts.count, inner = model->config.experts.inner_size;
    const bool is_fused = model->config.name("expert_gate") == model->config.name("expert_up");
    std::map<std::string, LinearWeight> tensors;
    std::map<std::string, std::span<float>> biases;
    for (const MatrixTensor& spec : specs) {
      const bool shares = is_fused && spec.role != MatrixRole::down;  // the tensor of gate and up
      const int64_t rows = shares ? 2 * inner : spec.n, from = shares && spec.role == MatrixRole::up ? inner : 0;
      const std::string module = spec.module();
      const auto [found, is_new] = tensors.try_emplace(module);
      LinearWeight& whole = found->second;
      if (is_new) {
        if (Error e = bind_stacked_experts(model->checkpoint, module, count, rows, spec.k, &whole)) return e;
        bound.insert(whole.tensors.begin(), whole.tensors.end());
        matrices.insert(module + ".weight");
        if (Error e = bind_stacked_bias(spec, count, rows, &biases[module])) return e;
      }
      Linear& linear = matrix_of(*model, spec);
      if (spec.has_bias) linear.bias = biases[module].data() + spec.expert * rows + from + divide(*model, spec).first;
      add_rows(whole, spec.expert * rows + from, packing_of(options, model->config, module, whole), spec);
    }
    return {};
  }

  Error bind_layer(int64_t index) {
    const ModelConfig& c = model->config;
    Layer* out = &model->layers[index];
    init_layer(c, index, out);
    for (const VectorTensor& spec : layer_vectors(c, index)) {
      if (Error e = read_layer_vector(spec, out)) return e;
    }
    balance_heads(c, index, &model->layers);
    const std::vector<MatrixTensor> specs = layer_matrices(c, index);
    const bool has_shared_tensors = c.experts.fused || c.experts.stacked;
    const auto first_expert = std::ranges::find_if(
        specs, [&](const MatrixTensor& spec) { return has_shared_tensors && spec.expert != kNoExpert; });
    if (Error e = bind_matrices({specs.begin(), first_expert})) return e;
    const std::span<const MatrixTensor> experts(first_expert, specs.end());
    if (experts.empty()) return {};
    return c.experts.fused ? bind_fused(index, experts) : bind_stacked(experts);
  }

  // The checkpoint has weights of the head, as floats or as codes.
  bool has_head() const {
    if (model->checkpoint.is_packed()) return !model->config.tied_head;
    const std::string prefix = model->config.name("head") + ".";
    return std::ranges::any_of(model->checkpoint.tensors, [&](const TensorView& tensor) {
      return tensor.name.starts_with(prefix) && tensor.name != prefix + "bias";
    });
  }

  // True if the head's tensor repeats the embedding. Compares some rows only: comparing all would read the whole
  // embedding at every start.
  bool head_repeats_embedding() const {
    constexpr int64_t kComparedRows = 64;
    const TensorView* head = model->checkpoint.find(model->config.name("head") + ".weight");
    const TensorView& embedding = model->embedding;
    if (!head || head->data == embedding.data) return head != nullptr;
    if (!is_float(head->dtype) || head->shape != embedding.shape) return false;
    const int64_t rows = embedding.shape[0], width = embedding.shape[1];
    std::vector<float> row(width), embedding_row(width);
    const int64_t compared = std::min(rows, kComparedRows);
    for (int64_t i = 0; i < compared; ++i) {
      const int64_t index = compared > 1 ? i * (rows - 1) / (compared - 1) : 0;
      read_row(*head, index, row.data());
      read_row(embedding, index, embedding_row.data());
      if (row != embedding_row) return false;
    }
    return true;
  }

  // A head in the file counts even if config.json ties it to the embedding, as in transformers 5. Files often repeat
  // the embedding; only another head is worth a note.
  void untie_stored_head() {
    ModelConfig& c = model->config;
    if (!c.tied_head || !has_head() || head_repeats_embedding()) return;
    c.tied_head = false;
    model->notes.push_back(
        error("differs from the embedding that tie_word_embeddings ties it to; using this head, as transformers 5 does "
              "(set tie_word_embeddings to false in config.json to confirm it; delete the tensor to tie)",
              where(c.name("head"))));
  }

  Error bind_head() {
    const MatrixTensor spec = head_matrix(model->config);
    if (!model->config.tied_head && !has_head()) {
      return error("no head: the file was saved from the base model", where(spec.module() + ".weight"),
                   "a checkpoint of the whole model, or tie_word_embeddings true if the head is the embedding");
    }
    if (has_head()) return bind_matrix({&spec, 1});
    std::span<float> bias;
    if (Error e = bind_bias({&spec, 1}, spec.n, &bias)) return e;
    matrices.insert(spec.module() + ".weight");
    LinearWeight embedding;
    embedding.weight = model->embedding;
    if (Error e =
            bind_updates(model->checkpoint, spec.module(), spec.n, spec.k, &embedding.updates, &embedding.tensors)) {
      return e;
    }
    bound.insert(embedding.tensors.begin(), embedding.tensors.end());
    add_rows(embedding, 0, packing_of(options, model->config, spec.module(), embedding), spec);
    if (spec.has_bias) model->head.bias = bias.data() + model->head.first;
    return {};
  }

  // Binds the input of an MTP layer, which has no embedding of its own.
  Error bind_mtp_input() {
    const ModelConfig& c = model->config;
    const auto is_mtp = [](const TensorView& tensor) { return tensor.name.starts_with(kMtpPrefix); };
    if (std::ranges::none_of(model->checkpoint.tensors, is_mtp)) {
      return error("no tensors of an MTP layer (`--speculate ngram` needs none)", where(std::string(kMtpPrefix) + "*"));
    }
    const MatrixTensor fc = mtp_matrix(c);
    if (Error e = bind_matrix({&fc, 1})) return e;
    if (Error e = read_norm("mtp_embedding_norm", c.hidden_size, &model->mtp.embedding_norm)) return e;
    return read_norm("mtp_hidden_norm", c.hidden_size, &model->mtp.hidden_norm);
  }

  // Some files of models with a tied head store it in place of the embedding.
  Error bind_embedding() {
    const ModelConfig& c = model->config;
    const std::string name = c.name("embedding") + ".weight", head = c.name("head") + ".weight";
    const bool is_under_head = c.tied_head && !model->checkpoint.find(name) && model->checkpoint.find(head);
    if (Error e = bind(is_under_head ? head : name, {c.vocab_size, c.hidden_size}, &model->embedding)) return e;
    if (c.tied_head && !has_head() && model->checkpoint.adapter_scales.contains(model->embedding.data)) {
      return error("an adapter may not replace the embedding of a model whose head is tied to it", where(name));
    }
    untie_stored_head();
    return {};
  }

  // Binds per-layer embeddings and AltUp's projections.
  Error bind_layer_inputs() {
    const ModelConfig& c = model->config;
    model->altup = {std::vector<Linear>(altup_projections(c)), std::vector<Linear>(altup_projections(c))};
    if (c.layer_input.size > 0) {
      const int64_t size = c.layer_input.size;
      TensorView& rows = model->layer_inputs.embedding;
      if (Error e = bind(c.name("layer_embedding") + ".weight", {c.layer_input.vocab_size, c.layers * size}, &rows)) {
        return e;
      }
      rows.shape = {c.layer_input.vocab_size * c.layers, size};
      if (Error e = read_norm("layer_input_norm", size, &model->layer_inputs.norm)) return e;
    }
    return bind_matrices(model_matrices(c));
  }

  Error bind_all() {
    const ModelConfig& c = model->config;
    if (Error e = options.mtp ? bind_mtp_input() : bind_embedding()) return e;
    model->layers.resize(c.layers);
    for (int64_t i = 0; i < c.layers; ++i) {
      if (Error e = bind_layer(i)) return e;
    }
    model->final_norm.weight = ones();
    if (Error e = c.norm_weights ? read_norm("final_norm", c.hidden_size, &model->final_norm) : Error{}) return e;
    if (!options.mtp) {
      if (Error e = bind_layer_inputs()) return e;
      if (Error e = bind_head()) return e;
      if (Error e = check_keep(packed.empty() ? options : LoadOptions{}, matrices, model->checkpoint.folder)) return e;
    }
    return check_all_bound();
  }
};

}  // namespace

Error bind_tensors(const LoadOptions& options, Model* model, std::vector<PackJob>* jobs) {
  Binder binder{{model}, options, jobs};
  const auto& record = model->checkpoint.pack_record;
  const auto lines = record.find(options.mtp ? kPackedMtp : kPacked);
  if (lines != record.end()) binder.packed = split(lines->second, '\n');
  return binder.bind_all();
}

}  // namespace pinion
