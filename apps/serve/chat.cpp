// POST /v1/chat/completions: the next message of a conversation (platform.openai.com/docs/api-reference/chat).

#include "apps/serve/conversation.h"

namespace pinion {
namespace {

Error read_chat_request(const ServerState& server, const std::string& body, ChatRequest* out) {
  if (!server.chat_template) return error(kNoChatTemplate, "");
  Slot slot(*server.parse_slots);
  OrderedJson json;
  ChatInput input;
  OutputConstraint constraint;
  if (Error e = parse_body(body, &json)) return e;
  if (Error e = take_output_constraint(json, Api::openai, &constraint)) return e;
  if (Error e = take_chat_input(json, &input)) return e;
  const Json rest = request_fields(json);
  JsonFields fields{rest, "request"};
  read_generation_fields(fields, server, &out->fields);
  out->fields.options.max_tokens =
      read_max_tokens(fields, server, {"n_predict", "max_tokens", "max_completion_tokens"}, server.service->context());
  const bool has_logprobs = fields.boolean("logprobs", false);
  const int64_t top = fields.integer("top_logprobs", 0, 0, kMaxTopLogprobs);
  if (has_logprobs) out->fields.options.logprobs = static_cast<int32_t>(top);
  if (top > 0 && !has_logprobs) fields.fail("top_logprobs", "without logprobs: true");
  out->single_call = !fields.boolean("parallel_tool_calls", true);
  Conversation& conversation = input.conversation;
  conversation.continue_final_message |= fields.boolean("continue_final_message", false);
  conversation.add_generation_prompt = fields.boolean("add_generation_prompt", !conversation.continue_final_message);
  if (conversation.continue_final_message && conversation.add_generation_prompt) {
    fields.fail("add_generation_prompt", "true beside a message that is continued", "false");
  }
  if (Error e = check_other_fields(fields, "", &out->fields.ignored)) return e;
  if (Error e = make_chat_prompt(server, std::move(input), &out->fields, &out->prompt)) return e;
  return constrain_output(server, constraint, &out->prompt, slot, &out->fields);
}

class ChatFormatter : public OpenaiFormatter {
 public:
  ChatFormatter(const ServerState& server, const ChatRequest& request)
      : OpenaiFormatter(server, request.fields, "chatcmpl-",
                        request.fields.streams ? "chat.completion.chunk" : "chat.completion", request.fields.choices),
        has_logprobs_(request.fields.options.logprobs.has_value()),
        single_call_(request.single_call) {
    for (int64_t i = 0; i < request.fields.choices; ++i) choices_.emplace_back(request.prompt);
  }

  // OpenAI's streams begin with an empty delta that has the role.
  std::string begin() override {
    std::string text;
    for (size_t i = 0; i < choices_.size(); ++i) {
      text += delta_chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    }
    return text;
  }

  std::string put(const RequestEvent& event) override {
    Choice& choice = choices_[event.choice];
    for (const ToolEvent& part : parse_event(choice.parser, event)) put(part, choice);
    if (event.logprobs) choice.logprobs.push_back(logprobs_json(*server_.tokenizer, choice.last_id, *event.logprobs));
    if (event.id) choice.last_id = event.id;
    if (event.is_end) {
      add_usage(event.result, event.choice == 0);
      const bool is_call = !choice.calls.empty() && event.result.finish_reason == FinishReason::stop;
      choice.finish_reason = is_call ? "tool_calls" : finish_reason_name(event);
    }
    return streams_ ? chunks(event.choice) : "";
  }

 private:
  struct Choice {
    explicit Choice(const ChatPrompt& prompt) : parser(prompt.reply) {
      if (!prompt.reply.begun.empty()) last_id = prompt.ids.back();
    }

    ToolCallParser parser;
    std::optional<int32_t> last_id = {};
    std::string content = {}, thoughts = {};
    std::vector<OrderedJson> calls = {};
    OrderedJson deltas = OrderedJson::array();    // not sent yet
    OrderedJson logprobs = OrderedJson::array();  // not sent yet
    OrderedJson finish_reason = nullptr;
  };

  void put(const ToolEvent& event, Choice& choice) {
    // The last token of a call may contain text after it.
    const bool is_after_call = event.index > 0 || (event.index < 0 && !choice.calls.empty());
    if (single_call_ && is_after_call) return;
    switch (event.kind) {
      case ToolEvent::Kind::kContent:
        choice.content += event.text;
        return choice.deltas.push_back({{"content", event.text}});
      case ToolEvent::Kind::kThought:
        choice.thoughts += event.text;
        return choice.deltas.push_back({{"reasoning_content", event.text}});
      case ToolEvent::Kind::kCallBegun: {
        choice.calls.push_back(call_json(event.id.empty() ? call_id() : event.id, event.text, ""));
        OrderedJson json = {{"index", event.index}};
        json.update(choice.calls.back());
        return choice.deltas.push_back({{"tool_calls", OrderedJson::array({json})}});
      }
      case ToolEvent::Kind::kArguments:
        choice.calls.back()["function"]["arguments"].get_ref<std::string&>() += event.text;
        return choice.deltas.push_back(
            {{"tool_calls",
              OrderedJson::array({{{"index", event.index}, {"function", {{"arguments", event.text}}}}})}});
      case ToolEvent::Kind::kCallEnded:  // a whole reply has no half call
        if (!event.is_complete && !streams_) choice.calls.pop_back();
    }
  }

  OrderedJson take_logprobs(Choice& choice) const {
    if (!has_logprobs_) return nullptr;
    return {{"content", std::exchange(choice.logprobs, OrderedJson::array())}};
  }

  std::string delta_chunk(size_t index, OrderedJson delta, OrderedJson logprobs, const OrderedJson& reason) const {
    return chunk(
        {{"index", index}, {"delta", std::move(delta)}, {"logprobs", std::move(logprobs)}, {"finish_reason", reason}});
  }

  // Everything of a choice that was not sent yet.
  std::string chunks(size_t index) {
    Choice& choice = choices_[index];
    std::string text;
    if (choice.deltas.empty() && !choice.logprobs.empty()) choice.deltas.push_back({{"content", ""}});
    for (OrderedJson& part : choice.deltas) text += delta_chunk(index, std::move(part), take_logprobs(choice), nullptr);
    choice.deltas.clear();
    const bool is_over = !choice.finish_reason.is_null();
    return text + (is_over ? delta_chunk(index, OrderedJson::object(), nullptr, choice.finish_reason) : "");
  }

  OrderedJson whole_choice(size_t index) override {
    Choice& choice = choices_[index];
    const bool is_call = choice.content.empty() && !choice.calls.empty();
    OrderedJson message = {{"role", "assistant"},
                           {"content", is_call ? OrderedJson(nullptr) : OrderedJson(choice.content)}};
    if (!choice.thoughts.empty()) message["reasoning_content"] = choice.thoughts;
    if (!choice.calls.empty()) message["tool_calls"] = choice.calls;
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", take_logprobs(choice)},
            {"finish_reason", choice.finish_reason}};
  }

  const bool has_logprobs_, single_call_;
  std::deque<Choice> choices_;
};

}  // namespace

Reply complete_chat(const ServerState& server, const HttpRequest& http) {
  ChatRequest request;
  request.fields.is_strict = http.is_strict;
  if (Error e = read_chat_request(server, http.body, &request)) return error_reply(Api::openai, e);
  return chat_reply(server, Api::openai, request, http, std::make_unique<ChatFormatter>(server, request));
}

}  // namespace pinion
