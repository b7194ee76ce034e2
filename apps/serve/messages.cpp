// POST /v1/messages and /v1/messages/count_tokens: Anthropic's API (docs.anthropic.com/en/api/messages).

#include "apps/serve/conversation.h"
#include "kernels/base/hash.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

// The blocks of a content by type.
struct MessageContent {
  std::string text, thoughts;                                                // joined
  OrderedJson calls = OrderedJson::array(), results = OrderedJson::array();  // in OpenAI's format
  bool has_media = false, results_have_media = false;
};

Error read_content(const OrderedJson& content, const std::string& where, MessageContent* out) {
  if (content.is_string()) {
    out->text = content;
    return {};
  }
  if (!content.is_array()) return error("wrong type", where, "a string or a list of blocks");
  for (const OrderedJson& block : content) {
    const std::string type = text_of(block, "type");
    if (type == "thinking") {
      out->thoughts += text_of(block, "thinking");
    } else if (type == "tool_use") {
      out->calls.push_back(
          call_json(text_of(block, "id"), text_of(block, "name"), block.value("input", OrderedJson::object())));
    } else if (type == "tool_result") {
      MessageContent result;
      if (Error e = read_content(block.value("content", OrderedJson("")), where + ": content", &result)) return e;
      out->results.push_back(
          {{"role", "tool"}, {"tool_call_id", text_of(block, "tool_use_id")}, {"content", result.text}});
      out->results_have_media |= result.has_media;
    } else if (type.empty()) {
      return error("wrong type", where, "blocks of text, tool_use or tool_result");
    } else if (type != "redacted_thinking") {
      out->text += part_text(block, &out->has_media);
    }
  }
  return {};
}

// Appends the message in OpenAI's format; each tool result becomes a message of its own.
Error add_message(const OrderedJson& given, size_t i, ChatInput* input) {
  const OrderedJson& message = given[i];
  const std::string where = "request: messages[" + std::to_string(i) + "]";
  OrderedJson* out = &input->conversation.messages;
  const std::string role = text_of(message, "role");
  if (role != "user" && role != "assistant" && role != "system") {
    return error("unknown value", where + ": role", "user, assistant or system");
  }
  MessageContent content;
  if (Error e = read_content(message.value("content", OrderedJson(nullptr)), where + ": content", &content)) return e;
  if (content.has_media && awaits_answer(given, i)) return error(kTextOnly, where);
  input->has_media |= content.has_media || content.results_have_media;
  for (const OrderedJson& result : content.results) out->push_back(result);
  if (content.text.empty() && content.calls.empty() && !content.results.empty()) return {};
  OrderedJson converted = {{"role", role}, {"content", content.text}};
  if (!content.thoughts.empty()) converted["reasoning_content"] = content.thoughts;
  if (!content.calls.empty()) converted["tool_calls"] = content.calls;
  out->push_back(std::move(converted));
  return {};
}

OrderedJson convert_tool(const OrderedJson& tool) {
  OrderedJson function = {{"name", text_of(tool, "name")}};
  if (tool.contains("description")) function["description"] = tool["description"];
  function["parameters"] = tool.value("input_schema", OrderedJson::object());
  return {{"type", "function"}, {"function", std::move(function)}};
}

Error read_message_tool_choice(const OrderedJson& choice, ChatRequest* request, ChatInput* out) {
  if (choice.is_null()) return {};
  const std::string type = text_of(choice, "type");
  if (type == "any") out->choice = ToolChoice::required;
  if (type == "none") out->choice = ToolChoice::none;
  if (type == "tool") {
    out->choice = ToolChoice::named;
    out->tool = text_of(choice, "name");
  }
  request->single_call = field_of(choice, "disable_parallel_tool_use") == true;
  const bool is_known = out->choice != ToolChoice::automatic || type == "auto";
  return is_known ? Error{} : error("unknown value", "request: tool_choice", "{\"type\": \"auto\"}, any, tool or none");
}

// Sets the template variable enable_thinking. budget_tokens is ignored, because models have no such limit.
Error read_thinking(const OrderedJson& thinking, ChatInput* out) {
  if (thinking.is_null()) return {};
  const std::string type = text_of(thinking, "type");
  if (type == "adaptive") return {};  // the template's default
  if (type != "enabled" && type != "disabled") {
    return error("unknown value", "request: thinking", R"({"type": "enabled"}, disabled or adaptive)");
  }
  out->conversation.variables["enable_thinking"] = type == "enabled";
  return {};
}

