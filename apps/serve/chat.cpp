// POST /v1/chat/completions: the next message of a conversation (platform.openai.com/docs/api-reference/chat).
#include <optional>

#include "apps/serve/conversation.h"
#include "apps/serve/request.h"
#include "tokenizer/thinking.h"

namespace pinion {
namespace {

constexpr int64_t kMostTopLogprobs = 100;

struct ChatRequest {
  TextFields fields;
  bool wants_logprobs = false;
  Prompt prompt;
};

Error read_request(const Serving& serving, const std::string& body, ChatRequest* out) {
  Json json;
  if (Error e = parse_json(body, "request", &json)) return e;
  JsonFields fields{json, "request"};
  read_text_fields(fields, serving, &out->fields);
  const int64_t context = serving.service->context();
  const int64_t most = fields.integer("max_tokens", context, 1, 1 << 30);
  out->fields.options.max_tokens = fields.integer("max_completion_tokens", most, 1, 1 << 30);
  out->wants_logprobs = fields.boolean("logprobs", false);
  const int64_t top = fields.integer("top_logprobs", 0, 0, kMostTopLogprobs);
  if (out->wants_logprobs) out->fields.options.logprobs = static_cast<int32_t>(top);
  if (top > 0 && !out->wants_logprobs) fields.fail("top_logprobs", "without logprobs: true");
  const std::string format = fields.fields("response_format").text("type", "text");
  if (format != "text") fields.fail("response_format", "not known", "{\"type\": \"text\"}", format);
  if (fields.error) return fields.error;
  Conversation conversation;
  if (Error e = read_conversation(serving, body, &conversation)) return e;
  return make_prompt(*serving.chat_template, *serving.tokenizer, conversation, &out->prompt);
}

OrderedJson bytes_json(const std::string& text) {
  OrderedJson list = OrderedJson::array();
  for (const char c : text) list.push_back(static_cast<unsigned char>(c));
  return list;
}

OrderedJson token_json(const std::string& piece, double logprob) {
  return {{"token", piece}, {"logprob", logprob}, {"bytes", bytes_json(piece)}};
}

struct Choice {
  ThinkingSplitter splitter;
  std::optional<int32_t> last_id = {};
  std::string content = {}, thoughts = {};  // not yet written
  OrderedJson logprobs = OrderedJson::array();
  const char* finish = nullptr;
};

class ChatAnswer {
 public:
  ChatAnswer(const Serving& serving, const ChatRequest& request)
      : serving_(serving),
        fields_(request.fields),
        wants_logprobs_(request.wants_logprobs),
        head_(answer_head(serving, answer_id("chatcmpl-"),
                          fields_.streams ? "chat.completion.chunk" : "chat.completion")) {
    const Choice begin{ThinkingSplitter(ends_in_thought(request.prompt.text))};
    choices_.assign(static_cast<size_t>(fields_.choices), begin);
  }

  bool write(Texts& texts, Connection& connection) {
    if (fields_.streams && !begin_stream(connection)) return false;
    Error failure;
    const auto on_event = [&](const TextEvent& event) {
      put(event);
      return !fields_.streams || send(event, connection);
    };
    if (!follow(texts, connection, on_event, &failure)) return false;
    return fields_.streams ? finish_stream(connection) : connection.write(whole());
  }

 private:
  void put_parts(const std::vector<ThinkingPart>& parts, Choice& choice) {
    for (const ThinkingPart& part : parts) (part.is_thought ? choice.thoughts : choice.content) += part.text;
  }

  void put(const TextEvent& event) {
    Choice& choice = choices_[event.choice];
    put_parts(choice.splitter.put(event.text), choice);
    if (event.logprobs) add_logprobs(*event.logprobs, choice);
    if (event.id) choice.last_id = event.id;
    if (!event.is_end) return;
    put_parts(choice.splitter.finish(), choice);
    usage_.add(event.result, event.choice == 0);
    choice.finish = finish_word(event);
  }

