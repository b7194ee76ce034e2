#include "apps/serve/request.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <ctime>
#include <random>

#include "apps/cli/common.h"
#include "tokenizer/templates/fill_in.h"

namespace pinion {
namespace {

constexpr int64_t kMostLogprobValues = 2'000'000;
constexpr size_t kMostStops = 64, kMostStopBytes = 8192;

uint64_t seed_of(JsonFields& fields, const Serving& serving) {
  if (!fields.has("seed")) return serving.seed ? *serving.seed : std::random_device{}();
  return static_cast<uint64_t>(fields.integer("seed"));
}

std::vector<std::string> stops_of(JsonFields& fields, std::string_view name) {
  std::vector<std::string> stops = fields.texts(name);
  size_t bytes = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) fields.fail(name, "empty", "texts");
    bytes += stop.size();
  }
  // Each token is compared with all of them, on the thread that all texts share.
  if (stops.size() > kMostStops || bytes > kMostStopBytes) fields.fail(name, "too many", "at most 64, of 8192 bytes");
  return stops;
}

// {"id": bias}
std::vector<LogitBias> bias_of(JsonFields& fields) {
  constexpr double kMost = 100;
  JsonFields object = fields.fields("logit_bias");
  std::vector<LogitBias> list;
  for (const auto& [name, value] : object.object.items()) {
    int32_t id = -1;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (code != std::errc() || end != name.data() + name.size() || id < 0) {
      object.fail(name, "not a token id");
    } else {
      list.push_back({id, static_cast<float>(object.number(name, {}, -kMost, kMost))});
    }
  }
  fields.error = object.error;
  std::ranges::sort(list, {}, &LogitBias::id);
  return list;
}

// How many an answer may have in memory at once.
int64_t logprob_values(const TextFields& fields, int64_t context, const std::vector<std::vector<int32_t>>& prompts) {
  const GenerateOptions& options = fields.options;
  int64_t values = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    if (options.prompt_logprobs) values += std::ssize(prompt) * (1 + *options.prompt_logprobs);
    if (options.logprobs) values += std::min(options.max_tokens, context) * (1 + *options.logprobs);
  }
  return values * fields.choices;
}

}  // namespace

void read_text_fields(JsonFields& fields, const Serving& serving, TextFields* out, std::string_view stop) {
  out->options.sampler = serving.sampler;
  out->options.hash_logits = false;
  read_sampler_settings(fields, &out->options.sampler);
  out->options.sampler.seed = seed_of(fields, serving);
  out->options.sampler.logit_bias = bias_of(fields);
  out->options.ignore_eos = fields.boolean("ignore_eos", false);
  out->stops = stops_of(fields, stop);
  out->choices = fields.integer("n", 1, 1, kMostChoices);
  out->streams = fields.boolean("stream", false);
  JsonFields stream = fields.fields("stream_options");
  out->wants_usage = stream.boolean("include_usage", false);
  fields.error = stream.error;
  if (Error e = find_dry_breakers({}, serving.tokenizer.get(), &out->options.sampler)) {
    fields.fail("dry_multiplier", e.message());
  }
}

bool goes_on(const Serving& serving, const TextFields& fields, const std::vector<int32_t>& prompt) {
  if (fields.options.rules) return true;
  return fields.goes_on && has_text(*serving.tokenizer, prompt);
}

Prompted order_texts(const Serving& serving, const TextFields& fields, const std::vector<std::vector<int32_t>>& prompts,
                     std::function<bool(std::string_view)> is_mark, std::shared_ptr<const ToolCallOptions> one_call) {
  Prompted out;
  const int64_t texts = std::ssize(prompts) * fields.choices, most = serving.service->most_texts();
  if (texts > most) {
    out.refused = {
        .message = std::to_string(texts) + " texts are more than this server takes: at most " + std::to_string(most),
        .param = "n"};
    return out;
  }
  if (const int64_t values = logprob_values(fields, serving.service->context(), prompts); values > kMostLogprobValues) {
    out.refused = {.message = std::to_string(values) + " log probabilities are more than this server gives: at most " +
                              std::to_string(kMostLogprobValues) + "; ask for fewer choices, tokens or likely ones",
                   .param = "logprobs"};
    return out;
  }
  std::vector<std::string> stops = fields.stops;
  stops.insert(stops.end(), fields.end_tokens.begin(), fields.end_tokens.end());
  if (!fields.end_tokens.empty()) {
    is_mark = [is_other = std::move(is_mark), ends = fields.end_tokens](std::string_view token) {
      return std::ranges::find(ends, token) != ends.end() || (is_other && is_other(token));
    };
  }
  std::vector<TextOrder> orders;
  for (const std::vector<int32_t>& prompt : prompts) {
    for (int64_t i = 0; i < fields.choices; ++i) {
      TextOrder& order = orders.emplace_back(
          TextOrder{prompt, fields.options, stops, is_mark, one_call, goes_on(serving, fields, prompt)});
      order.options.sampler.seed += static_cast<uint64_t>(i);
    }
  }
  Refusal why = Refusal::none;
  if (Error e = serving.service->submit(std::move(orders), &out.texts, &why)) out.refused = refusal_error(why, e);
  return out;
}

Error fill_in(const Serving& serving, std::string_view prefix, std::string_view suffix, TextFields* fields,
              std::vector<int32_t>* out) {
  const FillInRow* row = find_fill_in(*serving.tokenizer);
  if (!row) return error("this model's vocabulary has no tokens to fill in with", "request: suffix");
  const Error failure = encode_fill_in(*serving.tokenizer, *row, prefix, suffix, serving.service->context(), out);
  fields->end_tokens = fill_in_ends(*serving.tokenizer, *row);
  return failure.what == "too long" ? too_long(serving, "prompt") : failure;
}

void Usage::add(const GenerateResult& result, bool is_first_choice) {
  tokens += std::ssize(result.ids);
  if (!is_first_choice) return;
  prompt_tokens += result.reused_tokens + result.prefilled_tokens;
  cached_tokens += result.reused_tokens;
}

OrderedJson Usage::json() const {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", tokens},
          {"total_tokens", prompt_tokens + tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}};
}

const char* finish_word(const TextEvent& end) {
  return end.result.finish_reason == FinishReason::stop ? "stop" : "length";
}

std::string stream_end(const TextFields& fields, const OrderedJson& head, const Usage& usage) {
  const std::string done = "data: [DONE]\n\n";
  if (!fields.wants_usage) return done;
  OrderedJson json = head;
  json["choices"] = OrderedJson::array();
  json["usage"] = usage.json();
  return event_text(json) + done;
}

std::string token_piece(const Tokenizer& tokenizer, std::optional<int32_t> before, int32_t id) {
  if (before) {
    const std::string first = decode(tokenizer, std::vector{*before}, false);
    const std::string both = decode(tokenizer, std::vector{*before, id}, false);
    if (both.starts_with(first)) return both.substr(first.size());
  }
  return decode(tokenizer, std::vector{id}, false);
}

OrderedJson answer_head(const Serving& serving, const TextFields& fields, const std::string& id, const char* object) {
  return {{"id", id},
          {"object", object},
          {"created", static_cast<int64_t>(std::time(nullptr))},
          {"model", serving.model},
          {"system_fingerprint", serving.fingerprint + "-seed-" + std::to_string(fields.options.sampler.seed)}};
}

std::string answer_id(const char* prefix) {
  static const uint64_t kStart = std::random_device{}();
  static std::atomic<uint64_t> count{0};
  return std::string(prefix) + hash_text(kStart << 32 | ++count);
}

}  // namespace pinion