// Anthropic's own tools ("bash_20250124", "web_search_20250305") have a type and no schema; no template knows them.
Error read_tools(const OrderedJson& tools, GenerationFields* fields, ChatInput* out) {
  if (tools.is_null()) return {};
  if (!tools.is_array()) return error("wrong type", "request: tools", "a list");
  for (const OrderedJson& tool : tools) {
    if (!tool.is_object()) return error("wrong type", "request: tools", "objects");
    const std::string type = text_of(tool, "type");
    if (type.empty() || type == "custom" || tool.contains("input_schema")) {
      out->conversation.tools.push_back(convert_tool(tool));
    } else {
      note_ignored("tools: ", type, fields);
    }
  }
  return {};
}

// Like take_chat_input(), moves the large fields out of `json`.
Error take_messages_input(OrderedJson& json, ChatRequest* request, ChatInput* out) {
  if (!json.is_object()) return error("wrong type", "request", "an object");
  OrderedJson& messages = out->conversation.messages;
  if (const OrderedJson system = take_field(json, "system"); !system.is_null()) {
    MessageContent content;
    if (Error e = read_content(system, "request: system", &content)) return e;
    if (!content.text.empty()) messages.push_back({{"role", "system"}, {"content", content.text}});
  }
  const OrderedJson given = take_field(json, "messages");
  if (!given.is_array()) return error("missing field", "request: messages", "a list");
  for (size_t i = 0; i < given.size(); ++i) {
    if (Error e = add_message(given, i, out)) return e;
  }
  const bool continues = out->conversation.continue_final_message = ends_with_role(messages, "assistant");
  const std::string begun = continues ? text_of(messages.back(), "content") : "";
  if (rstrip(begun) != begun) {
    return error("the last text of the assistant ends with white space", "request: messages", "none there");
  }
  if (Error e = read_thinking(take_field(json, "thinking"), out)) return e;
  if (Error e = read_tools(take_field(json, "tools"), &request->fields, out)) return e;
  return read_message_tool_choice(take_field(json, "tool_choice"), request, out);
}

// `only_count`: the request is for count_tokens, so max_tokens is optional.
Error read_messages_request(const ServerState& server, const HttpRequest& http, bool only_count, ChatRequest* out) {
  if (!server.chat_template) return error(kNoChatTemplate, "");
  out->fields.is_strict = http.is_strict;
  Slot slot(*server.parse_slots);
  OrderedJson json;
  ChatInput input;
  OutputConstraint constraint;
  if (Error e = parse_body(http.body, &json)) return e;
  const std::string effort = text_of(field_of(json, "output_config"), "effort");
  if (!effort.empty()) input.conversation.variables["reasoning_effort"] = effort;
  if (Error e = take_output_constraint(json, Api::anthropic, &constraint)) return e;
  if (Error e = take_messages_input(json, out, &input)) return e;
  const Json rest = request_fields(json);
  JsonFields fields{rest, "request"};
  read_generation_fields(fields, server, &out->fields, "stop_sequences");
  out->fields.choices = 1;
  out->fields.options.max_tokens =
      read_max_tokens(fields, server, {"max_tokens"}, only_count ? std::optional<int64_t>(1) : std::nullopt);
  if (Error e = check_other_fields(fields, "", &out->fields.ignored)) return e;
  if (Error e = make_chat_prompt(server, std::move(input), &out->fields, &out->prompt)) return e;
  return only_count ? Error{} : constrain_output(server, constraint, &out->prompt, slot, &out->fields);
}

const char* stop_reason(const RequestEvent& end, bool has_calls) {
  if (end.result.finish_reason != FinishReason::stop) return "max_tokens";
  return !end.stop_text.empty() ? "stop_sequence" : has_calls ? "tool_use" : "end_turn";
}

// Content blocks, each of one type, in the order of the text.
class MessageFormatter : public ResponseFormatter {
 public:
  MessageFormatter(const ServerState& server, const ChatRequest& request)
      : streams_(request.fields.streams),
        single_call_(request.single_call),
        parser_(request.prompt.reply),
        prompt_tokens_(std::ssize(request.prompt.ids)),
        message_({{"id", response_id("msg_")},
                  {"type", "message"},
                  {"role", "assistant"},
                  {"model", server.model},
                  {"content", OrderedJson::array()},
                  {"stop_reason", nullptr},
                  {"stop_sequence", nullptr},
                  {"usage", {{"input_tokens", prompt_tokens_}, {"output_tokens", 0}}}}) {}

  std::string begin() override {
    send({{"type", "message_start"}, {"message", message_}});
    return std::exchange(events_, "");
  }

  std::string put(const RequestEvent& event) override {
    for (const ToolEvent& part : parse_event(parser_, event)) put(part);
    if (event.is_end) end(event);
    return std::exchange(events_, "");
  }

