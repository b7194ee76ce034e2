// pinion generate: prints the continuation of one prompt while it is generated, and a line of figures at the end, or
// decodes many prompts in batches; each text is the same as without the others.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/cli/grammar_rules.h"
#include "apps/cli/speculate.h"
#include "apps/commands.h"
#include "engine/forward/rope.h"
#include "engine/session/session.h"
#include "engine/team/memory.h"
#include "kernels/base/clock.h"
#include "kernels/base/hash.h"
#include "kernels/base/text.h"
#include "loader/files/json.h"
#include "tokenizer/answers/answer_text.h"

namespace pinion {
namespace {

constexpr int64_t kUnlimitedTokens = 8192;  // --max-tokens -1
constexpr size_t kMaxIgnored = 1000;        // names of fields

struct GenerateFlags {
  RunOptions run;
  SamplingFlags sampling;
  std::string speculate;  // empty: ngram with a grammar, otherwise off
  GrammarFlags grammar;
  std::optional<std::string> prompt, prompt_file, prompt_ids, prompts;
  std::string prompt_cache;  // DIR[,SIZE]; empty: none
  int64_t parallel = 0;      // 0: the default
  int64_t max_tokens = 256;
  std::vector<std::string> stops;
  std::optional<double> logprobs;
  bool ignore_eos = false;
  bool json = false;
  bool quiet = false;
};

// Decodes tokens to whole characters, up to a stop text. Without a tokenizer the text is the ids: "1,2,3".
class TextOutput {
 public:
  // at_start: see IncrementalDecoder.
  TextOutput(bool shown, const std::vector<std::string>& stops, std::shared_ptr<const Tokenizer> tokenizer,
             bool at_start)
      : shown_(shown), stop_texts_(stops) {
    if (tokenizer) decoder_.emplace(std::move(tokenizer), true, at_start);
  }

  void put_prompt(std::span<const int32_t> ids) {
    for (const int32_t id : ids) show(decoder_->put(id));
  }
  // Returns false after a stop text.
  bool put(int32_t id) {
    add(decoder_ ? stop_texts_.put(decoder_->put(id)) : (text_.empty() ? "" : ",") + std::to_string(id));
    return !stop_texts_.found();
  }
  void finish() {
    if (decoder_) add(stop_texts_.finish(decoder_->finish()));
    show("\n");
  }
  const std::string& text() const { return text_; }

 private:
  void add(const std::string& text) {
    text_ += text;
    show(text);
  }
  void show(std::string_view text) const {
    if (shown_) print(text);
  }

