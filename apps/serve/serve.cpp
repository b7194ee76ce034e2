// pinion serve: the model behind HTTP, with the endpoints that OpenAI's clients know.
#include <sched.h>

#include <csignal>
#include <ctime>
#include <nlohmann/json.hpp>

#include "apps/cli/common.h"
#include "apps/commands.h"
#include "apps/golden/subject.h"
#include "apps/model/build.h"
#include "apps/serve/api.h"
#include "apps/serve/http.h"
#include "apps/serve/http_guard.h"
#include "apps/serve/page.h"
#include "engine/forward/rope.h"
#include "engine/team/memory.h"

namespace pinion {
namespace {

constexpr Route kRoutes[] = {
    {"GET", "/", Shape::openai, show_page, true, true},
    {"GET", "/style.css", Shape::openai, show_style, true, true},
    {"GET", "/app.js", Shape::openai, show_app, true, true},
    {"GET", "/chats.js", Shape::openai, show_chats, true, true},
    {"GET", "/client.js", Shape::openai, show_client, true, true},
    {"GET", "/markdown.js", Shape::openai, show_markdown, true, true},
    {"GET", "/messages.js", Shape::openai, show_messages, true, true},
    {"GET", "/settings.js", Shape::openai, show_settings, true, true},
    {"GET", "/health", Shape::openai, show_health, true},
    {"GET", "/metrics", Shape::openai, show_metrics},
    {"GET", "/v1/models", Shape::openai, list_models},
    {"GET", "/v1/models/", Shape::openai, show_model},
    {"GET", "/v1/fingerprint", Shape::openai, show_fingerprint},
    {"POST", "/v1/chat/completions", Shape::openai, complete_chat},
    {"POST", "/v1/completions", Shape::openai, complete_text},
    {"POST", "/v1/messages", Shape::anthropic, answer_messages},
    {"POST", "/v1/messages/count_tokens", Shape::anthropic, count_tokens},
    {"GET", "/api/version", Shape::ollama, ollama_version},
    {"GET", "/api/tags", Shape::ollama, ollama_tags},
    {"GET", "/api/ps", Shape::ollama, ollama_ps},
    {"POST", "/api/embed", Shape::ollama, ollama_embed},
    {"POST", "/api/embeddings", Shape::ollama, ollama_embed},
    {"POST", "/api/show", Shape::ollama, ollama_show},
    {"POST", "/api/chat", Shape::ollama, ollama_chat},
    {"POST", "/api/generate", Shape::ollama, ollama_generate},
    {"POST", "/tokenize", Shape::openai, tokenize_text},
    {"POST", "/detokenize", Shape::openai, detokenize_ids},
};

struct Options {
  RunOptions run;
  SamplingFlags sampling;
  HttpOptions http;
  std::string key_file;
  bool no_key = false, quiet = false;
  int64_t parallel = 8;
  int64_t context = 0;  // 0: the model's, up to kDefaultContext
  int64_t queue = 64;
  std::string speculate = "off";
  int64_t roof_mb = 0;  // that the roof reads; 0: far beyond the caches
};

// Places for `parallel` texts, and as many positions of theirs as half of the free memory holds.
SchedulerOptions scheduler_options(const Options& options, const Runtime& runtime) {
  const ModelConfig& config = runtime.model->config;
  SchedulerOptions out = scheduler_options(runtime);
  out.sequences = options.parallel;
  out.context = std::min(context_length(config), options.context > 0 ? options.context : kDefaultContext);
  out.pass_rows = std::max(out.pass_rows, 2 * options.parallel);
  const int64_t chunk_bytes = kv_shape_of(config, runtime.kv).bytes(kAttentionChunk);
  const int64_t free_bytes = available_memory_bytes() - mapped_bytes(*runtime.model);
  const int64_t one = round_up(out.context, kAttentionChunk), all = options.parallel * one;
  const int64_t held = chunk_bytes > 0 ? free_bytes / 2 / chunk_bytes * kAttentionChunk : all;
  out.positions = std::clamp(held, one, all);
  return out;
}

std::atomic<TextService*> serving_now{nullptr};
std::atomic<int> signals_handled{0};  // right now, on any thread

// The first SIGTERM or Ctrl-C lets texts end, the second one does not. Goes before the service does, however that ends.
// On several boards SIGTERM says that one is lost (apps/cli/boards.h), without which no text ends.
class DrainOnSignals {
 public:
  DrainOnSignals(TextService* service, bool has_boards) {
    serving_now = service;
    struct sigaction action = {};
    action.sa_handler = [](int) {
      ++signals_handled;
      if (TextService* one = serving_now.load()) one->drain();
      --signals_handled;
    };
    if (!has_boards) sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
  }
  ~DrainOnSignals() {
    serving_now = nullptr;
    while (signals_handled.load() > 0) sched_yield();
  }
  DrainOnSignals(const DrainOnSignals&) = delete;
  DrainOnSignals& operator=(const DrainOnSignals&) = delete;
};

Error check_host(const Options& options) {
  if (is_loopback(options.http.host) || !options.key_file.empty() || options.no_key) return {};
  return error("others could use the model: --api-key-file F names a file of keys, --no-key lets everybody in",
               "--host " + options.http.host);
}

void fill(const Options& options, const Runtime& runtime, Serving* out) {
  const std::string repository = repository_name(options.run.model);
  const std::filesystem::path folder = std::filesystem::absolute(options.run.model).lexically_normal();
  const std::string name = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  out->model = repository.empty() ? name : repository;
  out->weights = weights_hash(*runtime.model);
  out->fingerprint =
      "pinion-" PINION_VERSION "-" + build_commit() + "-" + std::string(quant_name(options.run)) + "-" + out->weights;
  out->golden_head = golden_head_json({.recorder = this_program(),
                                       .run = options.run,
                                       .weights = out->weights,
                                       .calibration = runtime.model->calibration,
                                       .sampler = {},
                                       .prompts = {},
                                       .answers = {}})
                         .dump();
  out->family = runtime.model->config.family;
  out->parameters = std::to_string(count_parameters(runtime.model->config).all / 1'000'000) + "M";
  out->quant = quant_name(options.run);
  out->weight_bytes = runtime.model->weight_bytes;
  out->created = std::time(nullptr);
  out->seed = options.sampling.seed;
}

int run(const Options& options) {
  if (options.quiet) be_quiet();
  HttpOptions http = options.http;
  if (Error e = check_host(options)) return fail_usage(e.message());
  if (Error e = read_keys(options.key_file, &http.keys)) return fail(e);
  if (Error e = check_model_folder(options.run.model)) return fail(e);
  Serving serving;
  if (Error e = load_own_tokenizer(options.run.model, &serving.tokenizer)) return fail(e);
  if (Error e = load_chat_template(options.run.model, &serving.chat_template)) return fail(e);
  serving.grammars = std::make_shared<GrammarCompiler>(serving.tokenizer);
  if (Error e = sampler_options(options.run.model, options.sampling, &serving.sampler)) return fail(e);

  Runtime runtime;
  std::unique_ptr<TextService> service;
  HttpListener listener;  // whose threads use all of these: it goes first
  // Before the team pins this thread: those that it starts are where it is.
  if (Error e = listener.bind(http, kRoutes)) return fail(e);
  if (Error e = listener.listen()) return fail(e);
  if (Error e = open_with_progress(options.run, &runtime)) return fail(e);
  std::unique_ptr<Scheduler> scheduler;
  if (Error e = open_scheduler(*runtime.model, *runtime.team, scheduler_options(options, runtime), &scheduler)) {
    return fail(e);
  }
  const ServiceOptions how{.most_waiting = options.queue,
                           .speculates = options.speculate == "ngram",
                           .roof_buffer_bytes = options.roof_mb > 0 ? options.roof_mb << 20 : roof_buffer_bytes()};
  service = std::make_unique<TextService>(std::move(scheduler), serving.tokenizer, how);
  if (const int64_t most = service->context(); options.context > most) note_smaller_context(options.context, most);
  fill(options, runtime, &serving);
  serving.service = service.get();
  listener.open(&serving);
  const DrainOnSignals drain_on_signals(service.get(), options.run.exchange != nullptr);
  const bool is_v6 = http.host.find(':') != std::string::npos;
  print("serving " + serving.model + " at http://" + (is_v6 ? "[" + http.host + "]" : http.host) + ":" +
        std::to_string(listener.port()) + "\n");
  service->run();
  listener.finish([&] { return service->is_hurried(); });
  return kSuccess;
}

}  // namespace

Run setup_serve(Command app) {
  auto options = std::make_shared<Options>();
  add_run_options(app, &options->run);
  app.add_option("--host", options->http.host, "Where to listen; only on this machine, unless another address is given")
      .type_name("ADDRESS")
      .show_default();
  app.add_option("--port", options->http.port, "0: any that is free").range(0, 65535).type_name("N").show_default();
  Option keys =
      app.add_option("--api-key-file", options->key_file, "Clients must send a key that this file has, one a line")
          .path("F");
  app.add_flag("--no-key", options->no_key, "Let everybody in who reaches the address").excludes(keys);
  app.add_option("--parallel", options->parallel, "How many texts at once; each is what it is alone")
      .range(1, 1024)
      .type_name("N")
      .show_default();
  app.add_option("--queue", options->queue, "How many more may wait; beyond that clients are told to come again")
      .range(0, 1 << 20)
      .type_name("N")
      .show_default();
  app.add_option("-c,--context", options->context, "Tokens that a text may have (default: the model's, up to 8192)")
      .range(1, 1 << 30)
      .type_name("N");
  app.add_option("--speculate", options->speculate,
                 "Try what a text said before in the same words (ngram): the same texts, sooner where they repeat")
      .one_of({"off", "ngram"})
      .show_default();
  add_sampling_options(app, &options->sampling);
  add_quiet_option(app, &options->quiet);
  app.add_option("--roof-mb", options->roof_mb, "Memory that the roof reads").range(2, 1 << 20).hidden();  // for tests
  return {[options] { return run(*options); }, {&options->run}};
}

}  // namespace pinion
