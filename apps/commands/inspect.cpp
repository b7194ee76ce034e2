// pinion inspect: what a model folder holds and what running it would take, from the configuration, the tensors'
// headers, of 4-bit codes the scales and zeros, and some rows of floats, which may be ternary.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "apps/cli/machine.h"
#include "apps/commands.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/recurrent_state.h"
#include "engine/forward/rope.h"
#include "engine/model/layer_tensors.h"
#include "engine/model/weight_format.h"
#include "engine/runtime/load.h"
#include "engine/session/generation_config.h"
#include "engine/team/memory.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/checkpoint/fused_experts.h"
#include "loader/config/model_config.h"
#include "tokenizer/templates/chat_template.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  bool json = false;
};

// Bytes by part, as they would lie in memory.
struct Parts {
  int64_t embedding = 0;         // mapped from the file
  int64_t layer_embeddings = 0;  // likewise
  int64_t layers = 0;            // packed, with what the model has beside them and the head
  int64_t head = 0;              // packed
  int64_t vectors = 0;           // norms, biases and convolutions, fp32
  int64_t kv_per_1024 = 0;
  int64_t state = 0;  // of layers that keep one in place of keys and values
  // Matrices, by what the file holds and what they become.
  int64_t codes_kept = 0, codes_to_codes = 0, codes_to_w4 = 0, codes_to_bf16 = 0;
  std::set<std::string> why_not_kept;  // of 4-bit codes that become others
  int64_t floats_to_codes = 0, floats_to_w4 = 0, floats_to_bf16 = 0;
  int64_t ternary_to_w2 = 0;
  int64_t rotated = 0;
  std::map<std::string, int64_t> float_modules;  // how many layers have it in a floating-point type
  std::set<std::string> stored_as;               // how the file holds matrices, where not in floating point
};

// What is counted of matrices that become this.
int64_t* kind_of(bool is_coded, Format format, Parts* parts) {
  if (format == Format::w2) return &parts->ternary_to_w2;
  if (traits_of(format).bits == 4) return is_coded ? &parts->codes_to_w4 : &parts->floats_to_w4;
  if (format == Format::w8) return is_coded ? &parts->codes_to_codes : &parts->floats_to_codes;
  return is_coded ? &parts->codes_to_bf16 : &parts->floats_to_bf16;
}

// Adds where the matrix comes from and what it becomes; gives its packed size.
int64_t count_matrix(const MatrixTensor& tensor, const LinearWeight& found, const Packing& packing, Parts* out) {
  if (found.stored_as.empty()) {
    ++out->float_modules[tensor.pattern];
    ++*kind_of(false, packing.format, out);
  } else {
    out->stored_as.insert(found.stored_as);
    ++(packing.as_stored ? out->codes_kept : *kind_of(true, packing.format, out));
    if (!packing.requantised_because.empty()) out->why_not_kept.insert(packing.requantised_because);
  }
  if (packing.rotation > 1) ++out->rotated;
  return packed_bytes(packing.format, tensor.n, tensor.k);
}

// All experts of a layer that share their tensors.
Error count_fused_experts(const ModelConfig& config, const Checkpoint& checkpoint, int64_t layer,
                          const LoadOptions& options, Parts* out) {
  FusedExperts found;
  if (Error e = bind_fused_experts(checkpoint, config, layer, &found)) return e;
  const int64_t experts = config.experts.count;
  const auto count = [&](const FusedMatrix& m, int64_t matrices) {  // of each expert
    const Format format = weight_format(options, m.module + ".weight", false);
    if (!m.stored_as.empty()) out->stored_as.insert(m.stored_as);
    *kind_of(!m.stored_as.empty(), format, out) += experts * matrices;
    if (weight_rotation(options, format, m.k) > 1) out->rotated += experts * matrices;
    out->layers += experts * matrices * packed_bytes(format, m.n / matrices, m.k);
  };
  count(found.gate_up, 2);
  count(found.down, 1);
  return {};
}