  bool shown_;
  std::optional<IncrementalDecoder> decoder_;
  StopTexts stop_texts_;
  std::string text_;
};

// True if the text starts without the tokenizer's leading space. Constrained text does not continue its prompt.
bool is_at_start(const Tokenizer* tokenizer, std::span<const int32_t> prompt, const MakeRules& rules) {
  return tokenizer && !rules && !has_text(*tokenizer, prompt);
}

// ", seed 7" for the line of figures; empty in greedy decoding.
std::string seed_text(const SamplerOptions& sampler) {
  return sampler.temperature > 0 ? ", seed " + std::to_string(sampler.seed) : "";
}

// --- Many prompts

struct Item {
  std::vector<int32_t> prompt;
  int64_t max_tokens;
  std::unique_ptr<TextOutput> text;
};

struct Reader {
  const GenerateFlags& flags;
  const Tokenizer* tokenizer;
  int64_t context;
  std::set<std::string> ignored = {};  // fields such as temperature, which have no effect here
};

// One line of the file.
Error read_item(Reader& reader, std::string_view line, const std::string& where, Item* out) {
  Json json;
  if (Error e = parse_json(line, where, &json)) return e;
  JsonFields fields{json, where};
  out->max_tokens = fields.integer("max_tokens", reader.flags.max_tokens, -1, 1 << 30);
  if (out->max_tokens < 0) out->max_tokens = kUnlimitedTokens;
  const bool has_ids = fields.has("prompt_ids");
  if (has_ids && fields.has("prompt")) return error("both prompt and prompt_ids", where, "one of them");
  if (has_ids) out->prompt = read_token_ids(fields, "prompt_ids");
  const std::string prompt = has_ids ? "" : fields.text("prompt");
  for (const std::string& name : fields.unread()) {
    if (reader.ignored.size() < kMaxIgnored) reader.ignored.insert(name);
  }
  if (fields.error || has_ids) return fields.error;
  if (!reader.tokenizer)
    return error("a prompt needs a tokenizer, which the folder does not have", where, "prompt_ids");
  if (Error e = encode(*reader.tokenizer, prompt, {.max_tokens = reader.context}, &out->prompt)) {
    return error(e.message(), where);
  }
  return {};
}

// Skips empty lines.
Error read_items(const GenerateFlags& flags, const MakeRules& rules, const std::shared_ptr<const Tokenizer>& tokenizer,
                 std::vector<Item>* out) {
  ModelConfig config;
  if (Error e = read_model_config(flags.run.model, &config)) return e;
  Reader reader{flags, tokenizer.get(), context_length(config)};
  std::string text;
  if (Error e = read_input(*flags.prompts, kMaxTextBytes, &text)) return e;
  int64_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (trimmed(line).empty()) continue;
    Item& item = out->emplace_back();
    const std::string where = input_name(*flags.prompts) + ", line " + std::to_string(number);
    if (Error e = read_item(reader, line, where, &item)) return e;
    const bool at_start = is_at_start(tokenizer.get(), item.prompt, rules);
    item.text = std::make_unique<TextOutput>(false, flags.stops, tokenizer, at_start);
  }
  if (!reader.ignored.empty()) {
    note("ignored fields of " + input_name(*flags.prompts) + ", which may have prompt or prompt_ids, and max_tokens: " +
         abbreviated_list(std::vector<std::string>(reader.ignored.begin(), reader.ignored.end())));
  }
  return out->empty() ? error("no prompts", input_name(*flags.prompts), "one JSON object per line") : Error{};
}

struct Batch {
  const GenerateFlags& flags;
  const SamplerOptions& sampler;
  const MakeRules& rules;
  const Tokenizer* tokenizer;
  std::vector<Item>& items;
  std::map<size_t, OrderedJson> done = {};  // results waiting for an earlier prompt's
  size_t printed = 0;
  int64_t prompt_tokens = 0, tokens = 0;
  Error failed = {};
};

void finish(Batch& batch, size_t index, const Error& e, const GenerateResult& result) {
  Item& item = batch.items[index];
  if (e) {
    batch.failed = error(e.message(), "prompt " + std::to_string(index + 1));
    return;
  }
  item.text->finish();
  batch.prompt_tokens += result.reused_tokens + result.prefilled_tokens;
  batch.tokens += std::ssize(result.ids);
  OrderedJson& line = batch.done[index];
  line = {{"index", index},
          {"prompt_ids", item.prompt},
          {"ids", result.ids},
          {"text", batch.tokenizer ? OrderedJson(item.text->text()) : OrderedJson(nullptr)},
          {"finish_reason", finish_reason_name(result.finish_reason)},
          {"reused_tokens", result.reused_tokens},
          {"logits_hash", hash_text(result.logits_hash)}};
  if (batch.sampler.temperature > 0) line["seed"] = batch.sampler.seed;  // greedy lines do not depend on it
  for (auto at = batch.done.find(batch.printed); at != batch.done.end(); at = batch.done.find(batch.printed)) {
    print_json(at->second, -1);
    batch.done.erase(at);
    ++batch.printed;
  }
}

Error submit_all(Batch& batch, Scheduler& runner) {
  for (size_t i = 0; i < batch.items.size(); ++i) {
    Item& item = batch.items[i];
    TextRequest request = {.prompt = item.prompt,
                           .options = {.max_tokens = item.max_tokens,
                                       .sampler = batch.sampler,
                                       .ignore_eos = batch.flags.ignore_eos,
                                       .rules = batch.rules},
                           .on_token = [&item](int32_t id, const GenerateResult&) { return item.text->put(id); },
                           .on_end = [&batch, i](const Error& e, const GenerateResult& r) { finish(batch, i, e, r); }};
    int64_t id = 0;
    if (Error e = submit(runner, std::move(request), &id)) return error(e.message(), "prompt " + std::to_string(i + 1));
  }
  return {};
}

// --prompts: decodes several requests at once and prints a line of JSON for each.
int generate_many(const GenerateFlags& flags, const SamplerOptions& sampler, const MakeRules& rules,
                  const std::shared_ptr<const Tokenizer>& tokenizer) {
  std::vector<Item> items;
  if (Error e = read_items(flags, rules, tokenizer, &items)) return fail(e);
  Runtime runtime;
  if (Error e = open_with_progress(flags.run, tokenizer.get(), &runtime)) return fail(e);
  std::vector<int64_t> needs;
  for (const Item& item : items) needs.push_back(std::ssize(item.prompt) + item.max_tokens);
  const SchedulerOptions options = batch_options(runtime, std::move(needs), flags.parallel);
  std::unique_ptr<Scheduler> scheduler;
  if (Error e = open_scheduler(*runtime.model, *runtime.team, options, &scheduler)) return fail(e);
  const RecurrentState& state = scheduler->free_sequences.front().state;
  if (Error e = open_prompt_cache(flags.prompt_cache, *scheduler, state)) return fail(e);
  Batch batch{flags, sampler, rules, tokenizer.get(), items};
  if (Error e = submit_all(batch, *scheduler)) return fail(e);
  const double start = now_seconds();
  while (!batch.failed && step(*scheduler)) continue;
  if (batch.failed) return fail(batch.failed);
  note(std::to_string(items.size()) + " requests, " + std::to_string(batch.prompt_tokens) + " prompt tokens, " +
       std::to_string(batch.tokens) + " tokens at " +
       rate_text(static_cast<double>(batch.tokens), now_seconds() - start) + "/s in all, " +
       std::to_string(scheduler->options.sequences) + " at once" + seed_text(sampler));
  return kSuccess;
}

// --- One prompt

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
  const bool many = options.prompts.has_value();
  if (is_speculating(options.speculate) && many) return fail_usage("--speculate is for one prompt, not for --prompts");
  if (options.logprobs && many) return fail_usage("--logprobs is for one prompt, not for --prompts");
  if (options.parallel > 0 && !many) return fail_usage("--parallel is for --prompts F.jsonl, not for one prompt");
  const bool is_prompt_given = options.prompt || options.prompt_file || options.prompt_ids || many;
  if (!is_prompt_given && on_terminal(STDIN_FILENO)) {
    return fail_usage("no prompt: give --prompt, --prompt-file, --prompt-ids or text on standard input");
  }
  std::vector<int32_t> ids;
  if (options.prompt_ids) {
    if (Error e = parse_ids(*options.prompt_ids, &ids)) return fail_usage("--prompt-ids: " + e.message());
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
    if (Error e = encode_prompt(options.run.model, *tokenizer, prompt, &ids)) return fail(e);
  }

