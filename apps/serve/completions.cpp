// POST /v1/completions: continues a text (platform.openai.com/docs/api-reference/completions). /completion and /infill
// do so in the format of llama.cpp's server (github.com/ggml-org/llama.cpp, tools/server).
#include "apps/golden/golden.h"
#include "apps/serve/request.h"

namespace pinion {
namespace {

constexpr int64_t kMaxTokens = 16;  // OpenAI's default
constexpr int64_t kMaxPrompts = 1024;
constexpr size_t kMaxBreakers = 64;  // the engine thread compares each token with all of them

struct CompletionRequest {
  GenerationFields fields;
  std::vector<std::vector<int32_t>> prompts;
  bool echoes = false;  // the reply begins with the prompt
  bool returns_ids = false;
};

// A list of token ids, or a string.
Error read_prompt(const ServerState& server, const Json& prompt, bool add_special, std::vector<int32_t>* out) {
  constexpr const char* kField = "request: prompt";
  if (prompt.is_string()) return encode_field(server, "prompt", prompt.get_ref<const std::string&>(), add_special, out);
  if (prompt.is_array() && std::ssize(prompt) > server.service->context()) return too_long(server, "prompt");
  if (!prompt.is_array()) return error("wrong type", kField, "a string, token ids, or a list of either");
  for (const Json& id : prompt) {
    const bool is_id = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < kMaxVocabulary;
    if (!is_id) return error("wrong type", kField, "token ids", brief(id));
    out->push_back(id.get<int32_t>());
  }
  return {};
}

Error read_prompts(const ServerState& server, JsonFields& fields, std::vector<std::vector<int32_t>>* out) {
  const Json* prompt = fields.find("prompt");
  const bool add_special = fields.boolean("add_special_tokens", true);
  if (!prompt) return error("missing field", "request: prompt", "a string, token ids, or a list of either");
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) return read_prompt(server, *prompt, add_special, &out->emplace_back());
  if (std::ssize(*prompt) > kMaxPrompts) {
    return error("too many", "request: prompt", at_most(kMaxPrompts), prompt->size());
  }
  for (const Json& item : *prompt) {
    if (Error e = read_prompt(server, item, add_special, &out->emplace_back())) return e;
  }
  return {};
}

// Pinion's own fields, for `pinion golden --url`.
void read_golden_fields(JsonFields& fields, CompletionRequest* out) {
  GenerateOptions& options = out->fields.options;
  out->returns_ids = fields.boolean("return_token_ids", false);
  options.hash_logits = fields.boolean("return_logits_hash", false);
  options.tokens_per_hash = options.hash_logits ? kTokensPerHash : 0;
  if (!fields.has("dry_breakers")) return;
  std::vector<int32_t>& ids = options.sampler.dry_breakers = read_token_ids(fields, "dry_breakers", kMaxVocabulary);
  if (ids.size() > kMaxBreakers) fields.fail("dry_breakers", "too many", at_most(kMaxBreakers));
}

Error read_completion_request(const ServerState& server, const std::string& body, int64_t absent_max_tokens,
                              CompletionRequest* out) {
  Slot slot(*server.parse_slots);
  OrderedJson json;
  OutputConstraint constraint;
  if (Error e = parse_body(body, &json)) return e;
  if (Error e = take_output_constraint(json, Api::openai, &constraint)) return e;
  const Json rest = request_fields(json);
  JsonFields fields{rest, "request"};
  read_generation_fields(fields, server, &out->fields);
  out->fields.options.max_tokens = read_max_tokens(fields, server, {"n_predict", "max_tokens"}, absent_max_tokens, 0);
  out->echoes = fields.boolean("echo", false);
  if (fields.has("logprobs")) {
    out->fields.options.logprobs = static_cast<int32_t>(fields.integer("logprobs", {}, 0, kMaxTopLogprobs));
  }
  if (out->echoes) out->fields.options.prompt_logprobs = out->fields.options.logprobs;
  read_golden_fields(fields, out);
  const std::string suffix = fields.text("suffix", "");
  if (!suffix.empty() && out->echoes) fields.fail("suffix", "cannot be combined with echo");
  if (fields.integer("best_of", 1, 1, kMaxChoices) > out->fields.choices) {
    fields.fail("best_of", "not supported above n", "at most n");
  }
  if (fields.error) return fields.error;
  out->fields.continues_prompt = true;
  if (suffix.empty()) {
    if (Error e = read_prompts(server, fields, &out->prompts)) return e;
  } else {
    const std::string prefix = fields.text("prompt");
    if (fields.error) return fields.error;
    if (Error e = fill_in(server, prefix, suffix, &out->fields, &out->prompts.emplace_back())) return e;
  }
  if (Error e = check_other_fields(fields, "", &out->fields.ignored)) return e;
  for (std::vector<int32_t>& prompt : out->prompts) truncate_prompt(out->fields, &prompt);
  return constrain_output(server, constraint, nullptr, slot, &out->fields);
}

// The four parallel lists of OpenAI's "logprobs".
class LogprobLists {
 public:
  // `before`: the last token of the text that these tokens continue; nothing: they begin a text.
  LogprobLists(std::shared_ptr<const Tokenizer> tokenizer, std::optional<int32_t> before)
      : tokenizer_(*tokenizer), before_(before), decoder_(std::move(tokenizer), true, !before) {}