// Matrices of a layer or of the model, what they become and where they lie; but not experts that share their tensors.
Error measure_matrices(const ModelConfig& config, const Checkpoint& checkpoint, const LoadOptions& options,
                       const std::vector<MatrixTensor>& tensors, Parts* out) {
  for (auto first = tensors.begin(); first != tensors.end();) {
    // Neighbours of one name are the rows of one tensor.
    const std::string module = first->module();
    int64_t rows = 0;
    const auto last = std::find_if(first, tensors.end(), [&](const MatrixTensor& t) { return t.module() != module; });
    const std::span<const MatrixTensor> parts(first, last);
    for (const MatrixTensor& one : parts) {
      rows += one.n;
      out->vectors += one.has_bias ? one.n * 4 : 0;
    }
    first = last;
    if (config.experts.fused && parts[0].expert != kNoExpert) continue;
    LinearWeight found;
    const bool stacked = config.experts.stacked && parts[0].expert != kNoExpert;
    if (Error e = stacked ? bind_stacked_experts(checkpoint, module, config.experts.count, rows, parts[0].k, &found)
                          : bind_linear(checkpoint, config.quantization, module, rows, parts[0].k, &found)) {
      return e;
    }
    const Packing packing = parts[0].is_exact ? Packing{} : packing_of(options, config, module, found);
    for (const MatrixTensor& one : parts) out->layers += count_matrix(one, found, packing, out);
  }
  return {};
}

Error measure_layer(const ModelConfig& config, const Checkpoint& checkpoint, const LoadOptions& options, int64_t layer,
                    Parts* out) {
  if (Error e = measure_matrices(config, checkpoint, options, layer_matrices(config, layer), out)) return e;
  const bool fused = config.has_experts(layer) && config.experts.fused;
  for (const VectorTensor& one : layer_vectors(config, layer)) out->vectors += one.n * 4;
  return fused ? count_fused_experts(config, checkpoint, layer, options, out) : Error{};
}

Error measure_parts(const ModelConfig& config, const Checkpoint& checkpoint, const RunOptions& run, Parts* out) {
  LinearWeight found;
  const std::string embedding = config.names.embedding + ".weight";
  if (Error e = checkpoint.bind(embedding, {config.vocab_size, config.hidden_size}, &found.weight)) return e;
  out->embedding = found.weight.bytes;
  out->vectors = config.hidden_size * (config.norm_bias ? 8 : 4);  // the last norm
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    if (Error e = measure_layer(config, checkpoint, run.load, layer, out)) return e;
  }
  if (Error e = measure_matrices(config, checkpoint, run.load, stream_matrices(config), out)) return e;
  const LayerInputConfig& input = config.layer_input;
  if (input.size > 0) {
    TensorView rows;
    const std::string name = config.names.layer_embedding + ".weight";
    if (Error e = checkpoint.bind(name, {input.vocab_size, config.layers * input.size}, &rows)) return e;
    out->layer_embeddings = rows.bytes;
    out->vectors += input.size * 4;
  }
  const MatrixTensor head = head_matrix(config);  // of a tied one `found` is the embedding
  if (head.has_bias) out->vectors += head.n * 4;
  if (!config.tied_head) {
    if (Error e = bind_linear(checkpoint, config.quantization, head.module(), head.n, head.k, &found)) return e;
  }
  out->head = count_matrix(head, found, packing_of(run.load, config, head.module(), found), out);
  out->state = recurrent_state_of(config).bytes();
  out->kv_per_1024 = kv_shape_of(config, kv_type(run)).bytes(1024);
  return {};
}

std::string_view rope_name(RopeKind kind) {
  switch (kind) {
    case RopeKind::none:
      return "plain";
    case RopeKind::linear:
      return "linear";
    case RopeKind::dynamic:
      return "dynamic";
    case RopeKind::yarn:
      return "yarn";
    case RopeKind::llama3:
      return "llama3";
    case RopeKind::longrope:
      return "longrope";
  }
  return "";
}

// Whether this machine holds the weights, and how many positions of the context beside them.
OrderedJson fits_json(const ModelConfig& config, const RunOptions& run, const Parts& parts, const FreeMemory& free) {
  const int64_t weights = parts.layers + parts.head + parts.vectors + parts.state;
  OrderedJson json = {{"weights", weights <= free.bytes}, {"available", free.text()}};
  if (const Error e = check_memory(weights, free, "too little memory for the weights", run.model)) {
    json["why_not"] = e.message();
    return json;
  }
  const int64_t context = context_length(config);
  const int64_t kv = kv_shape_of(config, kv_type(run)).bytes(context);
  const double part = static_cast<double>(free.bytes - weights) / static_cast<double>(std::max<int64_t>(1, kv));
  json["positions"] = static_cast<int64_t>(std::min(1.0, part) * static_cast<double>(context));
  return json;
}

