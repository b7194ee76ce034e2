// pinion inspect: describes a model folder and the memory that it would take. Binds the tensors as loading does, but
// packs no matrix: of these it reads the headers, scales and zeros, and some rows that may be ternary.
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "engine/forward/kv_cache.h"
#include "engine/forward/recurrent_state.h"
#include "engine/forward/rope.h"
#include "engine/runtime/load.h"
#include "engine/team/memory.h"
#include "loader/config/layer_tensors.h"
#include "tokenizer/templates/chat_template.h"

namespace pinion {
namespace {

struct InspectOptions {
  RunOptions run;
  bool json = false;
};

// Memory of a loaded model in bytes, and its matrices.
struct ModelSummary {
  int64_t layers = 0;   // packed, with the matrices outside of layers except the head
  int64_t head = 0;     // packed
  int64_t vectors = 0;  // norms, biases and convolutions in fp32
  // The number of matrices by their form in the file and in memory.
  OrderedJson matrices = {{"codes_kept", 0},      {"codes_to_codes", 0}, {"codes_to_w4", 0},    {"codes_to_bf16", 0},
                          {"floats_to_codes", 0}, {"floats_to_w4", 0},   {"floats_to_bf16", 0}, {"rotated", 0}};
  std::set<std::string> why_not_kept;            // reasons to requantise 4-bit codes
  std::set<std::string> stored_as;               // formats of the file's codes
  std::map<std::string, int64_t> float_modules;  // matrices in floating point by the pattern of their names
};

// The count for matrices of a job's kind.
std::string count_name(const PackJob& job) {
  if (job.keeps_codes) return "codes_kept";
  if (job.format == Format::w2) return "ternary_to_w2";
  return std::string(job.source_codes.empty() ? "floats" : "codes") + (traits_of(job.format).bits == 4   ? "_to_w4"
                                                                       : traits_of(job.format).bits == 8 ? "_to_codes"
                                                                                                         : "_to_bf16");
}

ModelSummary summarise(Model& model, std::span<const PackJob> jobs) {
  const ModelConfig& config = model.config;
  ModelSummary out;
  const auto add_count = [&](const std::string& name, int64_t count) {
    out.matrices[name] = out.matrices.value(name, int64_t{0}) + count;
  };
  std::map<const Matrix*, const PackJob*> job_of;
  for (const PackJob& job : jobs) job_of[job.out] = &job;
  for (const MatrixTensor& tensor : all_matrices(config)) {
    const PackJob& job = *job_of.at(&matrix_of(model, tensor).weight);
    add_count(count_name(job), 1);
    (tensor.role == MatrixRole::head ? out.head : out.layers) += packed_bytes({&job, 1});
    add_count("rotated", job.rotation > 1);
    const bool is_rounded = job.source.dtype == DType::f16 || job.source.dtype == DType::f32;
    add_count("rounded_to_bf16", job.format == Format::bf16 && is_rounded);
    out.vectors += tensor.has_bias ? tensor.n * 4 : 0;
    if (job.source_codes.empty()) {
      ++out.float_modules[tensor.pattern];
    } else {
      out.stored_as.insert(job.source_codes);
    }
  }
  for (const Conversion& conversion : model.conversions) {
    if (!conversion.requantised_because.empty()) out.why_not_kept.insert(conversion.requantised_because);
  }
  out.vectors += vector_parameters(config) * 4;
  return out;
}

// By RopeKind.
constexpr std::string_view kRopeNames[] = {"plain", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional"};
static_assert(std::size(kRopeNames) == static_cast<size_t>(RopeKind::proportional) + 1);

// Compares the weights with the free memory; "positions" is the part of the context whose KV cache fits as well.
OrderedJson fits_json(const ModelConfig& config, const RunOptions& run, const ModelSummary& summary,
                      const FreeMemory& free) {
  const int64_t weights = summary.layers + summary.head + summary.vectors + recurrent_state_of(config).bytes();
  OrderedJson json = {{"weights", weights <= free.bytes}, {"available", free.text()}};
  if (const Error e = check_memory(weights, free, "too little memory for the weights", run.model)) {
    json["why_not"] = e.message();
    return json;
  }
  const int64_t context = context_length(config);
  const int64_t kv = kv_shape_of(config, kv_type(run)).bytes(context);
  const double fraction = static_cast<double>(free.bytes - weights) / static_cast<double>(std::max<int64_t>(1, kv));
  json["positions"] = static_cast<int64_t>(std::min(1.0, fraction) * static_cast<double>(context));
  return json;
}

// The cache file of the packed weights; its state is "usable" or the reason why it is not.
OrderedJson cache_json(const RunOptions& run) {
  LoadOptions load = load_options(run);
  if (load.cache_folder.empty()) return {{"file", nullptr}, {"state", "off"}};
  PackCache cache;
  Error reason = read_calibration(run, nullptr, &load);
  if (!reason) reason = find_in_cache(run.model, load, &cache);
  return {{"file", cache.path.string()}, {"state", reason ? reason.message() : "usable"}};
}

// For a file with codes, "without_codes" counts the matrices in floating point.
OrderedJson matrices_json(const ModelSummary& summary) {
  OrderedJson json = summary.matrices;
  if (!summary.why_not_kept.empty()) json["why_not_kept"] = summary.why_not_kept;
  if (!summary.stored_as.empty()) json["without_codes"] = summary.float_modules;
  return json;
}

// True, false, or the reason why the template cannot be used.
OrderedJson template_json(const std::string& folder) {
  std::shared_ptr<const ChatTemplate> chat_template;
  if (Error e = load_chat_template(folder, &chat_template)) return e.message();
  return chat_template != nullptr;
}

OrderedJson experts_json(const ModelConfig& config) {
  const ExpertsConfig& experts = config.experts;
  OrderedJson json = {{"count", experts.count},
                      {"per_token", experts.per_token},
                      {"intermediate_size", experts.inner_size},
                      {"layers", std::ranges::count(config.layer, true, &LayerConfig::has_experts)}};
  if (experts.shared_size > 0) json["shared_intermediate_size"] = experts.shared_size;
  return json;
}

OrderedJson inspect_json(const Model& model, const GenerationDefaults& defaults, const RunOptions& run,
                         const ModelSummary& summary, const Kernels& kernels, const Plan& plan) {
  const ModelConfig& config = model.config;
  const auto sliding = std::ranges::count_if(config.layer, [](const LayerConfig& layer) { return layer.window > 0; });
  const FreeMemory free = free_memory();
  OrderedJson generation = sampler_json(defaults.sampler);
  generation["eos_ids"] = model.eos_ids;
  std::set<std::string_view> dtypes;
  for (const TensorView& view : model.checkpoint.tensors) dtypes.insert(dtype_name(view.dtype));
  return {
      {"family", config.family},
      {"architecture", config.architecture},
      {"layers", config.layers},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.largest(&LayerConfig::mlp_size)},
      {"heads", config.largest(&LayerConfig::heads)},
      {"kv_heads", config.largest(&LayerConfig::kv_heads)},
      {"head_dim", config.largest(&LayerConfig::head_dim)},
      {"value_dim", config.largest(&LayerConfig::value_dim)},
      {"vocab_size", config.vocab_size},
      {"context", context_length(config)},
      {"sliding_window_layers", sliding},
      {"sliding_window", config.largest(&LayerConfig::window)},
      {"recurrent_layers", recurrent_layers(config)},
      {"rope", kRopeNames[static_cast<size_t>(config.ropes.front().kind)]},
      {"rope_theta", config.ropes.front().theta},
      {"rope_factor", config.ropes.front().factor},
      {config.layer_norm ? "layer_norm_eps" : "rms_norm_eps", decimal_of(config.norm_eps)},
      {"tied_head", config.tied_head},
      {"experts", config.experts.count > 0 ? experts_json(config) : OrderedJson(nullptr)},
      {"parameters", count_parameters(config).all},
      {"active_parameters", active_parameters(config)},
      {"files", model.checkpoint.files.size()},
      {"tensors", model.checkpoint.tensors.size()},
      {"tensor_bytes", model.checkpoint.tensor_bytes},
      {"file_dtypes", dtypes},
      {"quantised_file", !summary.stored_as.empty()},
      {"stored_as", summary.stored_as.empty() ? OrderedJson(nullptr) : OrderedJson(summary.stored_as)},
      {"matrices", matrices_json(summary)},
      {"ignored_fields", config.ignored_fields},
      {"tokenizer", has_tokenizer(run.model)},
      {"tokenizer_file", tokenizer_file(run.model).filename().string()},
      {"chat_template", template_json(run.model)},
      {"generation", generation},
      {"memory_bytes",
       {{"embedding_mapped", model.embedding.bytes + model.positions.bytes},
        {"layer_embeddings_mapped", model.layer_inputs.embedding.bytes},
        {"layers", summary.layers},
        {"head", summary.head},
        {"vectors", summary.vectors},
        {"kv_per_1024_positions", kv_shape_of(config, kv_type(run)).bytes(1024)},
        {"recurrent_state", recurrent_state_of(config).bytes()},
        {"available", free.bytes}}},
      {"fits", fits_json(config, run, summary, free)},
      {"run",
       {{"quant", quant_name(run)},
        {"why_quant", run.quant_reason},
        {"head", head_name(run)},
        {"lora", run.load.lora},
        {"rotate", run.load.rotate},
        {"calibrate", calibration_source(run)},
        {"kv", kv_name(run)},
        {"kernels", kernels.name},
        {"threads", plan.decode.cpus.size()},
        {"cpus", plan.decode.cpus},
        {"why_cpus", plan.why_team},
        {"prefill_threads", plan.prefill.cpus.size()},
        {"prefill_cpus", plan.prefill.cpus},
        {"prefill_chunk", plan.prefill_chunk},
        {"why_prefill_chunk", plan.why_chunk}}},
      {"packed", pack_json(model.checkpoint.pack_record)},
      {"weight_cache", cache_json(run)},
  };
}

int run_inspect(const InspectOptions& options) {
  const RunOptions& run = options.run;
  if (Error e = check_model_folder(run.model)) return fail(e);
  LoadOptions load = load_options(run);
  load.cache_folder.clear();
  Model model;
  std::vector<PackJob> jobs;
  const Error bound = bind_model(run.model, load, &model, &jobs);
  for (const std::string& text : file_notes(model)) note(text);
  for (const Error& peculiarity : model.notes) note(peculiarity.message());
  if (bound) return fail(bound);
  GenerationDefaults defaults;
  if (Error e = read_generation_config(run.model, &defaults)) return fail(e);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (has_tokenizer(run.model) && !load_tokenizer(run.model, &tokenizer)) {
    add_end_ids(run.model, *tokenizer, &model.eos_ids);
  }
  const Kernels* kernels = nullptr;
  if (Error e = select_kernels(run.kernels_name, &kernels)) return fail(e);
  Plan plan;
  if (Error e = make_plan(run, &plan)) return fail(e);
  return print_report(inspect_json(model, defaults, run, summarise(model, jobs), *kernels, plan), options.json,
                      "inspect");
}

}  // namespace

Run setup_inspect(Command app) {
  auto options = std::make_shared<InspectOptions>();
  add_run_options(app, &options->run);
  app.add_flag("--json", options->json);
  return {[options] { return run_inspect(*options); }};
}

}  // namespace pinion
