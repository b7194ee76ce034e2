// pinion generate: one prompt in, its continuation out as it comes, a line of figures at the end.
#include "engine/session/generate.h"

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdio>

#include "apps/cli/machine.h"
#include "apps/commands.h"
#include "engine/team/memory.h"
#include "loader/checkpoint/mapped_file.h"
#include "tokenizer/tokenizer.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  SamplingFlags sampling;
  std::optional<std::string> prompt, prompt_file, prompt_ids;
  int64_t max_tokens = 256;
  bool ignore_eos = false;
  bool json = false;
};

// One newline at the end is the editor's or echo's, not the prompt's.
std::string without_final_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Error read_prompt(const Options& options, std::string* out) {
  if (options.prompt) {
    *out = *options.prompt;
    return {};
  }
  if (options.prompt_file) {
    if (Error e = read_text_file(*options.prompt_file, kMaxTextBytes, out)) return e;
  } else if (Error e = read_standard_input(kMaxTextBytes, out)) {
    return e;
  }
  *out = without_final_newline(std::move(*out));
  return {};
}

OrderedJson stats_json(const Options& options, const Runtime& runtime, const SamplerOptions& sampler,
                       const GenerateResult& result) {
  const double passes = static_cast<double>(result.decode_passes);
  return {
      {"prompt_tokens", result.reused_tokens + result.prefilled_tokens},
      {"reused_tokens", result.reused_tokens},
      {"generated_tokens", result.ids.size()},
      {"prompt_tokens_per_second", rate_json(static_cast<double>(result.prefilled_tokens), result.prefill_seconds)},
      {"decode_tokens_per_second", rate_json(passes, result.decode_seconds)},
      {"load_seconds", runtime.model->load_seconds},
      {"weights_from_cache", runtime.model->from_cache()},
      {"prefill_seconds", result.prefill_seconds},
      {"decode_seconds", result.decode_seconds},
      {"peak_rss_bytes", peak_rss_bytes()},
      {"bytes_per_token", runtime.model->bytes_per_pass(1)},
      {"regions_per_token", rate_json(static_cast<double>(result.regions), passes)},
      {"barriers_per_token", rate_json(static_cast<double>(result.barriers), passes)},
      {"kernels", runtime.kernels->name},
      {"threads", runtime.team->size()},
      {"prefill_threads", runtime.prefill_team->size()},
      {"quant", quant_name(options.run)},
      {"rotate", options.run.load.rotate},
      {"head", head_name(options.run)},
      {"kv", kv_name(options.run)},
      {"temperature", sampler.temperature},
      {"seed", sampler.seed},
      {"logits_hash", hash_text(result.logits_hash)},
  };
}

void print_figures(const Runtime& runtime, const SamplerOptions& sampler, const GenerateResult& result) {
  const std::string seed = sampler.temperature > 0 ? ", seed " + std::to_string(sampler.seed) : "";
  std::fprintf(stderr, "[%lld prompt tokens at %s/s, %zu tokens at %s/s, loaded in %.2f s, peak %s%s]\n",
               static_cast<long long>(result.prefilled_tokens),
               rate_text(static_cast<double>(result.prefilled_tokens), result.prefill_seconds).c_str(),
               result.ids.size(), rate_text(static_cast<double>(result.decode_passes), result.decode_seconds).c_str(),
               runtime.model->load_seconds, bytes_text(static_cast<double>(peak_rss_bytes())).c_str(), seed.c_str());
}

// Text as it becomes whole characters; without a tokenizer the ids, separated by commas.
struct Stream {
  std::optional<StreamDecoder> decoder;
  bool first = true;

  void put(int32_t id) {
    if (decoder) {
      print(decoder->put(id));
    } else {
      print((first ? "" : ",") + std::to_string(id));
    }
    first = false;
  }
  void finish() { print((decoder ? decoder->finish() : "") + "\n"); }
};

int run(const Options& options) {
  const bool is_prompt_given = options.prompt || options.prompt_file || options.prompt_ids;
  if (!is_prompt_given && on_terminal(STDIN_FILENO)) {
    return fail_usage("no prompt: give --prompt, --prompt-file, --prompt-ids or text on standard input");
  }
  std::vector<int32_t> prompt_ids;
  if (options.prompt_ids) {
    if (Error e = parse_ids(*options.prompt_ids, &prompt_ids)) return fail_usage("--prompt-ids: " + e.message());
  }
  if (Error e = check_model_folder(options.run.model)) return fail(e);
  SamplerOptions sampler;
  if (Error e = sampler_options(options.run.model, options.sampling, &sampler)) return fail(e);
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!options.prompt_ids || has_tokenizer(options.run.model)) {
    if (Error e = load_tokenizer(options.run.model, &tokenizer)) return fail(e);
  }
  if (!options.prompt_ids) {
    std::string prompt;
    if (Error e = read_prompt(options, &prompt)) return fail(e);
    prompt_ids = encode(*tokenizer, prompt);
  }

  Runtime runtime;
  if (Error e = open_with_progress(options.run, &runtime)) return fail(e);
  std::unique_ptr<Session> session;
  const int64_t capacity = std::ssize(prompt_ids) + options.max_tokens;
  if (Error e = open_session(runtime, capacity, &session)) return fail(e);
  session->snapshots.limit_bytes = 0;  // nothing follows this prompt

  Stream stream;
  if (tokenizer) stream.decoder.emplace(tokenizer);
  // A person reads the whole text; a script gets the continuation alone.
  if (tokenizer && !options.json && on_terminal(STDOUT_FILENO)) {
    for (const int32_t id : prompt_ids) stream.put(id);
  }
  GenerateResult result;
  const auto on_token = [&](int32_t id) {
    if (!options.json) stream.put(id);
    return true;
  };
  const GenerateOptions how = {options.max_tokens, sampler, options.ignore_eos, options.json};
  if (Error e = generate(*session, prompt_ids, how, on_token, &result)) {
    return fail(e);
  }
  if (options.json) {
    print_json({{"prompt_ids", prompt_ids},
                {"ids", result.ids},
                {"text", tokenizer ? OrderedJson(decode(*tokenizer, result.ids)) : OrderedJson(nullptr)},
                {"finish_reason", finish_reason_name(result.finish_reason)},
                {"stats", stats_json(options, runtime, sampler, result)}});
  } else {
    stream.finish();
    print_figures(runtime, sampler, result);
  }
  return kSuccess;
}

}  // namespace

Run setup_generate(Command app) {
  auto options = std::make_shared<Options>();
  add_run_options(app, &options->run);
  Option prompt = app.add_option("-p,--prompt", options->prompt, "The text to continue (default: standard input)");
  Option file = app.add_option("-f,--prompt-file", options->prompt_file, "A file that holds it");
  Option ids = app.add_option("--prompt-ids", options->prompt_ids, "Its token ids, 1,2,3: needs no tokenizer");
  prompt.type_name("TEXT");
  file.type_name("F").excludes(prompt);
  ids.type_name("LIST").excludes(prompt).excludes(file);
  app.add_option("-n,--max-tokens", options->max_tokens, "Tokens to generate at most")
      .range(0, 1 << 30)
      .type_name("N")
      .show_default();
  add_sampling_options(app, &options->sampling);
  app.add_flag("--ignore-eos", options->ignore_eos, "Go on after the model has ended its text");
  app.add_flag("--json", options->json, "Print one JSON object at the end instead of text");
  return [options] { return run(*options); };
}

}  // namespace pinion