// The file that keeps the packed weights, and "usable" or why it is not.
OrderedJson cache_json(const RunOptions& run) {
  LoadOptions load = load_options(run);
  if (load.cache_folder.empty()) return {{"file", nullptr}, {"state", "off"}};
  PackCache cache;
  Error reason = read_calibration(run, &load);
  if (!reason) reason = find_in_cache(run.model, load, &cache);
  return {{"file", cache.path.string()}, {"state", reason ? reason.message() : "usable"}};
}

// What becomes of the matrices; of a file with codes also which have none.
OrderedJson matrices_json(const Parts& parts) {
  OrderedJson json = {{"codes_kept", parts.codes_kept},           {"codes_to_codes", parts.codes_to_codes},
                      {"codes_to_w4", parts.codes_to_w4},         {"codes_to_bf16", parts.codes_to_bf16},
                      {"floats_to_codes", parts.floats_to_codes}, {"floats_to_w4", parts.floats_to_w4},
                      {"floats_to_bf16", parts.floats_to_bf16},   {"rotated", parts.rotated}};
  if (parts.ternary_to_w2 > 0) json["ternary_to_w2"] = parts.ternary_to_w2;
  if (!parts.why_not_kept.empty()) json["why_not_kept"] = parts.why_not_kept;
  if (!parts.stored_as.empty()) json["without_codes"] = parts.float_modules;
  return json;
}

// How the folder wants texts to be sampled and ended.
OrderedJson generation_json(const ModelConfig& config, const GenerationDefaults& defaults) {
  OrderedJson json = sampler_json(defaults.sampler);
  std::set<int64_t> eos_ids(config.eos_ids.begin(), config.eos_ids.end());
  eos_ids.insert(defaults.eos_ids.begin(), defaults.eos_ids.end());
  json["eos_ids"] = eos_ids;
  return json;
}

// Whether there is one, or why it cannot be used.
OrderedJson template_json(const std::string& folder) {
  std::shared_ptr<const ChatTemplate> chat_template;
  if (Error e = load_chat_template(folder, &chat_template)) return e.message();
  return chat_template != nullptr;
}

OrderedJson experts_json(const ExpertsConfig& experts) {
  OrderedJson json = {{"count", experts.count},
                      {"per_token", experts.per_token},
                      {"intermediate_size", experts.inner_size},
                      {"layers", std::ranges::count(experts.layers, true)}};
  if (experts.shared_size > 0) json["shared_intermediate_size"] = experts.shared_size;
  return json;
}

std::vector<std::string> dtypes(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const TensorView& view : checkpoint.tensors) names.emplace_back(dtype_name(view.dtype));
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

