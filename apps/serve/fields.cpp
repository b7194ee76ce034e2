// The fields of generation requests. Each field is read, changes nothing, is refused by its name, or is named in the
// header X-Pinion-Ignored: no field that changes an answer is dropped unnoticed.
#include <charconv>
#include <random>

#include "apps/cli/common.h"
#include "apps/serve/request.h"

namespace pinion {
namespace {

constexpr size_t kMaxStops = 64, kMaxStopBytes = 8192, kMaxBanned = 256;

bool has_name(const OrderedJson& list, const std::string& name) {
  return std::ranges::find(list, OrderedJson(name)) != list.end();
}

std::vector<std::string> read_stops(JsonFields& fields, std::string_view name) {
  std::vector<std::string> stops = fields.texts(name);
  size_t bytes = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) fields.fail(name, "empty", "non-empty strings");
    bytes += stop.size();
  }
  // The engine thread, which all requests share, compares each token with all of them.
  if (stops.size() > kMaxStops || bytes > kMaxStopBytes) fields.fail(name, "too many", "at most 64, of 8192 bytes");
  return stops;
}

// Ascending, each once.
std::vector<int32_t> read_ids(JsonFields& fields, std::string_view name, size_t max_count) {
  std::vector<int32_t> ids = read_token_ids(fields, name, kMaxVocabulary);
  std::ranges::sort(ids);
  ids.erase(std::ranges::unique(ids).begin(), ids.end());
  if (ids.size() > max_count) fields.fail(name, "too many", at_most(max_count) + " ids");
  return ids;
}

// {"id": bias}
std::vector<LogitBias> read_logit_bias(JsonFields& fields) {
  constexpr double kMaxBias = 100;
  JsonFields object = fields.fields("logit_bias");
  std::vector<LogitBias> list;
  for (const auto& [name, value] : object.object.items()) {
    int32_t id = -1;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (code != std::errc() || end != name.data() + name.size() || id < 0) {
      object.fail(name, "not a token id");
    } else {
      list.push_back({id, static_cast<float>(object.number(name, {}, -kMaxBias, kMaxBias))});
    }
  }
  std::ranges::sort(list, {}, &LogitBias::id);
  return list;
}

// The ids of each word, at the start of a text and after a blank.
std::vector<std::vector<int32_t>> read_bad_words(JsonFields& fields, const ServerState& server) {
  std::vector<std::vector<int32_t>> banned;
  for (const std::string& word : fields.texts("bad_words")) {
    for (const char* before : {"", " "}) {
      const EncodeOptions options = {.add_special = false, .max_tokens = 16};
      const Error e = encode(*server.tokenizer, before + word, options, &banned.emplace_back());
      if (e || banned.back().empty()) fields.fail("bad_words", "not a word", "words of 1 to 16 tokens", brief(word));
    }
  }
  if (banned.size() > kMaxBanned) fields.fail("bad_words", "too many", at_most(kMaxBanned / 2));
  return banned;
}

}  // namespace

std::string header_text(std::string name) {
  constexpr size_t kMaxBytes = 64;
  std::ranges::replace_if(name, [](char c) { return c <= ' ' || c > '~'; }, '?');
  return name.substr(0, kMaxBytes);
}

void note_ignored(const char* where, const std::string& name, GenerationFields* fields) {
  const std::string text = where + header_text(name);
  if (std::ranges::find(fields->ignored, text) == fields->ignored.end()) fields->ignored.push_back(text);
}

void read_generation_fields(JsonFields& fields, const ServerState& server, GenerationFields* out,
                            std::string_view stop) {
  GenerateOptions& options = out->options;
  SamplerOptions& sampler = options.sampler;
  sampler = server.sampler;
  options.hash_logits = false;
  read_sampler_settings(fields, &sampler);
  sampler.repetition_penalty =  // the name in llama.cpp and Ollama
      static_cast<float>(fields.number("repeat_penalty", sampler.repetition_penalty, 0.01, 100));
  sampler.seed = server.seed ? *server.seed : std::random_device{}();
  if (fields.has("seed")) sampler.seed = static_cast<uint64_t>(fields.integer("seed"));
  sampler.logit_bias = read_logit_bias(fields);
  sampler.allowed_ids = read_ids(fields, "allowed_token_ids", kMaxVocabulary);
  sampler.banned = read_bad_words(fields, server);
  options.ignore_eos = fields.boolean("ignore_eos", false);
  options.min_tokens = fields.integer("min_tokens", 0, 0, 1 << 30);
  options.stop_ids = read_ids(fields, "stop_token_ids", kMaxStops);
  out->stops = read_stops(fields, stop);
  out->includes_stop = fields.boolean("include_stop_str_in_output", false);
  out->max_prompt_tokens = fields.integer("truncate_prompt_tokens", 0, -1, 1 << 30);
  if (out->max_prompt_tokens < 0) out->max_prompt_tokens = server.service->context();
  out->choices = fields.integer("n", 1, 1, kMaxChoices);
  out->streams = fields.boolean("stream", false);
  out->include_usage = fields.fields("stream_options").boolean("include_usage", false);
  if (Error e = find_dry_breakers({}, server.tokenizer.get(), &sampler)) fields.fail("dry_multiplier", e.message());
}

int64_t read_max_tokens(JsonFields& fields, const ServerState& server, std::initializer_list<const char*> names,
                        std::optional<int64_t> absent, int64_t min) {
  std::optional<int64_t> count = absent;
  for (const char* name : names) {
    if (!fields.has(name)) continue;
    count = fields.integer(name, {}, -2, 1 << 30);
    if (*count < 0) count = server.service->context();
    if (*count < min) fields.fail(name, "out of range", at_least(min) + ", or -1: no limit", "0");
  }
  if (!count) fields.fail(*names.begin(), "missing field");
  return count.value_or(min);
}

Error check_other_fields(JsonFields& fields, std::string_view prefix, std::vector<std::string>* ignored) {
  // Harmless fields have no effect on the answer: accounting, placement, memory and speed. Refused ones would change it
  // and are not built, but a value of the list `neutral` changes nothing.
  const OrderedJson &harmless = server_table("harmless_fields"), &refused = server_table("refused_fields");
  for (const std::string& name : fields.unread()) {
    if (has_name(harmless, name)) continue;
    const auto row =
        std::ranges::find_if(refused, [&](const OrderedJson& each) { return has_name(each["names"], name); });
    if (row == refused.end()) {
      ignored->push_back(header_text(std::string(prefix) + name));
      continue;
    }
    const Json neutral = (*row)["neutral"];
    const Json& value = fields.object[name];
    if (std::ranges::find(neutral, value) != neutral.end()) continue;
    const std::string without = neutral.empty() ? "a request without it" : neutral.front().dump();
    const std::string instead = row->value("instead", "");
    fields.fail(name, "not supported", instead.empty() ? without : without + ", or " + instead, brief(value));
  }
  return fields.error;
}

}  // namespace pinion
