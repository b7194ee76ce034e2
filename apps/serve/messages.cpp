// POST /v1/messages and /v1/messages/count_tokens: Anthropic's shape (docs.anthropic.com/en/api/messages).
#include <optional>
#include <span>
#include <utility>

#include "apps/serve/answer.h"
#include "apps/serve/answer_form.h"
#include "apps/serve/conversation.h"
#include "kernels/base/hash.h"

namespace pinion {
namespace {

struct MessagesRequest {
  TextFields fields;
  bool only_one_call = false;
  ChatPrompt prompt;
};

// A content of blocks: its texts as one, its calls and the results of calls apart.
struct Content {
  std::string text, thoughts;
  OrderedJson calls = OrderedJson::array(), results = OrderedJson::array();
};

Error read_content(const OrderedJson& content, const std::string& where, Content* out) {
  if (content.is_string()) {
    out->text = content;
    return {};
  }
  if (!content.is_array()) return error("wrong type", where, "a text or a list of blocks");
  for (const OrderedJson& block : content) {
    const std::string type = text_of(block, "type");
    if (type == "text") {
      out->text += text_of(block, "text");
    } else if (type == "thinking") {
      out->thoughts += text_of(block, "thinking");
    } else if (type == "tool_use") {
      const OrderedJson input = block.value("input", OrderedJson::object());
      out->calls.push_back({{"id", text_of(block, "id")},
                            {"type", "function"},
                            {"function", {{"name", text_of(block, "name")}, {"arguments", input}}}});
    } else if (type == "tool_result") {
      Content result;
      if (Error e = read_content(block.value("content", OrderedJson("")), where + ": content", &result)) return e;
      out->results.push_back(
          {{"role", "tool"}, {"tool_call_id", text_of(block, "tool_use_id")}, {"content", result.text}});
    } else if (type != "redacted_thinking") {
      return error("not known", where, "blocks of text, tool_use or tool_result", "\"" + type + "\"");
    }
  }
  return {};
}

// One message may become several: each result of a call is one of its own.
Error add_message(const OrderedJson& message, const std::string& where, OrderedJson* out) {
  const std::string role = text_of(message, "role");
  if (role != "user" && role != "assistant") return error("not known", where + ": role", "user or assistant");
  Content content;
  if (Error e = read_content(message.value("content", OrderedJson(nullptr)), where + ": content", &content)) return e;
  for (const OrderedJson& result : content.results) out->push_back(result);
  if (content.text.empty() && content.calls.empty() && !content.results.empty()) return {};
  OrderedJson made = {{"role", role}, {"content", content.text}};
  if (!content.thoughts.empty()) made["reasoning_content"] = content.thoughts;
  if (!content.calls.empty()) made["tool_calls"] = content.calls;
  out->push_back(std::move(made));
  return {};
}

OrderedJson tool_of(const OrderedJson& tool) {
  OrderedJson function = {{"name", text_of(tool, "name")}};
  if (tool.contains("description")) function["description"] = tool["description"];
  function["parameters"] = tool.value("input_schema", OrderedJson::object());
  return {{"type", "function"}, {"function", std::move(function)}};
}

Error read_choice(const OrderedJson& json, MessagesRequest* request, ChatOrder* out) {
  const auto choice = json.find("tool_choice");
  if (choice == json.end() || choice->is_null()) return {};
  const std::string type = text_of(*choice, "type");
  if (type == "any") out->choice = ToolChoice::required;
  if (type == "none") out->choice = ToolChoice::none;
  if (type == "tool") {
    out->choice = ToolChoice::named;
    out->tool = text_of(*choice, "name");
  }
  request->only_one_call =
      choice->is_object() && choice->value("disable_parallel_tool_use", OrderedJson(false)) == true;
  const bool is_known = out->choice != ToolChoice::automatic || type == "auto";
  return is_known ? Error{} : error("not known", "request: tool_choice", "{\"type\": \"auto\"}, any, tool or none");
}

// For the templates that know it. Models have no budget of thoughts, so budget_tokens is not looked at.
Error read_thinking(const OrderedJson& json, ChatOrder* out) {
  const auto thinking = json.find("thinking");
  if (thinking == json.end() || thinking->is_null()) return {};
  const std::string type = text_of(*thinking, "type");
  if (type == "adaptive") return {};  // as the model likes
  if (type != "enabled" && type != "disabled") {
    return error("not known", "request: thinking", R"({"type": "enabled"}, disabled or adaptive)");
  }
  out->conversation.variables["enable_thinking"] = type == "enabled";
  return {};
}

Error read_tools(const OrderedJson& json, ChatOrder* out) {
  const auto tools = json.find("tools");
  if (tools == json.end() || tools->is_null()) return {};
  if (!tools->is_array()) return error("wrong type", "request: tools", "a list");
  for (const OrderedJson& tool : *tools) {
    if (!tool.is_object()) return error("wrong type", "request: tools", "objects");
    out->conversation.tools.push_back(tool_of(tool));
  }
  return {};
}

// Of `json`, too, what is left is small: see take_chat_order().
Error take_order(OrderedJson& json, MessagesRequest* request, ChatOrder* out) {
  if (!json.is_object()) return error("wrong type", "request", "an object");
  OrderedJson& messages = out->conversation.messages;
  if (const auto system = json.find("system"); system != json.end() && !system->is_null()) {
    Content content;
    if (Error e = read_content(*system, "request: system", &content)) return e;
    if (!content.text.empty()) messages.push_back({{"role", "system"}, {"content", content.text}});
  }
  const auto given = json.find("messages");
  if (given == json.end() || !given->is_array()) return error("missing field", "request: messages", "a list");
  for (size_t i = 0; i < given->size(); ++i) {
    if (Error e = add_message((*given)[i], "request: messages[" + std::to_string(i) + "]", &messages)) return e;
  }
  if (Error e = read_thinking(json, out)) return e;
  if (Error e = read_tools(json, out)) return e;
  for (const char* name : {"system", "messages", "tools"}) json.erase(name);
  return read_choice(json, request, out);
}

// `counts`: nothing is to be generated.
Error read_request(const Serving& serving, const std::string& body, bool counts, MessagesRequest* out) {
  Reading reading(*serving.readers);
  OrderedJson json;
  ChatOrder order;
  AnswerForm form;
  if (Error e = parse_body(body, &json)) return e;
  if (Error e = take_answer_form(json, Shape::anthropic, &form)) return e;
  if (Error e = take_order(json, out, &order)) return e;
  const Json rest = json;
  JsonFields fields{rest, "request"};
  read_text_fields(fields, serving, &out->fields, "stop_sequences");
  out->fields.choices = 1;
  out->fields.options.max_tokens =
      fields.integer("max_tokens", counts ? std::optional<int64_t>(1) : std::nullopt, 1, 1 << 30);
  if (fields.error) return fields.error;
  if (Error e = make_chat_prompt(serving, std::move(order), &out->prompt)) return e;
  return counts ? Error{} : keep_to_form(serving, form, &out->prompt, reading, &out->fields);
}

const char* stop_reason(const TextEvent& end, bool has_calls) {
  if (end.result.finish_reason != FinishReason::stop) return "max_tokens";
  if (!end.stop_text.empty()) return "stop_sequence";
  return has_calls ? "tool_use" : "end_turn";
}

// Anthropic signs what its models think and takes no other thoughts back, so clients want a signature and some leave
// out blocks without one. Here it is a hash of the thought, and nobody looks at it when it comes back.
std::string signature_of(const std::string& thought) {
  return hash_text(hash_bytes(std::as_bytes(std::span(thought))));
}

// Blocks of content as they come; each is of one kind.
class MessageAnswer : public Answer {
 public:
  MessageAnswer(const Serving& serving, const MessagesRequest& request)
      : streams_(request.fields.streams),
        only_one_call_(request.only_one_call),
        parser_(request.prompt.reply),
        prompt_tokens_(std::ssize(request.prompt.ids)),
        message_({{"id", answer_id("msg_")},
                  {"type", "message"},
                  {"role", "assistant"},
                  {"model", serving.model},
                  {"content", OrderedJson::array()},
                  {"stop_reason", nullptr},
                  {"stop_sequence", nullptr},
                  {"usage", {{"input_tokens", prompt_tokens_}, {"output_tokens", 0}}}}) {}