OrderedJson report(const ModelConfig& config, const GenerationDefaults& defaults, const Checkpoint& checkpoint,
                   const RunOptions& run, const Parts& parts, const Kernels& kernels, const Plan& plan) {
  const auto sliding = std::ranges::count_if(config.windows, [](int64_t window) { return window > 0; });
  const FreeMemory free = free_memory();
  return {
      {"family", config.family},
      {"architecture", config.architecture},
      {"layers", config.layers},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"heads", config.heads},
      {"kv_heads", config.kv_heads},
      {"head_dim", config.head_dim},
      {"value_dim", config.value_dim()},
      {"vocab_size", config.vocab_size},
      {"context", context_length(config)},
      {"sliding_window_layers", sliding},
      {"sliding_window", std::ranges::max(config.windows)},
      {"recurrent_layers", recurrent_layers(config)},
      {"rope", rope_name(config.ropes.front().kind)},
      {"rope_theta", config.ropes.front().theta},
      {"rope_factor", config.ropes.front().factor},
      {config.layer_norm ? "layer_norm_eps" : "rms_norm_eps", decimal_of(config.norm_eps)},
      {"tied_head", config.tied_head},
      {"experts", config.experts.count > 0 ? experts_json(config.experts) : OrderedJson(nullptr)},
      {"parameters", count_parameters(config).all},
      {"active_parameters", active_parameters(config)},
      {"files", checkpoint.files.size()},
      {"tensors", checkpoint.tensors.size()},
      {"tensor_bytes", checkpoint.tensor_bytes},
      {"file_dtypes", dtypes(checkpoint)},
      {"quantised_file", !parts.stored_as.empty()},
      {"stored_as", parts.stored_as.empty() ? OrderedJson(nullptr) : OrderedJson(parts.stored_as)},
      {"matrices", matrices_json(parts)},
      {"ignored_fields", config.ignored_fields},
      {"tokenizer", has_tokenizer(run.model)},
      {"tokenizer_file", tokenizer_file(run.model).filename().string()},
      {"chat_template", template_json(run.model)},
      {"generation", generation_json(config, defaults)},
      {"memory_bytes",
       {{"embedding_mapped", parts.embedding},
        {"layer_embeddings_mapped", parts.layer_embeddings},
        {"layers", parts.layers},
        {"head", parts.head},
        {"vectors", parts.vectors},
        {"kv_per_1024_positions", parts.kv_per_1024},
        {"recurrent_state", parts.state},
        {"available", free.bytes}}},
      {"fits", fits_json(config, run, parts, free)},
      {"run",
       {{"quant", quant_name(run)},
        {"why_quant", run.why_quant},
        {"head", head_name(run)},
        {"rotate", run.load.rotate},
        {"calibrate", run.calibrate},
        {"kv", kv_name(run)},
        {"kernels", kernels.name},
        {"threads", plan.decode.cpus.size()},
        {"cpus", plan.decode.cpus},
        {"why_cpus", plan.why_team},
        {"prefill_threads", plan.prefill.cpus.size()},
        {"prefill_cpus", plan.prefill.cpus},
        {"prefill_chunk", plan.prefill_chunk},
        {"why_prefill_chunk", plan.why_chunk}}},
      {"weight_cache", cache_json(run)},
  };
}

std::string readable(const OrderedJson& json) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    const bool is_bytes = key == "memory_bytes";
    if (!value.is_object()) {
      text += key + ": " + (value.is_string() ? value.get<std::string>() : value.dump()) + "\n";
      continue;
    }
    text += (is_bytes ? "memory" : key) + ":\n";
    for (const auto& [part, figure] : value.items()) {
      const std::string shown = is_bytes             ? bytes_text(figure.get<double>())
                                : figure.is_string() ? figure.get<std::string>()
                                                     : figure.dump();
      text += "  " + part + ": " + shown + "\n";
    }
  }
  return text;
}

int run(const Options& options) {
  if (Error e = check_model_folder(options.run.model)) return fail(e);
  ModelConfig config;
  if (Error e = read_model_config(options.run.model, &config)) return fail(e);
  tell_of_ignored_fields(config);
  if (Error e = check_head_format(options.run.load, config)) return fail(e);
  GenerationDefaults defaults;
  if (Error e = read_generation_config(options.run.model, &defaults)) return fail(e);
  Checkpoint checkpoint;
  if (Error e = open_checkpoint(options.run.model, &checkpoint)) return fail(e);
  tell_of_unwritten(checkpoint);
  if (Error e = select_tensors(config.tensors, &checkpoint)) return fail(e);
  find_stacked_experts(checkpoint, &config);
  Parts parts;
  if (Error e = measure_parts(config, checkpoint, options.run, &parts)) return fail(e);
  const Kernels* kernels = nullptr;
  if (Error e = select_kernels(options.run.kernels_name, &kernels)) return fail(e);
  Plan plan;
  if (Error e = make_plan(options.run, &plan)) return fail(e);
  print_report(report(config, defaults, checkpoint, options.run, parts, *kernels, plan), options.json, readable);
  return kSuccess;
}

}  // namespace

Run setup_inspect(Command app) {
  auto options = std::make_shared<Options>();
  add_run_options(app, &options->run);
  app.add_flag("--json", options->json, "Print one JSON object");
  return {[options] { return run(*options); }};
}

}  // namespace pinion