  // `logprobs` is null for the first token of a prompt.
  void add(int32_t id, const Logprobs* logprobs) {
    const std::string piece = token_piece(tokenizer_, before_, id);
    lists_["tokens"].push_back(piece);
    lists_["text_offset"].push_back(characters_);
    lists_["token_logprobs"].push_back(logprobs ? OrderedJson(logprobs->token.logprob) : OrderedJson(nullptr));
    OrderedJson top = nullptr;
    if (logprobs) {
      top = OrderedJson::object();
      for (const TokenLogprob& token : logprobs->top) top[token_piece(tokenizer_, before_, token.id)] = token.logprob;
      top[piece] = logprobs->token.logprob;
    }
    lists_["top_logprobs"].push_back(std::move(top));
    for (const char c : decoder_.put(id)) characters_ += (c & 0xC0) != 0x80;  // counts first bytes of code points
    before_ = id;
  }
  // Returns the entries added since the last call.
  OrderedJson take() { return std::exchange(lists_, empty_lists()); }

 private:
  static OrderedJson empty_lists() {
    const OrderedJson none = OrderedJson::array();
    return {{"tokens", none}, {"token_logprobs", none}, {"top_logprobs", none}, {"text_offset", none}};
  }

  const Tokenizer& tokenizer_;
  std::optional<int32_t> before_;
  IncrementalDecoder decoder_;
  int64_t characters_ = 0;  // of the text so far, without special tokens and incomplete characters
  OrderedJson lists_ = empty_lists();
};

class CompletionFormatter : public OpenaiFormatter {
 public:
  CompletionFormatter(const ServerState& server, CompletionRequest request)
      : OpenaiFormatter(server, request.fields, "cmpl-", "text_completion", choice_count(request)),
        request_(std::move(request)) {
    for (size_t i = 0; i < choice_count(request_); ++i) {
      const std::vector<int32_t>& prompt = prompt_of(i);
      const bool continues = !request_.echoes && keeps_leading_blank(server, request_.fields, prompt);
      choices_.push_back(
          {LogprobLists(server.tokenizer, continues && !prompt.empty() ? std::optional(prompt.back()) : std::nullopt)});
    }
  }

  std::string put(const RequestEvent& event) override {
    Choice& choice = choices_[event.choice];
    add(event, choice);
    const bool has_news = !choice.text.empty() || event.is_end || options().logprobs;
    return streams_ && has_news ? chunk(whole_choice(event.choice)) : "";
  }

 private:
  struct Choice {
    LogprobLists lists;
    std::string text = {};          // not sent yet
    std::vector<int32_t> ids = {};  // not sent yet
    OrderedJson hashes = {};
    bool is_begun = false;
    OrderedJson finish_reason = nullptr;
  };

  const GenerateOptions& options() const { return request_.fields.options; }

  static size_t choice_count(const CompletionRequest& request) {
    return request.prompts.size() * request.fields.choices;
  }

  const std::vector<int32_t>& prompt_of(size_t choice) const {
    return request_.prompts[choice / request_.fields.choices];
  }

  void add(const RequestEvent& event, Choice& choice) {
    if (!std::exchange(choice.is_begun, true) && request_.echoes) {
      const std::vector<int32_t>& prompt = prompt_of(event.choice);
      choice.text = decode(*server_.tokenizer, prompt);
      for (size_t i = 0; options().logprobs && i < prompt.size(); ++i) {
        choice.lists.add(prompt[i], i == 0 ? nullptr : &event.prompt_logprobs[i - 1]);
      }
    }
    choice.text += event.text;
    if (event.logprobs) choice.lists.add(*event.id, &*event.logprobs);
    if (event.id) choice.ids.push_back(*event.id);
    if (!event.is_end) return;
    // As in vLLM. lm-eval requests one token and drops its entry from the lists, so it must be there.
    if (const auto& end = event.result.end_logprobs) choice.lists.add(end->token.id, &*end);
    if (options().hash_logits) choice.hashes = logits_hash_json(golden_answer(event.result, {}));
    add_usage(event.result, event.choice % request_.fields.choices == 0);
    choice.finish_reason = finish_reason_name(event);
  }

