// Binds the tensors of a checkpoint to the weights of a model, by the list in layer_tensors.h.

#include "engine/model/vector_reader.h"
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
  LayerMatrices int8 = int8_matrices(options.quant, model->config);

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

  // The quantisation of a module. Quantised files often keep the MTP layer and a copy of the embedding as head in
  // floats without declaring it.
  std::optional<Quantization> quantization_of(const std::string& module) const {
    if (model->checkpoint.is_packed()) return std::nullopt;
    const bool is_tied_head = model->config.tied_head && module == model->config.name("head");
    const TensorView* weight = options.mtp || is_tied_head ? model->checkpoint.find(module + ".weight") : nullptr;
    return weight && is_float(weight->dtype) ? std::nullopt : model->config.quantization;
  }

  bool is_shared_expert(const MatrixTensor& spec) const {
    return spec.expert != kNoExpert && (model->config.experts.stacked || model->config.experts.fused);
  }

  Error find_weight(const MatrixTensor& spec, const std::string& module, int64_t rows, LinearWeight* out) const {
    if (spec.role == MatrixRole::head && !has_head()) {
      out->weight = model->embedding;
      return bind_updates(model->checkpoint, module, rows, spec.k, &out->updates, &out->tensors);
    }
    if (const ExpertsConfig& experts = model->config.experts; is_shared_expert(spec)) {
      const bool is_gate_up = spec.role != MatrixRole::down;
      return bind_shared_experts(model->checkpoint, experts, module, is_gate_up, rows / experts.count, spec.k, out);
    }
    if (model->config.experts.flat && spec.expert != kNoExpert) {
      const int64_t experts = model->config.experts.count;
      if (spec.role == MatrixRole::down)
        return bind_columns(model->checkpoint, module, experts, rows / experts, spec.k, out);
      out->tensors = {module};
      return model->checkpoint.bind(module, {rows, spec.k}, &out->weight);
    }
    const TensorView* stored = model->checkpoint.find(module + ".weight");
    if (model->config.transposed && spec.role != MatrixRole::head && stored && is_float(stored->dtype)) {
      return bind_columns(model->checkpoint, stored->name, 1, rows, spec.k, out);
    }
    return bind_linear(model->checkpoint, quantization_of(module), module, rows, spec.transposed ? spec.n : spec.k,
                       out);
  }

  // The tensor of one matrix, or of several: the rows of fused ones (q, k, v), of all experts.
  struct SharedTensor {
    int64_t rows = 0;  // of all its matrices
    int64_t next = 0;  // row at which the next matrix begins
    LinearWeight weight = {};
    std::span<float> biases = {};
    Packing packing = {};
  };

  // Binds the tensor of a matrix.
  Error bind_tensor(const MatrixTensor& spec, SharedTensor* out) {
    const std::string module = spec.module();
    if (Error e = find_weight(spec, module, out->rows, &out->weight)) return e;
    bound.insert(out->weight.tensors.begin(), out->weight.tensors.end());
    matrices.insert(module + ".weight");
    if (Error e = spec.has_bias ? bind_biases(spec, module, out) : Error{}) return e;
    if (!spec.is_exact) out->packing = packing_of(options, model->config, spec.role, module, out->weight);
    const std::string& stored_as = out->weight.stored_as;
    const Packing& to = out->packing;
    const bool is_kept = to.as_stored || (to.format == Format::bf16 && stored_as == kMxfp4);  // bf16 represents these
    if (!stored_as.empty() && !is_kept) note_conversion(module, stored_as, to);
    return {};
  }

  Error bind_biases(const MatrixTensor& spec, const std::string& module, SharedTensor* out) {
    TensorView view;
    const ExpertsConfig& experts = model->config.experts;
    const bool is_shared = is_shared_expert(spec), is_fused = is_shared && experts.fused;
    const std::string& o_bias = model->config.name("o_bias");
    const bool is_apart = spec.role == MatrixRole::o && !o_bias.empty();
    const std::string name = is_apart ? module_name(o_bias, spec.layer) : module + (is_fused ? "_bias" : ".bias");
    if (Error e =
            is_shared ? bind(name, {experts.count, out->rows / experts.count}, &view) : bind(name, {out->rows}, &view))
      return e;
    if (Error e = read(view, &out->biases)) return e;
    if (is_fused && spec.role != MatrixRole::down) split_gate_up(experts.inner_size, out->biases);
    return {};
  }

  // The packing of a matrix whose columns are rows of a tensor. It cannot keep codes, which share scales along a row.
  Packing transposed(Packing packing, const MatrixTensor& spec, const std::string& stored_as) {
    if (packing.as_stored || packing.format == Format::w2) {
      packing = {.format = Format::w8};
      if (spec.head == 0) note_conversion(spec.module(), stored_as, packing);
    }
    packing.rotation = weight_rotation(options, packing.format, spec.k);
    return packing;
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
    if (!packing.as_stored) packing.format = with_int8(int8, spec, packing.format);
    packing = packed_as(packing, spec.k);
    const RowRange rows = divide(*model, spec);
    Matrix* out = &matrix_of(*model, spec).weight;
    *out = {.format = packing.format, .k = spec.k, .rotation = packing.rotation};
    if (rows.count == 0) return;
    const int64_t count = spec.transposed ? spec.k : rows.count;
    LinearWeight weight = spec.order.selects_rows() ? found : rows_of(found, first + rows.first, count);
    const bool keeps_codes = packing.as_stored && traits_of(packing.format).bits == 4;
    PackJob job = {weight.weight, packing.format, out, std::move(weight.scale), reader_of(weight, keeps_codes)};
    job.rotation = packing.rotation;
    job.order = spec.order.slice(rows.first, rows.count);
    job.source_codes = found.stored_as;
    job.keeps_codes = packing.as_stored;
    job.updates = std::move(weight.updates);
    if (spec.transposed) transpose(&job);
    if (spec.expert != kNoExpert) model->expert_bytes += packed_bytes({&job, 1});
    jobs->push_back(std::move(job));
    if (spec.is_read_with_gate) interleave_last_two(*jobs);
  }

  // Binds matrices in their order, which is that of their rows in a shared tensor.
  Error bind_matrices(std::span<const MatrixTensor> specs) {
    std::map<std::string, SharedTensor> tensors;
    for (const MatrixTensor& spec : specs) tensors[spec.module()].rows += spec.file_rows();
    for (const MatrixTensor& spec : specs) {
      SharedTensor& tensor = tensors[spec.module()];
      if (Error e = tensor.next == 0 ? bind_tensor(spec, &tensor) : Error{}) return e;
      add_rows(tensor.weight, tensor.next,
               spec.transposed ? transposed(tensor.packing, spec, tensor.weight.stored_as) : tensor.packing, spec);
      Linear& linear = matrix_of(*model, spec);
      linear.alpha = spec.alpha;
      if (spec.has_bias) {
        const bool is_part = !spec.order.selects_rows();
        const auto bias = in_order(spec.order, is_part ? tensor.biases.subspan(tensor.next, spec.n) : tensor.biases);
        for (float& value : bias) value *= spec.bias_scale;
        linear.bias = bias.data() + linear.first;
      }
      tensor.next += spec.file_rows();
    }
    return {};
  }

  Error bind_layer(int64_t index) {
    const ModelConfig& c = model->config;
    Layer* out = &model->layers[index];
    init_layer(c, index, out);
    for (const VectorTensor& spec : layer_vectors(c, index)) {
      if (Error e = read_vector(spec, &(*out)[spec.role])) return e;
    }
    balance_heads(c, index, &model->layers);
    return bind_matrices(layer_matrices(c, index));
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
    for (const char* name : kPoolingTensors) {
      const TensorView* tensor = model->checkpoint.find(name);
      if (!tensor || (model->config.has_head && tensor->name == "score.weight")) continue;  // of a reward model
      model->unpacked[tensor->name] = *tensor, bound.insert(tensor->name);
    }
    if (!model->config.has_head) return {};
    if (!model->config.tied_head && !has_head()) {
      return error("no head: the file was saved from the base model", where(spec.module() + ".weight"),
                   "a checkpoint of the whole model, or tie_word_embeddings true if the head is the embedding");
    }
    return bind_matrices({&spec, 1});
  }

  // Binds the input of an MTP layer, which has no embedding of its own.
  Error bind_mtp_input() {
    const ModelConfig& c = model->config;
    const auto is_mtp = [](const TensorView& tensor) { return tensor.name.starts_with(kMtpPrefix); };
    if (std::ranges::none_of(model->checkpoint.tensors, is_mtp)) {
      return error("no tensors of an MTP layer (`--speculate ngram` needs none)", where(std::string(kMtpPrefix) + "*"));
    }
    const MatrixTensor fc = mtp_matrix(c);
    if (Error e = bind_matrices({&fc, 1})) return e;
    if (Error e = read_norm("mtp_embedding_norm", c.hidden_size, &model->mtp.embedding_norm)) return e;
    return read_norm("mtp_hidden_norm", c.hidden_size, &model->mtp.hidden_norm);
  }

  // Some files of models with a tied head store it in place of the embedding.
  Error bind_embedding() {
    const ModelConfig& c = model->config;
    const std::string name = c.name("embedding") + ".weight", head = c.name("head") + ".weight";
    const bool is_under_head = c.tied_head && !model->checkpoint.find(name) && model->checkpoint.find(head);
    if (Error e = bind(is_under_head ? head : name, {c.vocab_size + c.extra_rows, c.hidden_size}, &model->embedding))
      return e;
    if (c.tied_head && !has_head() && model->checkpoint.adapter_scales.contains(model->embedding.data)) {
      return error("an adapter may not replace the embedding of a model whose head is tied to it", where(name));
    }
    untie_stored_head();
    if (c.position_rows == 0) return {};
    return bind(c.name("positions") + ".weight", {c.position_rows, c.hidden_size}, &model->positions);
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
    model->embedding_norm = c.embedding_norm ? model->final_norm : Vector{};
    const auto optional = {std::pair("embedding_norm", &model->embedding_norm), {"head_norm", &model->head_norm}};
    for (const auto& [key, norm] : optional) {
      if (Error e = c.name(key).empty() ? Error{} : read_norm(key, c.hidden_size, norm)) return e;
    }
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
