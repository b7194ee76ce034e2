// pinion generate --prompts: decodes many requests in batches; each text is the same as without the others.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/commands/generate.h"
#include "engine/forward/rope.h"
#include "engine/session/scheduler.h"
#include "kernels/base/clock.h"
#include "kernels/base/hash.h"
#include "loader/config/model_config.h"
#include "loader/files/json.h"

namespace pinion {
namespace {

struct Item {
  std::vector<int32_t> prompt;
  int64_t max_tokens;
  std::unique_ptr<TextOutput> text;
};

struct Reader {
  const GenerateFlags& flags;
  const Tokenizer* tokenizer;
  int64_t context;
  std::set<std::string> ignored = {};
};

// Reports fields such as temperature, which have no effect here.
void note_ignored(const JsonFields& fields, Reader* reader) {
  constexpr size_t kMaxNames = 1000;
  for (std::string& name : fields.unread()) {
    if (reader->ignored.size() < kMaxNames) reader->ignored.insert(std::move(name));
  }
}

// One line of the file.
Error read_item(Reader& reader, std::string_view line, const std::string& where, Item* out) {
  Json json;
  if (Error e = parse_json(line, where, &json)) return e;
  JsonFields fields{json, where};
  out->max_tokens = fields.integer("max_tokens", reader.flags.max_tokens, -1, 1 << 30);
  if (out->max_tokens < 0) out->max_tokens = kUnlimitedTokens;
  if (fields.has("prompt_ids")) {
    out->prompt = read_token_ids(fields, "prompt_ids");
    if (fields.has("prompt")) return error("both prompt and prompt_ids", where, "one of them");
    note_ignored(fields, &reader);
    return fields.error;
  }
  const std::string prompt = fields.text("prompt");
  if (fields.error) return fields.error;
  note_ignored(fields, &reader);
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
  std::string_view left = text;
  for (int64_t line = 1; !left.empty(); ++line) {
    const size_t end = std::min(left.find('\n'), left.size());
    const std::string_view text_line = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    if (text_line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Item& item = out->emplace_back();
    const std::string where = input_name(*flags.prompts) + ", line " + std::to_string(line);
    if (Error e = read_item(reader, text_line, where, &item)) return e;
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

Error submit_all(Batch& batch, Scheduler& scheduler) {
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
    if (Error e = submit(scheduler, std::move(request), &id)) {
      return error(e.message(), "prompt " + std::to_string(i + 1));
    }
  }
  return {};
}

}  // namespace

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
  while (!batch.failed && step(*scheduler)) {
  }
  if (batch.failed) return fail(batch.failed);
  note(std::to_string(items.size()) + " requests, " + std::to_string(batch.prompt_tokens) + " prompt tokens, " +
       std::to_string(batch.tokens) + " tokens at " +
       rate_text(static_cast<double>(batch.tokens), now_seconds() - start) + "/s in all, " +
       std::to_string(scheduler->options.sequences) + " at once" + seed_text(sampler));
  return kSuccess;
}

}  // namespace pinion
