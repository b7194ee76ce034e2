// pinion generate: prints the continuation of one prompt while it is generated, and a line of figures at the end.
#include "apps/commands/generate.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli/speculate.h"
#include "apps/commands.h"
#include "engine/team/memory.h"
#include "kernels/base/hash.h"

namespace pinion {
namespace {

constexpr double kMostLogprobs = 1000;

Error read_prompt(const GenerateFlags& options, std::string* out) {
  if (options.prompt) {
    *out = *options.prompt;
    return {};
  }
  if (Error e = read_input(options.prompt_file.value_or("-"), kMaxTextBytes, out)) return e;
  if (out->ends_with('\n')) out->pop_back();  // from an editor or echo, and not part of the prompt
  return {};
}

OrderedJson stats_json(const GenerateFlags& options, const Runtime& runtime, const SamplerOptions& sampler,
                       const GenerateResult& result) {
  const double passes = static_cast<double>(result.decode_passes);
  return {
      {"prompt_tokens", result.reused_tokens + result.prefilled_tokens},
      {"reused_tokens", result.reused_tokens},
      {"tokens_from_disk", result.loaded_tokens},
      {"generated_tokens", result.ids.size()},
      {"prompt_tokens_per_second", rate_json(static_cast<double>(result.prefilled_tokens), result.prefill_seconds)},
      {"decode_tokens_per_second", rate_json(static_cast<double>(decoded_tokens(result)), result.decode_seconds)},
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
      {"temperature", decimal_of(sampler.temperature)},
      {"seed", sampler.seed},
      {"speculate", options.speculate},
      {"drafted_tokens", result.drafted},
      {"accepted_tokens", result.accepted},
      {"tokens_per_pass", rate_json(static_cast<double>(decoded_tokens(result)), passes)},
      {"logits_hash", hash_text(result.logits_hash)},
  };
}

void print_figures(const Runtime& runtime, const SamplerOptions& sampler, const GenerateResult& result) {
  std::fprintf(stderr, "[%lld prompt tokens at %s/s, %zu tokens at %s/s, loaded in %.2f s, peak %s%s]\n",
               static_cast<long long>(result.prefilled_tokens),
               rate_text(static_cast<double>(result.prefilled_tokens), result.prefill_seconds).c_str(),
               result.ids.size(), rate_text(static_cast<double>(decoded_tokens(result)), result.decode_seconds).c_str(),
               runtime.model->load_seconds, bytes_text(static_cast<double>(peak_rss_bytes())).c_str(),
               seed_text(sampler).c_str());
}

OrderedJson token_json(const TokenLogprob& token, const Tokenizer* tokenizer) {
  return {{"id", token.id},
          {"token", tokenizer ? OrderedJson(token_text(*tokenizer, token.id)) : OrderedJson(nullptr)},
          {"logprob", token.logprob}};
}

OrderedJson logprobs_json(const std::vector<Logprobs>& list, const Tokenizer* tokenizer) {
  OrderedJson json = OrderedJson::array();
  for (const Logprobs& entry : list) {
    OrderedJson& item = json.emplace_back(token_json(entry.token, tokenizer));
    item["top"] = OrderedJson::array();
    for (const TokenLogprob& likely : entry.top) item["top"].push_back(token_json(likely, tokenizer));
  }
  return json;
}

void print_result(const GenerateFlags& options, const std::vector<int32_t>& prompt_ids, const Tokenizer* tokenizer,
                  const std::string& text, const GenerateResult& result, const OrderedJson& stats) {
  OrderedJson json = {{"prompt_ids", prompt_ids},
                      {"ids", result.ids},
                      {"text", tokenizer ? OrderedJson(text) : OrderedJson(nullptr)},
                      {"finish_reason", finish_reason_name(result.finish_reason)}};
  if (options.logprobs) {
    json["prompt_logprobs"] = logprobs_json(result.prompt_logprobs, tokenizer);
    json["logprobs"] = logprobs_json(result.logprobs, tokenizer);
  }
  json["stats"] = stats;
  print_json(json);
}

int run_generate(GenerateFlags& options) {
  if (options.max_tokens < 0) options.max_tokens = kUnlimitedTokens;
  if (options.quiet) set_quiet();
  // With a grammar, the text that it determines is drafted as well.
  if (options.speculate.empty()) options.speculate = options.grammar.any() && !options.prompts ? "ngram" : "off";
  if (options.logprobs && !options.json) return fail_usage("--logprobs needs --json");
  if (is_speculating(options.speculate) && options.prompts)
    return fail_usage("--speculate is for one prompt, not for --prompts");
  if (options.logprobs && options.prompts) return fail_usage("--logprobs is for one prompt, not for --prompts");
  if (options.parallel > 0 && !options.prompts) {
    return fail_usage("--parallel is for --prompts F.jsonl, not for one prompt");
  }
  const bool is_prompt_given = options.prompt || options.prompt_file || options.prompt_ids || options.prompts;
  if (!is_prompt_given && on_terminal(STDIN_FILENO)) {
    return fail_usage("no prompt: give --prompt, --prompt-file, --prompt-ids or text on standard input");
  }
  std::vector<int32_t> prompt_ids;
  if (options.prompt_ids) {
    if (Error e = parse_ids(*options.prompt_ids, &prompt_ids)) return fail_usage("--prompt-ids: " + e.message());
  }
  if (Error e = check_model_folder(options.run.model)) return fail(e);
  if (Error e = check_speculation(options.speculate, options.run)) return fail(e);
  SamplerOptions sampler;
  if (Error e = sampler_options(options.run.model, options.sampling, &sampler)) return fail(e);
  std::shared_ptr<const Tokenizer> tokenizer;
  const bool needs_tokenizer = !options.prompt_ids && !options.prompts;
  if (needs_tokenizer || has_tokenizer(options.run.model)) {
    if (Error e = load_model_tokenizer(options.run.model, &tokenizer)) return fail(e);
  }
  if (!tokenizer && !options.stops.empty()) return fail(error("needs a tokenizer", "--stop"));
  if (Error e = find_dry_breakers(options.sampling, tokenizer.get(), &sampler)) return fail(e);
  MakeRules rules;
  if (Error e = read_grammar(options.grammar, tokenizer, &rules)) return fail(e);
  if (options.prompts) return generate_many(options, sampler, rules, tokenizer);
  if (!options.prompt_ids) {
    std::string prompt;
    if (Error e = read_prompt(options, &prompt)) return fail(e);
    if (Error e = encode_prompt(options.run.model, *tokenizer, prompt, &prompt_ids)) return fail(e);
  }

  Runtime runtime;
  if (Error e = open_with_progress(options.run, tokenizer.get(), &runtime)) return fail(e);
  Drafting drafting;
  std::unique_ptr<Session> session;
  const int64_t capacity = std::ssize(prompt_ids) + options.max_tokens;
  const SessionNeeds needs = {.capacity = capacity, .keeps_hidden = needs_hidden(options.speculate)};
  if (Error e = open_session(runtime, needs, &session)) return fail(e);
  if (options.prompt_cache.empty()) session->snapshots.limit_bytes = 0;  // no later prompt could reuse them
  if (Error e = open_prompt_cache(options.prompt_cache, *session, session->sequence.state)) return fail(e);
  if (Error e = begin_speculation(options.speculate, options.run, runtime, session.get(), &drafting)) return fail(e);
  session->speculates = drafting.speculates;

  // A terminal shows prompt and continuation; a script gets the continuation alone.
  const bool shows_prompt = tokenizer && !options.json && on_terminal(STDOUT_FILENO);
  const bool at_start = shows_prompt || is_at_start(tokenizer.get(), prompt_ids, rules);
  TextOutput stream(!options.json, options.stops, tokenizer, at_start);
  if (shows_prompt) stream.put_prompt(prompt_ids);
  GenerateResult result;
  GenerateOptions how = {.max_tokens = options.max_tokens,
                         .sampler = sampler,
                         .ignore_eos = options.ignore_eos,
                         .hash_logits = options.json,
                         .rules = rules};
  if (options.logprobs) how.logprobs = how.prompt_logprobs = static_cast<int32_t>(*options.logprobs);
  if (Error e = generate(*session, prompt_ids, how, [&](int32_t id) { return stream.put(id); }, &result)) {
    return fail(e);
  }
  stream.finish();
  note_draft_failure(*session, &drafting.failure_noted);
  if (options.json) {
    const OrderedJson stats = stats_json(options, runtime, sampler, result);
    print_result(options, prompt_ids, tokenizer.get(), stream.text(), result, stats);
  } else if (!options.quiet) {
    print_figures(runtime, sampler, result);
  }
  if (result.finish_reason == FinishReason::context) {
    note("the text ends because the context of " + std::to_string(session->sequence.cache.capacity) +
         " tokens is full");
  }
  return kSuccess;
}

}  // namespace

Run setup_generate(Command app) {
  auto options = std::make_shared<GenerateFlags>();
  add_run_options(app, &options->run);
  std::vector<Option> sources = {
      app.add_option("-p,--prompt TEXT", options->prompt, "The text to continue (default: standard input)"),
      app.add_path("-f,--prompt-file F", options->prompt_file, "File with the prompt"),
      app.add_option("--prompt-ids LIST", options->prompt_ids, "Token ids of the prompt: 1,2,3; no tokenizer needed"),
      app.add_path("--prompts F.jsonl", options->prompts,
                   "Many prompts, one JSON object per line: {\"prompt\": TEXT} or {\"prompt_ids\": [..]}; prints one "
                   "line for each")};
  for (auto source = sources.begin(); source != sources.end(); ++source) {
    for (auto earlier = sources.begin(); earlier != source; ++earlier) source->excludes(*earlier);
  }
  app.add_number("--parallel N", options->parallel, 1, 1024,
                 "With --prompts: requests decoded at once; does not change their text (default: 8)");
  app.add_number("-n,--max-tokens N", options->max_tokens, -1, 1 << 30,
                 "Maximum number of tokens to generate; -1 is 8192")
      .show_default();
  add_prompt_cache_option(app, &options->prompt_cache);
  add_stop_option(app, &options->stops);
  add_grammar_options(app, &options->grammar);
  add_speculate_option(app, &options->speculate);
  add_sampling_options(app, &options->sampling);
  app.add_number("--logprobs N", options->logprobs, 0, kMostLogprobs,
                 "With --json: log probabilities of prompt and text, each with the N most likely tokens")
      .whole();
  app.add_flag("--ignore-eos", options->ignore_eos, "Continue after the tokens that end a text");
  app.add_flag("--json", options->json, "Print one JSON object at the end instead of the text");
  add_quiet_option(app, &options->quiet);
  return {[options] { return run_generate(*options); }, {&options->run}};
}

}  // namespace pinion