  void add_logprobs(const Logprobs& logprobs, Choice& choice) {
    const auto piece = [&](int32_t id) { return token_piece(*serving_.tokenizer, choice.last_id, id); };
    OrderedJson one = token_json(piece(logprobs.token.id), logprobs.token.logprob);
    one["top_logprobs"] = OrderedJson::array();
    for (const TokenLogprob& top : logprobs.top) one["top_logprobs"].push_back(token_json(piece(top.id), top.logprob));
    choice.logprobs.push_back(std::move(one));
  }

  OrderedJson logprobs_json(Choice& choice) const {
    if (!wants_logprobs_) return nullptr;
    return {{"content", std::exchange(choice.logprobs, OrderedJson::array())}};
  }

  OrderedJson chunk(size_t index, OrderedJson delta, OrderedJson logprobs, const char* finish) const {
    OrderedJson json = head_;
    json["choices"] = OrderedJson::array({{{"index", index},
                                           {"delta", std::move(delta)},
                                           {"logprobs", std::move(logprobs)},
                                           {"finish_reason", finish ? OrderedJson(finish) : OrderedJson(nullptr)}}});
    if (fields_.wants_usage) json["usage"] = nullptr;
    return json;
  }

  // Clients want to know whose message it is before there is one.
  bool begin_stream(Connection& connection) const {
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (!connection.write(event_text(chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr))))
        return false;
    }
    return true;
  }

  bool send(const TextEvent& event, Connection& connection) {
    Choice& choice = choices_[event.choice];
    OrderedJson delta = OrderedJson::object();
    if (!choice.thoughts.empty()) delta["reasoning_content"] = std::exchange(choice.thoughts, "");
    if (!choice.content.empty()) delta["content"] = std::exchange(choice.content, "");
    const bool has_news = !delta.empty() || !choice.logprobs.empty();
    if (has_news && !connection.write(event_text(chunk(event.choice, delta, logprobs_json(choice), nullptr))))
      return false;
    if (!choice.finish) return true;
    return connection.write(event_text(chunk(event.choice, OrderedJson::object(), nullptr, choice.finish)));
  }

  bool finish_stream(Connection& connection) const {
    OrderedJson json = head_;
    json["choices"] = OrderedJson::array();
    json["usage"] = usage_.json();
    return connection.write((fields_.wants_usage ? event_text(json) : "") + "data: [DONE]\n\n");
  }

  std::string whole() {
    OrderedJson json = head_;
    json["choices"] = OrderedJson::array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      OrderedJson message = {{"role", "assistant"}, {"content", choice.content}};
      if (!choice.thoughts.empty()) message["reasoning_content"] = choice.thoughts;
      json["choices"].push_back({{"index", i},
                                 {"message", std::move(message)},
                                 {"logprobs", logprobs_json(choice)},
                                 {"finish_reason", choice.finish}});
    }
    json["usage"] = usage_.json();
    return json_text(json) + "\n";
  }

  const Serving& serving_;
  TextFields fields_;
  bool wants_logprobs_;
  OrderedJson head_;
  std::vector<Choice> choices_;
  Usage usage_;
};

}  // namespace

Reply complete_chat(const Serving& serving, const std::string& body) {
  if (!serving.chat_template) {
    return error_reply(Shape::openai,
                       {.message = "the model has no chat template; /v1/completions continues plain text"});
  }
  ChatRequest request;
  if (Error e = read_request(serving, body, &request)) return error_reply(Shape::openai, field_error(e));
  Prompted prompted = order_texts(serving, request.fields, {request.prompt.ids}, is_thinking_mark);
  if (prompted.refused.status != 0) return error_reply(Shape::openai, prompted.refused);
  const auto answer = std::make_shared<ChatAnswer>(serving, request);
  return stream_reply(serving, request.fields,
                      [answer, texts = std::shared_ptr(std::move(prompted.texts))](Connection& connection) {
                        return answer->write(*texts, connection);
                      });
}

}  // namespace pinion
