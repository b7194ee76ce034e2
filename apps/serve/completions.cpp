// POST /v1/completions: text that goes on (platform.openai.com/docs/api-reference/completions).
#include <algorithm>

#include "apps/golden/file.h"
#include "apps/serve/answer.h"
#include "apps/serve/answer_form.h"
#include "loader/config/model_config.h"

namespace pinion {
namespace {

constexpr int64_t kMaxTokens = 16;  // where the request does not say
constexpr int64_t kMostPrompts = 1024;
constexpr int64_t kMostLogprobs = 100;
constexpr int64_t kMostBreakers = 64;  // each token of a text is compared with all of them

struct CompletionRequest {
  TextFields fields;
  std::vector<std::vector<int32_t>> prompts;
  bool echoes = false;
  std::optional<int32_t> logprobs;
  bool wants_ids = false, wants_hash = false;
};

// A list of ids, or a text.
Error read_prompt(const Serving& serving, const Json& prompt, std::vector<int32_t>* out) {
  constexpr const char* kField = "request: prompt";
  if (prompt.is_string()) {
    return encode_field(serving, "prompt", prompt.get_ref<const std::string&>(), true, out);
  }
  if (prompt.is_array() && std::ssize(prompt) > serving.service->context()) return too_long(serving, "prompt");
  if (!prompt.is_array()) return error("wrong type", kField, "a text, token ids, or a list of either");
  for (const Json& id : prompt) {
    const bool is_id = id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < kMaxVocabulary;
    if (!is_id) return error("wrong type", kField, "token ids", brief(id));
    out->push_back(id.get<int32_t>());
  }
  return {};
}

Error read_prompts(const Serving& serving, JsonFields& fields, std::vector<std::vector<int32_t>>* out) {
  const Json* prompt = fields.find("prompt");
  if (!prompt) return error("missing field", "request: prompt", "a text, token ids, or a list of either");
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) return read_prompt(serving, *prompt, &out->emplace_back());
  if (std::ssize(*prompt) > kMostPrompts) {
    return error("too many", "request: prompt", "at most " + std::to_string(kMostPrompts),
                 std::to_string(prompt->size()));
  }
  for (const Json& one : *prompt) {
    if (Error e = read_prompt(serving, one, &out->emplace_back())) return e;
  }
  return {};
}

// What `pinion golden` asks for, and no other API has.
void read_golden_fields(JsonFields& fields, CompletionRequest* out) {
  GenerateOptions& options = out->fields.options;
  out->wants_ids = fields.boolean("return_token_ids", false);
  out->wants_hash = options.hash_logits = fields.boolean("return_logits_hash", false);
  options.tokens_per_hash = out->wants_hash ? kTokensPerHash : 0;
  if (!fields.has("dry_breakers")) return;
  const std::vector<int64_t> ids = fields.integers("dry_breakers", 0, kMaxVocabulary);
  if (std::ssize(ids) > kMostBreakers)
    fields.fail("dry_breakers", "too many", "at most " + std::to_string(kMostBreakers));
  options.sampler.dry_breakers.assign(ids.begin(), ids.end());
}

Error read_request(const Serving& serving, const std::string& body, CompletionRequest* out) {
  Reading reading(*serving.readers);
  Json json;
  AnswerForm form;
  if (Error e = parse_body(body, &json)) return e;
  if (Error e = read_answer_form(json, body, &form)) return e;
  JsonFields fields{json, "request"};
  read_text_fields(fields, serving, &out->fields);
  out->fields.options.max_tokens = fields.integer("max_tokens", kMaxTokens, 0, 1 << 30);
  out->echoes = fields.boolean("echo", false);
  if (fields.has("logprobs")) out->logprobs = static_cast<int32_t>(fields.integer("logprobs", {}, 0, kMostLogprobs));
  out->fields.options.logprobs = out->logprobs;
  if (out->echoes) out->fields.options.prompt_logprobs = out->logprobs;
  read_golden_fields(fields, out);
  const std::string suffix = fields.text("suffix", "");
  if (!suffix.empty() && out->echoes) fields.fail("suffix", "not with echo");
  if (fields.integer("best_of", 1, 1, kMostChoices) > out->fields.choices) {
    fields.fail("best_of", "more than n are not compared", "at most n");
  }
  if (fields.error) return fields.error;
  out->fields.goes_on = true;
  if (suffix.empty()) {
    if (Error e = read_prompts(serving, fields, &out->prompts)) return e;
  } else {
    const std::string prefix = fields.text("prompt");
    if (fields.error) return fields.error;
    if (Error e = fill_in(serving, prefix, suffix, &out->fields, &out->prompts.emplace_back())) return e;
  }
  return keep_to_form(serving, form, nullptr, reading, &out->fields);
}

// OpenAI's four lists.
class LogprobLists {
 public:
  // before: the token that the first one goes on with; nothing: a text begins.
  LogprobLists(std::shared_ptr<const Tokenizer> tokenizer, std::optional<int32_t> before)
      : tokenizer_(*tokenizer), before_(before), decoder_(std::move(tokenizer), true, !before) {}