  std::string finish() override {
    if (!streams_) return json_text(message_) + "\n";
    send({{"type", "message_delta"},
          {"delta", {{"stop_reason", message_["stop_reason"]}, {"stop_sequence", message_["stop_sequence"]}}},
          {"usage", message_["usage"]}});
    send({{"type", "message_stop"}});
    return events_;
  }

 private:
  void send(const OrderedJson& event) {
    if (streams_) events_ += "event: " + event["type"].get<std::string>() + "\n" + event_text(event);
  }

  void begin_block(OrderedJson block) {
    end_block();
    type_ = block["type"];
    const size_t index = message_["content"].size();
    message_["content"].push_back(block);
    send({{"type", "content_block_start"}, {"index", index}, {"content_block", std::move(block)}});
  }

  void end_block() {
    if (std::exchange(type_, "").empty()) return;
    OrderedJson& block = message_["content"].back();
    if (block["type"] == "tool_use") {
      OrderedJson input;
      block["input"] = parse_ordered_json(arguments_, "input", &input) ? OrderedJson::object() : std::move(input);
    }
    if (block["type"] == "thinking") {
      // Some clients drop thoughts without a signature. This one is a hash of the thought, never checked again.
      const auto& thought = block["thinking"].get_ref<const std::string&>();
      block["signature"] = hash_text(hash_bytes(std::as_bytes(std::span(thought))));
      add_delta({{"type", "signature_delta"}, {"signature", block["signature"]}});
    }
    send({{"type", "content_block_stop"}, {"index", message_["content"].size() - 1}});
  }

  void add_delta(OrderedJson delta) {
    send({{"type", "content_block_delta"}, {"index", message_["content"].size() - 1}, {"delta", std::move(delta)}});
  }

  // Appends to a block of type "text" or "thinking", whose text is the field of the same name.
  void add_text(const std::string& type, const std::string& text) {
    if (type_ != type) {
      OrderedJson block = {{"type", type}, {type, ""}};
      if (type == "thinking") block["signature"] = "";
      begin_block(std::move(block));
    }
    message_["content"].back()[type].get_ref<std::string&>() += text;
    add_delta({{"type", type + "_delta"}, {type, text}});
  }

  void put(const ToolEvent& part) {
    if (single_call_ && calls_ > 0 && part.index != 0) return;
    switch (part.kind) {
      case ToolEvent::Kind::kContent: return add_text("text", part.text);
      case ToolEvent::Kind::kThought: return add_text("thinking", part.text);
      case ToolEvent::Kind::kCallBegun:
        ++calls_;
        arguments_.clear();
        return begin_block({{"type", "tool_use"},
                            {"id", part.id.empty() ? response_id("toolu_") : part.id},
                            {"name", part.text},
                            {"input", OrderedJson::object()}});
      case ToolEvent::Kind::kArguments:
        arguments_ += part.text;
        return add_delta({{"type", "input_json_delta"}, {"partial_json", part.text}});
      case ToolEvent::Kind::kCallEnded:
        end_block();
        if (!part.is_complete && !streams_) message_["content"].erase(message_["content"].size() - 1);
    }
  }

  void end(const RequestEvent& end) {
    end_block();
    message_["stop_reason"] = stop_reason(end, calls_ > 0);
    message_["stop_sequence"] = text_or_null(end.stop_text);
    message_["usage"] = {{"input_tokens", prompt_tokens_ - end.result.reused_tokens},
                         {"cache_creation_input_tokens", 0},
                         {"cache_read_input_tokens", end.result.reused_tokens},
                         {"output_tokens", end.result.ids.size()}};
  }

  bool streams_, single_call_;
  ToolCallParser parser_;
  int64_t prompt_tokens_;
  OrderedJson message_;
  std::string events_;     // not sent yet
  std::string type_;       // of the open block; empty: none
  std::string arguments_;  // of the open tool_use block
  int calls_ = 0;
};

}  // namespace

Reply answer_messages(const ServerState& server, const HttpRequest& http) {
  ChatRequest request;
  if (Error e = read_messages_request(server, http, false, &request)) return error_reply(Api::anthropic, e);
  return chat_reply(server, Api::anthropic, request, http, std::make_unique<MessageFormatter>(server, request));
}

Reply count_tokens(const ServerState& server, const HttpRequest& http) {
  ChatRequest request;
  if (Error e = read_messages_request(server, http, true, &request)) return error_reply(Api::anthropic, e);
  return json_reply({{"input_tokens", request.prompt.ids.size()}});
}

}  // namespace pinion
