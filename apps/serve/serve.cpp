// pinion serve: serves the model over HTTP through the APIs of OpenAI, Anthropic and Ollama.
#include <sched.h>

#include <csignal>
#include <ctime>

#include "apps/cli/speculate.h"
#include "apps/commands.h"
#include "apps/golden/golden.h"
#include "apps/model/build.h"
#include "apps/serve/http.h"
#include "apps/serve/responses.h"
#include "engine/forward/rope.h"
#include "engine/team/memory.h"

namespace pinion {
namespace {

constexpr Route kRoutes[] = {
    // besides those of the page
    {"GET", "/health", Api::openai, show_health, true},
    {"GET", "/metrics", Api::openai, show_metrics},
    {"GET", "/v1/models", Api::openai, list_models},
    {"GET", "/v1/models/", Api::openai, show_model},
    {"GET", "/v1/fingerprint", Api::openai, show_fingerprint},
    {"POST", "/v1/chat/completions", Api::openai, complete_chat},
    {"POST", "/v1/completions", Api::openai, complete_text},
    {"POST", "/v1/messages", Api::anthropic, answer_messages},
    {"POST", "/v1/messages/count_tokens", Api::anthropic, count_tokens},
    {"POST", "/v1/responses", Api::openai, create_response},
    {"GET", "/v1/responses/", Api::openai, show_response},
    {"DELETE", "/v1/responses/", Api::openai, delete_response},
    {"GET", "/api/version", Api::ollama, ollama_version},
    {"GET", "/api/tags", Api::ollama, ollama_tags},
    {"GET", "/api/ps", Api::ollama, ollama_ps},
    {"POST", "/api/embed", Api::ollama, ollama_embed},
    {"POST", "/api/embeddings", Api::ollama, ollama_embed},
    {"POST", "/api/show", Api::ollama, ollama_show},
    {"POST", "/api/pull", Api::ollama, ollama_pull},
    {"POST", "/api/chat", Api::ollama, ollama_generate},
    {"POST", "/api/generate", Api::ollama, ollama_generate},
    {"GET", "/props", Api::openai, show_props},
    {"GET", "/slots", Api::openai, show_slots},
    {"POST", "/apply-template", Api::openai, apply_template},
    {"POST", "/completion", Api::openai, complete_native},
    {"POST", "/infill", Api::openai, infill},
    {"POST", "/tokenize", Api::openai, tokenize_text},
    {"POST", "/detokenize", Api::openai, detokenize_ids},
};

struct ServeOptions {
  RunOptions run;
  SamplingFlags sampling;
  HttpOptions http;
  std::string key_file;
  bool no_key = false, quiet = false;
  int64_t parallel = 8;
  int64_t context = 0;  // 0: as much as fits
  int64_t queue = 64;
  std::string speculate;     // empty: off
  std::string prompt_cache;  // DIR[,SIZE]; empty: none
  std::string warm;          // file with messages; empty: none
  int64_t roof_mb = 0;       // buffer of the bandwidth measurement; 0: far larger than the caches
};

// The KV cache holds `parallel` full contexts, unless that exceeds half of the free memory.
SchedulerOptions scheduler_options(const ServeOptions& options, const Runtime& runtime) {
  const ModelConfig& config = runtime.model->config;
  SchedulerOptions out = scheduler_options(runtime);
  out.sequences = options.parallel;
  out.context = options.context > 0 ? std::min(context_length(config), options.context) : fitting_context(runtime);
  out.pass_rows = std::max(out.pass_rows, 2 * options.parallel);
  out.keeps_hidden = needs_hidden(options.speculate);
  const int64_t block_bytes = kv_shape_of(config, runtime.kv).bytes(kAttentionChunk);
  const int64_t free_bytes = available_memory_bytes() - mapped_bytes(*runtime.model);
  const int64_t sequence = round_up(out.context, kAttentionChunk), all = options.parallel * sequence;
  const int64_t available = block_bytes > 0 ? free_bytes / 2 / block_bytes * kAttentionChunk : all;
  out.positions = std::clamp(available, sequence, all);
  return out;
}

std::atomic<InferenceService*> signalled_service{nullptr};
std::atomic<int> signals_handled{0};  // handlers that run now, on any thread

// The first SIGTERM or SIGINT drains the service, the second stops it. Destroyed before the service, on every path.
// With several boards SIGTERM reports a lost board (apps/cli/boards.h), without which no request can finish.
class DrainOnSignals {
 public:
  DrainOnSignals(InferenceService* service, bool has_boards) {
    signalled_service = service;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      ++signals_handled;
      if (InferenceService* drained = signalled_service.load()) drained->drain();
      --signals_handled;
    };
    if (!has_boards) sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
  }
  ~DrainOnSignals() {
    signalled_service = nullptr;
    while (signals_handled.load() > 0) sched_yield();
  }
  DrainOnSignals(const DrainOnSignals&) = delete;
  DrainOnSignals& operator=(const DrainOnSignals&) = delete;
};

void note_unknown_tool_format(const ChatTemplate& chat_template) {
  const std::string_view source = template_source(chat_template, {.tools = nlohmann::ordered_json::array()});
  if (source.find("tools") == std::string_view::npos || detect_tool_format(source) != ToolFormat::kNone) return;
  note("the tool calls of this model's chat template have an unknown format: they arrive as text");
}

void fill_server_state(const ServeOptions& options, const Runtime& runtime, ServerState* out) {
  out->model = model_name(options.run);
  out->weights = weights_hash(*runtime.model);
  out->fingerprint =
      "pinion-" PINION_VERSION "-" + build_commit() + "-" + std::string(quant_name(options.run)) + "-" + out->weights;
  const Golden head{this_program(), options.run, out->weights, runtime.model->calibration, {}, {}, {}};
  out->golden_head = golden_head_json(head).dump();
  out->quant = quant_name(options.run);
  out->created = std::time(nullptr);
  out->seed = options.sampling.seed;
}

// Evaluates a file's messages and tools first and keeps them in memory, for requests that begin with them.
Error warm_up(const ServerState& server, const std::string& file, std::unique_ptr<RequestGroup>* out) {
  if (file.empty()) return {};
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

std::string check_origin(const std::string& origin) {
  const size_t host = origin.find("://");
  const bool has_path = host != origin.npos && origin.find_first_of("/?#", host + 3) != origin.npos;
  const bool is_origin = origin == "*" || origin == "null" || (host != origin.npos && host > 0 && !has_path);
  return is_origin ? "" : "want SCHEME://HOST or SCHEME://HOST:PORT, without a path, or *";
}

int serve(const ServeOptions& options) {
  if (options.quiet) set_quiet();
  HttpOptions http = options.http;
  if (!is_loopback(http.host) && options.key_file.empty() && !options.no_key) {
    return fail_usage("--host " + http.host +
                      ": other machines could use the model: set --api-key-file, or --no-key to allow that");
  }
  if (Error e = read_keys(options.key_file, &http.keys)) return fail(e);
  if (Error e = check_model_folder(options.run.model)) return fail(e);
  if (Error e = check_speculation(options.speculate, options.run)) return fail(e);
  ServerState server;
  if (Error e = load_model_tokenizer(options.run.model, &server.tokenizer)) return fail(e);
  if (Error e = load_chat_template(options.run.model, &server.chat_template)) return fail(e);
  if (server.chat_template) note_unknown_tool_format(*server.chat_template);
  server.grammars = std::make_shared<GrammarCompiler>(server.tokenizer);
  server.responses = std::make_shared<ResponseStore>();
  if (Error e = sampler_options(options.run.model, options.sampling, &server.sampler)) return fail(e);

  std::vector<Route> routes(std::begin(kRoutes), std::end(kRoutes));
  for (const PageFile& file : page_files()) routes.push_back({"GET", file.path, Api::openai, show_page, true, true});
  Runtime runtime;
  Drafting drafting;
  std::unique_ptr<InferenceService> service;
  HttpListener listener;  // declared last, because its threads use all of the above
  // Started before the team pins this thread: new threads inherit its cores.
  if (Error e = listener.bind(http, routes)) return fail(e);
  if (Error e = listener.listen()) return fail(e);
  if (Error e = open_with_progress(options.run, server.tokenizer.get(), &runtime)) return fail(e);
  std::unique_ptr<Scheduler> scheduler;
  if (Error e = open_scheduler(*runtime.model, *runtime.team, scheduler_options(options, runtime), &scheduler)) {
    return fail(e);
  }
  const RecurrentState& state = scheduler->free_sequences.front().state;
  if (Error e = open_prompt_cache(options.prompt_cache, *scheduler, state)) return fail(e);
  if (Error e = begin_speculation(options.speculate, options.run, runtime, scheduler.get(), &drafting)) return fail(e);
  const ServiceOptions service_options{
      .max_waiting = options.queue,
      .speculates = drafting.speculates,
      .roof_buffer_bytes = options.roof_mb > 0 ? options.roof_mb << 20 : roof_buffer_bytes()};
  service = std::make_unique<InferenceService>(std::move(scheduler), server.tokenizer, service_options);
  if (const int64_t max = service->context(); options.context > max) note_smaller_context(options.context, max);
  note("context: " + std::to_string(service->context()) + " tokens");
  fill_server_state(options, runtime, &server);
  server.service = service.get();
  std::unique_ptr<RequestGroup> warm;
  if (Error e = warm_up(server, options.warm, &warm)) return fail(e);
  listener.open(&server);
  const DrainOnSignals drain_on_signals(service.get(), options.run.exchange != nullptr);
  const bool is_v6 = http.host.find(':') != std::string::npos;
  print("serving " + server.model + " at http://" + (is_v6 ? "[" + http.host + "]" : http.host) + ":" +
        std::to_string(listener.port()) + "\n");
  service->run();
  listener.finish([&] { return service->is_stopping(); });
  return kSuccess;
}

}  // namespace

Run setup_serve(Command app) {
  auto options = std::make_shared<ServeOptions>();
  add_run_options(app, &options->run);
  app.add_option("--host ADDRESS", options->http.host, "Address to listen on; the default admits this machine only");
  app.add_number("--port N", options->http.port, 0, 65535, "Port to listen on; 0: any free one");
  Option keys = app.add_path("--api-key-file F", options->key_file,
                             "Accept only clients that send a key of this file (one per line)");
  app.add_option("--allow-origin ORIGIN", options->http.origins,
                 "Accept requests of ORIGIN's web pages (app://obsidian.md, http://localhost:3000); repeatable; *: of "
                 "every page that this machine visits, which is dangerous")
      .check(check_origin);
  app.add_flag("--no-key", options->no_key, "Accept clients of other machines without a key").excludes(keys);
  app.add_number("--parallel N", options->parallel, 1, 1024,
                 "Requests that run at once; none changes the text of another");
  app.add_number("--queue N", options->queue, 0, 1 << 20, "Requests that may wait; more are refused with status 429");
  app.add_number("-c,--context N", options->context, 1, 1 << 30,
                 "Context length in tokens (default: the model's, or what fits in half of the free memory)");
  add_speculate_option(app, &options->speculate);
  add_prompt_cache_option(app, &options->prompt_cache);
  app.add_path("--warm F.json", options->warm,
               "Read these messages and tools first and keep them in memory: {\"messages\": [..], \"tools\": [..]}");
  add_sampling_options(app, &options->sampling);
  add_quiet_option(app, &options->quiet);
  app.add_number("--roof-mb N", options->roof_mb, 2, 1 << 20, "Buffer of the bandwidth measurement").hidden();  // tests
  return {[options] { return serve(*options); }, {&options->run}};
}

}  // namespace pinion