  Runtime runtime;
  if (Error e = open_with_progress(options.run, tokenizer.get(), &runtime)) return fail(e);
  Drafting drafting;
  std::unique_ptr<Session> session;
  const int64_t capacity = std::ssize(ids) + options.max_tokens;
  const SchedulerOptions needs = {.context = capacity, .keeps_hidden = needs_hidden(options.speculate)};
  if (Error e = open_session(runtime, needs, &session)) return fail(e);
  if (options.prompt_cache.empty()) session->snapshots.limit_bytes = 0;  // no later prompt could reuse them
  if (Error e = open_prompt_cache(options.prompt_cache, *session, session->sequence.state)) return fail(e);
  if (Error e = begin_speculation(options.speculate, options.run, runtime, session.get(), &drafting)) return fail(e);
  session->speculates = drafting.speculates;

  // A terminal shows prompt and continuation; a script gets the continuation alone.
  const bool shows_prompt = tokenizer && !options.json && on_terminal(STDOUT_FILENO);
  const bool at_start = shows_prompt || is_at_start(tokenizer.get(), ids, rules);
  TextOutput stream(!options.json, options.stops, tokenizer, at_start);
  if (shows_prompt) stream.put_prompt(ids);
  GenerateResult result;
  GenerateOptions how = {.max_tokens = options.max_tokens,
                         .sampler = sampler,
                         .ignore_eos = options.ignore_eos,
                         .hash_logits = options.json,
                         .rules = rules};
  if (options.logprobs) how.logprobs = how.prompt_logprobs = static_cast<int32_t>(*options.logprobs);
  if (Error e = generate(*session, ids, how, [&](int32_t id) { return stream.put(id); }, &result)) return fail(e);
  stream.finish();
  note_draft_failure(*session, &drafting.failure_noted);
  if (options.json) {
    const OrderedJson stats = stats_json(options, runtime, sampler, result);
    print_result(options, ids, tokenizer.get(), stream.text(), result, stats);
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
      app.add_option("-p,--prompt TEXT", options->prompt), app.add_path("-f,--prompt-file F", options->prompt_file),
      app.add_option("--prompt-ids LIST", options->prompt_ids), app.add_path("--prompts F.jsonl", options->prompts)};
  for (auto source = sources.begin(); source != sources.end(); ++source) {
    for (auto earlier = sources.begin(); earlier != source; ++earlier) source->excludes(*earlier);
  }
  app.add_number("--parallel N", options->parallel, 1, 1024);
  app.add_number("-n,--max-tokens N", options->max_tokens, -1, 1 << 30);
  add_prompt_cache_option(app, &options->prompt_cache);
  add_stop_option(app, &options->stops);
  add_grammar_options(app, &options->grammar);
  add_speculate_option(app, &options->speculate);
  add_sampling_options(app, &options->sampling);
  app.add_number("--logprobs N", options->logprobs, 0, 1000).whole();
  app.add_flag("--ignore-eos", options->ignore_eos);
  app.add_flag("--json", options->json);
  app.add_flag("--quiet", options->quiet);
  return {[options] { return run_generate(*options); }, {&options->run}};
}

}  // namespace pinion