  // Null: of a prompt's first token, which nothing predicts.
  void add(int32_t id, const Logprobs* logprobs) {
    const std::string piece = token_piece(tokenizer_, before_, id);
    tokens_.push_back(piece);
    offsets_.push_back(characters_);
    values_.push_back(logprobs ? OrderedJson(logprobs->token.logprob) : OrderedJson(nullptr));
    OrderedJson top = nullptr;
    if (logprobs) {
      top = OrderedJson::object();
      for (const TokenLogprob& one : logprobs->top) top[token_piece(tokenizer_, before_, one.id)] = one.logprob;
      top[piece] = logprobs->token.logprob;
    }
    tops_.push_back(std::move(top));
    for (const char c : decoder_.put(id)) characters_ += (c & 0xC0) != 0x80;  // code points: not what goes on with one
    before_ = id;
  }
  void add_prompt(const std::vector<int32_t>& prompt, const std::vector<Logprobs>& logprobs) {
    for (size_t i = 0; i < prompt.size(); ++i) add(prompt[i], i == 0 ? nullptr : &logprobs[i - 1]);
  }
  // What came since the last time.
  OrderedJson take() {
    OrderedJson json = {{"tokens", std::exchange(tokens_, OrderedJson::array())},
                        {"token_logprobs", std::exchange(values_, OrderedJson::array())},
                        {"top_logprobs", std::exchange(tops_, OrderedJson::array())},
                        {"text_offset", std::exchange(offsets_, OrderedJson::array())}};
    return json;
  }

 private:
  const Tokenizer& tokenizer_;
  std::optional<int32_t> before_;
  StreamDecoder decoder_;
  int64_t characters_ = 0;  // of the text, which special tokens are no part of, and halves of characters not yet
  OrderedJson tokens_ = OrderedJson::array(), values_ = OrderedJson::array(), tops_ = OrderedJson::array(),
              offsets_ = OrderedJson::array();
};

struct Choice {
  LogprobLists lists;
  std::string text = {};          // not yet written
  std::vector<int32_t> ids = {};  // likewise
  OrderedJson hashes = {};
  bool is_begun = false;
  const char* finish = nullptr;
};

class Completion : public Answer {
 public:
  Completion(const Serving& serving, CompletionRequest request)
      : serving_(serving),
        request_(std::move(request)),
        head_(answer_head(serving, request_.fields, answer_id("cmpl-"), "text_completion")) {
    const size_t texts = request_.prompts.size() * static_cast<size_t>(request_.fields.choices);
    for (size_t i = 0; i < texts; ++i) {
      const std::vector<int32_t>& prompt = prompt_of(i);
      const bool is_behind = !request_.echoes && goes_on(serving, request_.fields, prompt) && !prompt.empty();
      choices_.push_back({LogprobLists(serving.tokenizer, is_behind ? std::optional(prompt.back()) : std::nullopt)});
    }
  }

  std::string put(const TextEvent& event) override {
    Choice& choice = choices_[event.choice];
    add(event, choice);
    const bool has_news = !choice.text.empty() || event.is_end || request_.logprobs;
    return request_.fields.streams && has_news ? chunk(event.choice) : "";
  }

  std::string finish() override {
    return request_.fields.streams ? stream_end(request_.fields, head_, usage_) : whole();
  }

 private:
  const std::vector<int32_t>& prompt_of(size_t choice) const {
    return request_.prompts[choice / static_cast<size_t>(request_.fields.choices)];
  }

  void add(const TextEvent& event, Choice& choice) {
    if (!std::exchange(choice.is_begun, true) && request_.echoes) {
      const std::vector<int32_t>& prompt = prompt_of(event.choice);
      choice.text = decode(*serving_.tokenizer, prompt);
      if (request_.logprobs) choice.lists.add_prompt(prompt, event.prompt_logprobs);
    }
    choice.text += event.text;
    if (event.logprobs) choice.lists.add(*event.id, &*event.logprobs);
    if (event.id) choice.ids.push_back(*event.id);
    if (!event.is_end) return;
    // As vLLM has it. lm-eval drops the last of the lists as the one token it asked for: it must be there.
    if (const auto& end = event.result.end_logprobs) choice.lists.add(end->token.id, &*end);
    if (request_.wants_hash) choice.hashes = logits_hash_json(golden_answer(event.result, {}));
    usage_.add(event.result, event.choice % static_cast<size_t>(request_.fields.choices) == 0);
    choice.finish = finish_word(event);
  }

  OrderedJson choice_json(size_t index) {
    Choice& choice = choices_[index];
    OrderedJson json = {{"text", std::exchange(choice.text, "")}, {"index", index}, {"logprobs", nullptr}};
    if (request_.logprobs) json["logprobs"] = choice.lists.take();
    if (request_.wants_ids) json["token_ids"] = std::exchange(choice.ids, {});
    if (choice.finish && request_.wants_hash) json.update(choice.hashes);
    json["finish_reason"] = choice.finish ? OrderedJson(choice.finish) : OrderedJson(nullptr);
    return json;
  }

  std::string chunk(size_t index) {
    OrderedJson json = head_;
    json["choices"] = OrderedJson::array({choice_json(index)});
    if (request_.fields.wants_usage) json["usage"] = nullptr;
    return event_text(json);
  }

  std::string whole() {
    OrderedJson json = head_;
    json["choices"] = OrderedJson::array();
    for (size_t i = 0; i < choices_.size(); ++i) json["choices"].push_back(choice_json(i));
    json["usage"] = usage_.json();
    return json_text(json) + "\n";
  }

  const Serving& serving_;
  CompletionRequest request_;
  OrderedJson head_;
  std::vector<Choice> choices_;
  Usage usage_;
};

}  // namespace

Reply complete_text(const Serving& serving, const HttpRequest& http) {
  CompletionRequest request;
  if (Error e = read_request(serving, http.body, &request)) return error_reply(Shape::openai, field_error(e));
  Prompted prompted = order_texts(serving, request.fields, request.prompts);
  if (prompted.refused.status != 0) return error_reply(Shape::openai, prompted.refused);
  const TextFields fields = request.fields;
  return answer_reply(serving, Shape::openai, fields, http, std::move(prompted.texts),
                      std::make_unique<Completion>(serving, std::move(request)));
}

}  // namespace pinion
