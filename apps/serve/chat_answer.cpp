#include "apps/serve/chat_answer.h"

#include <utility>

namespace pinion {
namespace {

OrderedJson bytes_json(const std::string& text) {
  OrderedJson list = OrderedJson::array();
  for (const char c : text) list.push_back(static_cast<unsigned char>(c));
  return list;
}

OrderedJson token_json(const std::string& piece, double logprob) {
  return {{"token", piece}, {"logprob", logprob}, {"bytes", bytes_json(piece)}};
}

OrderedJson call_json(const std::string& id, const std::string& name, const std::string& arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

// Nine letters and digits: more or others some templates refuse.
std::string call_id() { return answer_id("").substr(16 - 9); }

OrderedJson null_or(const char* word) { return word ? OrderedJson(word) : OrderedJson(nullptr); }

}  // namespace

ChatAnswer::ChatAnswer(const Serving& serving, const TextFields& fields, const ToolCallOptions& reply,
                       bool only_one_call)
    : serving_(serving),
      fields_(fields),
      only_one_call_(only_one_call),
      head_(answer_head(serving, fields, answer_id("chatcmpl-"),
                        fields.streams ? "chat.completion.chunk" : "chat.completion")) {
  for (int64_t i = 0; i < fields.choices; ++i) choices_.emplace_back(reply);
}

// Clients want to know whose message it is before there is one.
std::string ChatAnswer::begin() {
  std::string text;
  for (size_t i = 0; i < choices_.size(); ++i) {
    text += event_text(chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
  }
  return text;
}

std::string ChatAnswer::put(const TextEvent& event) {
  Choice& choice = choices_[event.choice];
  for (const ToolEvent& part : parts_of(choice.parser, event)) put(part, choice);
  if (event.logprobs) add_logprobs(*event.logprobs, choice);
  if (event.id) choice.last_id = event.id;
  if (event.is_end) {
    usage_.add(event.result, event.choice == 0);
    const bool is_call = !choice.calls.empty() && event.result.finish_reason == FinishReason::stop;
    choice.finish = is_call ? "tool_calls" : finish_word(event);
  }
  return fields_.streams ? chunks(event.choice) : "";
}

std::string ChatAnswer::finish() { return fields_.streams ? stream_end(fields_, head_, usage_) : whole(); }

void ChatAnswer::put(const ToolEvent& event, Choice& choice) {
  // The token that ends the call may have more behind it.
  const bool is_over = only_one_call_ && (event.index > 0 || (event.index < 0 && !choice.calls.empty()));
  if (is_over) return;
  switch (event.kind) {
    case ToolEvent::Kind::kContent:
      choice.content += event.text;
      choice.deltas.push_back({{"content", event.text}});
      break;
    case ToolEvent::Kind::kThought:
      choice.thoughts += event.text;
      choice.deltas.push_back({{"reasoning_content", event.text}});
      break;
    case ToolEvent::Kind::kCallBegun: {
      const Call& call = choice.calls.emplace_back(Call{event.id.empty() ? call_id() : event.id, event.text, ""});
      OrderedJson json = {{"index", event.index}};
      json.update(call_json(call.id, call.name, ""));
      choice.deltas.push_back({{"tool_calls", OrderedJson::array({json})}});
      break;
    }
    case ToolEvent::Kind::kArguments:
      choice.calls.back().arguments += event.text;
      choice.deltas.push_back(
          {{"tool_calls", OrderedJson::array({{{"index", event.index}, {"function", {{"arguments", event.text}}}}})}});
      break;
    case ToolEvent::Kind::kCallEnded:
      break;
  }
}

void ChatAnswer::add_logprobs(const Logprobs& logprobs, Choice& choice) {
  const auto piece = [&](int32_t id) { return token_piece(*serving_.tokenizer, choice.last_id, id); };
  OrderedJson one = token_json(piece(logprobs.token.id), logprobs.token.logprob);
  one["top_logprobs"] = OrderedJson::array();
  for (const TokenLogprob& top : logprobs.top) one["top_logprobs"].push_back(token_json(piece(top.id), top.logprob));
  choice.logprobs.push_back(std::move(one));
}

OrderedJson ChatAnswer::logprobs_json(Choice& choice) const {
  if (!fields_.options.logprobs) return nullptr;
  return {{"content", std::exchange(choice.logprobs, OrderedJson::array())}};
}

OrderedJson ChatAnswer::chunk(size_t index, OrderedJson delta, OrderedJson logprobs, const char* finish) const {
  OrderedJson json = head_;
  json["choices"] = OrderedJson::array({{{"index", index},
                                         {"delta", std::move(delta)},
                                         {"logprobs", std::move(logprobs)},
                                         {"finish_reason", null_or(finish)}}});
  if (fields_.wants_usage) json["usage"] = nullptr;
  return json;
}

std::string ChatAnswer::chunks(size_t index) {
  Choice& choice = choices_[index];
  std::string text;
  if (choice.deltas.empty() && !choice.logprobs.empty()) choice.deltas.push_back({{"content", ""}});
  for (OrderedJson& delta : choice.deltas) {
    text += event_text(chunk(index, std::move(delta), logprobs_json(choice), nullptr));
  }
  choice.deltas.clear();
  if (choice.finish) text += event_text(chunk(index, OrderedJson::object(), nullptr, choice.finish));
  return text;
}

std::string ChatAnswer::whole() {
  OrderedJson json = head_;
  json["choices"] = OrderedJson::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    const bool is_call = choice.content.empty() && !choice.calls.empty();
    OrderedJson message = {{"role", "assistant"},
                           {"content", is_call ? OrderedJson(nullptr) : OrderedJson(choice.content)}};
    if (!choice.thoughts.empty()) message["reasoning_content"] = choice.thoughts;
    for (const Call& call : choice.calls) {
      message["tool_calls"].push_back(call_json(call.id, call.name, call.arguments));
    }
    json["choices"].push_back({{"index", i},
                               {"message", std::move(message)},
                               {"logprobs", logprobs_json(choice)},
                               {"finish_reason", choice.finish}});
  }
  json["usage"] = usage_.json();
  return json_text(json) + "\n";
}

}  // namespace pinion