  std::string begin() override {
    send({{"type", "message_start"}, {"message", message_}});
    return std::exchange(events_, "");
  }

  std::string put(const TextEvent& event) override {
    for (const ToolEvent& part : parts_of(parser_, event)) put(part);
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
  // An event is named by its type.
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
      block["signature"] = signature_of(block["thinking"].get_ref<const std::string&>());
      add_delta({{"type", "signature_delta"}, {"signature", block["signature"]}});
    }
    send({{"type", "content_block_stop"}, {"index", message_["content"].size() - 1}});
  }

  void add_delta(OrderedJson delta) {
    send({{"type", "content_block_delta"}, {"index", message_["content"].size() - 1}, {"delta", std::move(delta)}});
  }

  // More of a block whose field of the same name as its type is text.
  void add_text(const std::string& type, const std::string& text) {
    if (type_ != type) {
      OrderedJson block = {{"type", type}, {type, ""}};
      if (type == "thinking") block["signature"] = "";
      begin_block(std::move(block));
    }
    std::string& all = message_["content"].back()[type].get_ref<std::string&>();
    all += text;
    add_delta({{"type", type + "_delta"}, {type, text}});
  }

  void put(const ToolEvent& part) {
    if (only_one_call_ && calls_ > 0 && part.index != 0) return;
    switch (part.kind) {
      case ToolEvent::Kind::kContent:
        return add_text("text", part.text);
      case ToolEvent::Kind::kThought:
        return add_text("thinking", part.text);
      case ToolEvent::Kind::kCallBegun:
        ++calls_;
        arguments_.clear();
        return begin_block({{"type", "tool_use"},
                            {"id", part.id.empty() ? answer_id("toolu_") : part.id},
                            {"name", part.text},
                            {"input", OrderedJson::object()}});
      case ToolEvent::Kind::kArguments:
        arguments_ += part.text;
        return add_delta({{"type", "input_json_delta"}, {"partial_json", part.text}});
      case ToolEvent::Kind::kCallEnded:
        end_block();
    }
  }