  // Everything of a choice that was not sent yet.
  OrderedJson whole_choice(size_t index) override {
    Choice& choice = choices_[index];
    OrderedJson json = {{"text", std::exchange(choice.text, "")}, {"index", index}, {"logprobs", nullptr}};
    if (options().logprobs) json["logprobs"] = choice.lists.take();
    if (request_.returns_ids) json["token_ids"] = std::exchange(choice.ids, {});
    if (!choice.finish_reason.is_null() && options().hash_logits) json.update(choice.hashes);
    json["finish_reason"] = choice.finish_reason;
    return json;
  }

  CompletionRequest request_;
  std::vector<Choice> choices_;
};

class NativeFormatter : public ResponseFormatter {
 public:
  NativeFormatter(const ServerState& server, const CompletionRequest& request)
      : model_(server.model), streams_(request.fields.streams), settings_(settings_json(request.fields.options)) {}

  std::string put(const RequestEvent& event) override {
    content_ += event.text;
    if (event.id) ids_.push_back(*event.id);
    if (event.is_end) end_ = event;
    return streams_ && !event.is_end && !content_.empty() ? event_text(part(false)) : "";
  }

  std::string finish() override {
    const GenerateResult& result = end_.result;
    const bool is_limit = result.finish_reason != FinishReason::stop;
    const auto rate = [](size_t tokens, double s) { return s > 0 ? static_cast<double>(tokens) / s : 0; };
    const int64_t prompt_tokens = result.reused_tokens + result.prefilled_tokens;
    OrderedJson json = part(true);
    json.update({{"model", model_},
                 {"tokens_predicted", result.ids.size()},
                 {"tokens_evaluated", prompt_tokens},
                 {"tokens_cached", result.reused_tokens},
                 {"truncated", false},
                 {"stop_type", is_limit                 ? "limit"
                               : end_.stop_text.empty() ? "eos"
                                                        : "word"},
                 {"stopping_word", end_.stop_text},
                 {"generation_settings", settings_},
                 {"timings",
                  {{"prompt_n", result.prefilled_tokens},
                   {"prompt_ms", result.prefill_seconds * 1e3},
                   {"prompt_per_second", rate(result.prefilled_tokens, result.prefill_seconds)},
                   {"predicted_n", result.ids.size()},
                   {"predicted_ms", result.decode_seconds * 1e3},
                   {"predicted_per_second", rate(result.ids.size(), result.decode_seconds)}}}});
    return streams_ ? event_text(json) : json_text(json) + "\n";
  }

 private:
  OrderedJson part(bool is_end) {
    return {{"index", 0},
            {"content", std::exchange(content_, "")},
            {"tokens", std::exchange(ids_, OrderedJson::array())},
            {"stop", is_end}};
  }

  const std::string model_;
  const bool streams_;
  const OrderedJson settings_;
  std::string content_;                     // not sent yet
  OrderedJson ids_ = OrderedJson::array();  // not sent yet
  RequestEvent end_;
};

}  // namespace

Reply complete_text(const ServerState& server, const HttpRequest& http) {
  CompletionRequest request;
  if (Error e = read_completion_request(server, http.body, kMaxTokens, &request)) return error_reply(Api::openai, e);
  return generation_reply(server, Api::openai, request.fields, request.prompts, http,
                          std::make_unique<CompletionFormatter>(server, request));
}

Reply complete_native(const ServerState& server, const HttpRequest& http) {
  CompletionRequest request;
  Error e = read_completion_request(server, http.body, server.service->context(), &request);
  const bool is_one = request.prompts.size() == 1 && request.fields.choices == 1 && !request.echoes;
  if (!e && !is_one) e = error("not supported here", "request: prompt", "one prompt and one choice, without echo");
  if (e) return error_reply(Api::openai, e);
  return generation_reply(server, Api::openai, request.fields, request.prompts, http,
                          std::make_unique<NativeFormatter>(server, request));
}

// "prompt" is the beginning of the gap between "input_prefix" and "input_suffix".
Reply infill(const ServerState& server, const HttpRequest& http) {
  OrderedJson json;
  Error e = parse_body(http.body, &json);
  if (!e && !json.is_object()) e = error("wrong type", "request", "an object");
  if (e) return error_reply(Api::openai, e);
  json["prompt"] = text_of(json, "input_prefix") + text_of(json, "prompt");
  json["suffix"] = text_of(json, "input_suffix");
  for (const char* name : {"input_prefix", "input_suffix"}) json.erase(name);
  HttpRequest completion = http;
  completion.body = json_text(json);
  return complete_native(server, completion);
}

}  // namespace pinion
