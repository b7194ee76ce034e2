// Opens a model of the server with everything that its endpoints use.
#include "apps/golden/golden.h"
#include "apps/model/build.h"
#include "apps/serve/conversation.h"
#include "apps/serve/models.h"
#include "engine/team/memory.h"

namespace pinion {
namespace {

// The KV cache holds `parallel` full contexts, unless that exceeds half of the free memory.
SchedulerOptions scheduler_options(const ModelOptions& options, const Runtime& runtime,
                                   const EmbeddingConfig& embedding, int64_t reserved_bytes) {
  const ModelConfig& config = runtime.model->config;
  SchedulerOptions out = scheduler_options(runtime);
  out.sequences = options.parallel;
  out.context = options.context > 0 ? std::min(context_length(config), options.context)
                                    : fitting_context(runtime, reserved_bytes);
  out.pass_rows = std::max(out.pass_rows, 2 * options.parallel);
  if (config.attends_both_ways) out.context = std::min(out.context, embedding.max_tokens);  // also the rows of a pass
  out.keeps_hidden = needs_hidden(options.speculate) || embedding.pooling != Pooling::none;
  const int64_t block_bytes = kv_shape_of(config, runtime.kv).bytes(kAttentionChunk);
  const int64_t free_bytes = available_memory_bytes() - mapped_bytes(*runtime.model) - reserved_bytes;
  const int64_t sequence = round_up(out.context, kAttentionChunk), all = options.parallel * sequence;
  const int64_t available = block_bytes > 0 ? free_bytes / 2 / block_bytes * kAttentionChunk : all;
  out.positions = std::clamp(available, sequence, all);
  return out;
}

void note_unknown_tool_format(const ChatTemplate& chat_template) {
  const std::string_view source = template_source(chat_template, {.tools = nlohmann::ordered_json::array()});
  if (source.find("tools") == std::string_view::npos || !detect_tool_format(source).empty()) return;
  note("the tool calls of this model's chat template have an unknown format: they arrive as text");
}

// Evaluates a file's messages and tools first and keeps them in memory, for requests that begin with them.
Error warm_up(const ServerState& server, const std::string& file, std::unique_ptr<RequestGroup>* out) {
  if (file.empty()) return {};
  if (!server.chat_template) {
    note("--warm " + file + " is not read: the model has no chat template");
    return {};
  }
  std::string text;
  if (Error e = read_input(file, kMaxTextBytes, &text)) return e;
  const auto in_file = [&](const Error& e) { return error(e.message(), "--warm " + file); };
  OrderedJson body;
  ChatInput input;
  ChatPrompt prompt;
  GenerationFields fields;
  if (Error e = parse_body(text, &body)) return in_file(e);
  if (Error e = take_chat_input(body, &input)) return in_file(e);
  if (Error e = make_chat_prompt(server, std::move(input), &fields, &prompt)) return in_file(e);
  note("reading the " + std::to_string(prompt.ids.size()) + " tokens of " + file);
  std::vector<InferenceRequest> requests(1);
  requests[0].prompt = std::move(prompt.ids);
  requests[0].options.max_tokens = 0;
  requests[0].is_pinned = true;
  FailureKind kind;
  Error e = server.service->submit(std::move(requests), out, &kind);
  return e ? in_file(e) : Error{};
}

// Opens the scheduler and checks that it fits beside the memory that other models have reserved.
Error open_scheduler(const ModelOptions& options, int64_t reserved_bytes, OpenModel* out,
                     std::unique_ptr<Scheduler>* scheduler) {
  const Runtime& runtime = out->runtime;
  const auto embedding = std::make_shared<EmbeddingModel>();
  if (Error e =
          open_embedding_model(options.run.model, *runtime.model, options.pooling, out->tokenizer, embedding.get())) {
    return e;
  }
  const SchedulerOptions sizes = scheduler_options(options, runtime, embedding->config, reserved_bytes);
  if (Error e = open_scheduler(*runtime.model, *runtime.team, sizes, scheduler)) return e;
  embedding->config.max_tokens = std::min(embedding->config.max_tokens, (*scheduler)->options.context);
  out->embedding = embedding;
  const RecurrentState& state = (*scheduler)->free_sequences.front().state;
  if (Error e = open_prompt_cache(options.prompt_cache, **scheduler, state)) return e;
  if (Error e = begin_speculation(options.speculate, options.run, runtime, scheduler->get(), &out->drafting)) return e;
  FreeMemory free = free_memory();
  free.bytes = std::max<int64_t>(0, free.bytes - reserved_bytes);
  if (reserved_bytes > 0) {
    free.limit += " beside " + megabytes_text(reserved_bytes) + " that other models have reserved";
  }
  return check_memory(untouched_bytes(**scheduler), free, "too little memory", "session");
}

}  // namespace

Error open_served_model(ModelOptions options, const ServerState& common, const std::shared_ptr<EngineLoop>& engine,
                        int64_t reserved_bytes, const std::function<Error()>& on_read,
                        std::shared_ptr<OpenModel>* out) {
  const RunOptions& run = options.run;
  if (Error e = check_model_folder(run.model)) return e;
  if (Error e = check_speculation(options.speculate, run)) {
    if (!common.models->has_several()) return e;
    note(model_name(run) + " goes without --speculate " + options.speculate + ": " + e.message());
    options.speculate.clear();
  }
  const auto model = std::make_shared<OpenModel>();
  static_cast<ServerState&>(*model) = common;
  if (Error e = load_model_tokenizer(run.model, &model->tokenizer)) return e;
  if (Error e = load_chat_template(run.model, &model->chat_template)) return e;
  if (model->chat_template) note_unknown_tool_format(*model->chat_template);
  model->grammars = std::make_shared<GrammarCompiler>(model->tokenizer);
  if (Error e = sampler_options(run.model, options.sampling, &model->sampler)) return e;
  if (Error e = on_read ? on_read() : Error{}) return e;
  if (Error e = open_with_progress(run, model->tokenizer.get(), &model->runtime)) return e;
  std::unique_ptr<Scheduler> scheduler;
  if (Error e = open_scheduler(options, reserved_bytes, model.get(), &scheduler)) {
    const Model& weights = *model->runtime.model;  // packed ones go with this failure, and would be needed again
    if (e.needed_bytes > 0) e.needed_bytes += weights.weight_bytes - mapped_bytes(weights);
    return e;
  }
  const ServiceOptions service_options{
      .max_waiting = options.queue,
      .speculates = model->drafting.speculates,
      .roof_buffer_bytes = options.roof_mb > 0 ? options.roof_mb << 20 : roof_buffer_bytes(),
      .engine = engine};
  model->owned_service = std::make_unique<InferenceService>(std::move(scheduler), model->tokenizer, service_options);
  model->service = model->owned_service.get();
  if (const int64_t max = model->service->context(); options.context > max) note_smaller_context(options.context, max);
  note("context: " + std::to_string(model->service->context()) + " tokens");
  model->weights = weights_hash(*model->runtime.model);
  model->quant = quant_name(run);
  model->fingerprint = "pinion-" PINION_VERSION "-" + build_commit() + "-" + model->quant + "-" + model->weights;
  const Golden head{this_program(), run, model->weights, model->runtime.model->calibration, {}, {}, {}};
  model->golden_head = golden_head_json(head).dump();
  *out = model;
  return warm_up(*model, options.warm, &model->warm);
}

}  // namespace pinion