  void end(const TextEvent& end) {
    end_block();
    message_["stop_reason"] = stop_reason(end, calls_ > 0);
    message_["stop_sequence"] = text_or_null(end.stop_text);
    message_["usage"] = {{"input_tokens", prompt_tokens_ - end.result.reused_tokens},
                         {"cache_creation_input_tokens", 0},
                         {"cache_read_input_tokens", end.result.reused_tokens},
                         {"output_tokens", end.result.ids.size()}};
  }

  bool streams_, only_one_call_;
  ToolCallParser parser_;
  int64_t prompt_tokens_;
  OrderedJson message_;
  std::string events_;  // that are still to be sent
  std::string type_;    // of the block that is open; empty: none
  std::string arguments_;
  int calls_ = 0;
};

Reply refuse(const ApiError& failure) { return error_reply(Shape::anthropic, failure); }

const ApiError kNoTemplate{.message = "the model has no chat template"};

}  // namespace

Reply answer_messages(const Serving& serving, const HttpRequest& http) {
  if (!serving.chat_template) return refuse(kNoTemplate);
  MessagesRequest request;
  if (Error e = read_request(serving, http.body, false, &request)) return refuse(field_error(e));
  Prompted prompted = order_replies(serving, request.fields, request.prompt, request.only_one_call);
  if (prompted.refused.status != 0) return refuse(prompted.refused);
  return answer_reply(serving, Shape::anthropic, request.fields, http, std::move(prompted.texts),
                      std::make_unique<MessageAnswer>(serving, request));
}

Reply count_tokens(const Serving& serving, const HttpRequest& http) {
  if (!serving.chat_template) return refuse(kNoTemplate);
  MessagesRequest request;
  if (Error e = read_request(serving, http.body, true, &request)) return refuse(field_error(e));
  return json_reply({{"input_tokens", request.prompt.ids.size()}});
}

}  // namespace pinion
