// pinion serve: serves the model over HTTP through the APIs of OpenAI, Anthropic and Ollama.
#include <sched.h>

#include <csignal>
#include <cstdlib>

#include "apps/commands.h"
#include "apps/serve/http.h"
#include "apps/serve/models.h"

namespace pinion {
namespace {

constexpr Route kRoutes[] = {
    // besides those of the page
    {"GET", "/health", Api::openai, show_health, true, false, true},
    {"GET", "/metrics", Api::openai, show_metrics, false, false, true},
    {"GET", "/v1/models", Api::openai, list_models, false, false, true},
    {"GET", "/v1/models/", Api::openai, show_model, false, false, true},
    {"POST", "/models/load", Api::openai, move_model, false, false, true},
    {"POST", "/models/unload", Api::openai, move_model, false, false, true},
    {"GET", "/v1/fingerprint", Api::openai, show_fingerprint},
    {"POST", "/v1/chat/completions", Api::openai, complete_chat},
    {"POST", "/v1/completions", Api::openai, complete_text},
    {"POST", "/v1/embeddings", Api::openai, embed_texts},
    {"POST", "/v1/rerank", Api::openai, rerank},
    {"POST", "/v2/rerank", Api::openai, rerank},
    {"POST", "/rerank", Api::openai, rerank},
    {"POST", "/v1/messages", Api::anthropic, answer_messages},
    {"POST", "/v1/messages/count_tokens", Api::anthropic, count_tokens},
    {"POST", "/v1/responses", Api::openai, create_response},
    {"GET", "/v1/responses/", Api::openai, show_response, false, false, true},
    {"DELETE", "/v1/responses/", Api::openai, delete_response, false, false, true},
    {"GET", "/api/version", Api::ollama, ollama_version, false, false, true},
    {"GET", "/api/tags", Api::ollama, ollama_tags, false, false, true},
    {"GET", "/api/ps", Api::ollama, ollama_ps, false, false, true},
    {"POST", "/api/embed", Api::ollama, ollama_embed},
    {"POST", "/api/embeddings", Api::ollama, ollama_embed_prompt},
    {"POST", "/api/show", Api::ollama, ollama_show},
    {"POST", "/api/pull", Api::ollama, ollama_pull, false, false, true},
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

struct ServeOptions : ModelOptions {
  HttpOptions http;
  std::string key_file;
  bool no_key = false, quiet = false;
};

std::atomic<EngineLoop*> signalled_engine{nullptr};
std::atomic<int> signals_handled{0};  // handlers that run now, on any thread

// The first SIGTERM or SIGINT drains the engine, the second stops it. Destroyed before the engine, on every path.
// With several boards SIGTERM reports a lost board (apps/cli/boards.h), without which no request can finish. SIGHUP
// ends the server of a single model, as when its terminal is closed.
class EngineSignals {
 public:
  EngineSignals(EngineLoop* engine, bool has_boards, bool has_several) {
    signalled_engine = engine;
    struct sigaction action = {};
    action.sa_handler = [](int number) {
      ++signals_handled;
      if (EngineLoop* signalled = signalled_engine.load()) signalled->signal(number);
      --signals_handled;
    };
    if (!has_boards) sigaction(SIGTERM, &action, nullptr);
    if (has_several) sigaction(SIGHUP, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
  }
  ~EngineSignals() {
    signalled_engine = nullptr;
    while (signals_handled.load() > 0) sched_yield();
  }
  EngineSignals(const EngineSignals&) = delete;
  EngineSignals& operator=(const EngineSignals&) = delete;
};

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
  if (options.models.empty() && options.folders.empty()) return fail_usage("--model is required");
  const auto engine = std::make_shared<EngineLoop>();
  ModelList models(options, engine);
  if (Error e = models.read()) return fail(e);
  if ((models.has_several() || options.idle_seconds > 0) && launched_process().count > 1) {
    return fail_usage("several boards serve one model, which stays loaded: give one --model and no --idle");
  }
  const std::string& drafts = options.speculate;
  if (models.has_several() && is_speculating(drafts) && drafts != "ngram" && !needs_hidden(drafts)) {
    return fail_usage("--speculate " + drafts + ": a draft model needs a single --model; ngram and mtp do not");
  }

  std::vector<Route> routes(std::begin(kRoutes), std::end(kRoutes));
  for (const PageFile& file : page_files()) routes.push_back({"GET", file.path, Api::openai, show_page, true, true});
  HttpListener listener;  // declared last, because its threads use all of the above
  // Before the team pins this thread: new threads inherit its cores.
  const auto listen = [&] {
    Error e = listener.bind(http, routes);
    return e ? e : listener.listen();
  };
  if (Error e = models.open(listen)) return fail(e);
  listener.open(&models);
  const EngineSignals signals(engine.get(), options.run.exchange != nullptr, models.has_several());
  const size_t count = models.list().size();
  const std::string served = count == 1 ? models.list()[0].name : std::to_string(count) + " models";
  const bool is_v6 = http.host.find(':') != std::string::npos;
  print("serving " + served + " at http://" + (is_v6 ? "[" + http.host + "]" : http.host) + ":" +
        std::to_string(listener.port()) + "\n");
  models.run();
  listener.finish([&] { return engine->is_stopping(); });
  // A load cannot be interrupted. The next start removes its unfinished files.
  if (std::ranges::count(models.list(), "loading", &ListedModel::status) > 0) std::_Exit(kSuccess);
  return kSuccess;
}

std::string check_alias(const std::string& alias) {
  const size_t sign = alias.find('=');
  const bool is_whole = sign != alias.npos && sign > 0 && sign + 1 < alias.size();
  return is_whole ? "" : "want NAME=MODEL, have " + alias;
}

void add_model_options(Command app, ServeOptions* options) {
  RunOptions* run = &options->run;
  app.add_option("-m,--model DIR", options->models).replace(find_model_folder);
  app.add_option("--models DIR", options->folders).several();
  app.add_option("--alias NAME=MODEL", options->aliases).check(check_alias);
  app.add_number("--idle SECONDS", options->idle_seconds, 0.1, 1e9);
  app.add_number("--max-loaded N", options->max_loaded, 1, 1 << 20);
  add_number_options(app, run);
  add_threads_option(app, run);
  add_speed_options(app, run);
  app.add_flag("--no-cache", run->no_cache);
  app.when_parsed([options, run] {
    if (options->models.size() == 1 && options->folders.empty()) run->model = options->models.front();
    resolve_quant(run);
  });
}

}  // namespace

Run setup_serve(Command app) {
  auto options = std::make_shared<ServeOptions>();
  add_model_options(app, options.get());
  app.add_option("--host ADDRESS", options->http.host);
  app.add_number("--port N", options->http.port, 0, 65535);
  Option keys = app.add_path("--api-key-file F", options->key_file);
  app.add_option("--allow-origin ORIGIN", options->http.origins).check(check_origin);
  app.add_flag("--no-key", options->no_key).excludes(keys);
  app.add_number("--parallel N", options->parallel, 1, 1024);
  app.add_number("--queue N", options->queue, 0, 1 << 20);
  app.add_number("-c,--context N", options->context, 1, 1 << 30);
  add_speculate_option(app, &options->speculate);
  add_prompt_cache_option(app, &options->prompt_cache);
  app.add_path("--warm F.json", options->warm);
  app.add_option("--pooling MODE", options->pooling);
  add_sampling_options(app, &options->sampling);
  app.add_flag("--quiet", options->quiet);
  app.add_number("--roof-mb N", options->roof_mb, 2, 1 << 20).hidden();  // tests
  return {[options] { return serve(*options); }, {&options->run}};
}

}  // namespace pinion
