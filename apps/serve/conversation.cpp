#include "apps/serve/conversation.h"

#include <algorithm>
#include <iterator>

#include "tokenizer/answers/thinking.h"

namespace pinion {
namespace {

constexpr const char* kPart = "parts like {\"type\": \"text\", \"text\": ...}";

// The parts of a content as one text.
Error join_parts(OrderedJson& content, const std::string& where) {
  std::string text;
  for (const OrderedJson& part : content) {
    if (!part.is_object()) return error("wrong type", where, kPart);
    if (text_of(part, "type") != "text") return error(kNoPictures, where, kPart);
    text += text_of(part, "text");
  }
  content = text;
  return {};
}

// OpenAI has a call's arguments as a text, templates want what it spells.
void parse_arguments(OrderedJson& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (OrderedJson& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    OrderedJson& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    OrderedJson parsed;
    if (parse_ordered_json(arguments->get_ref<const std::string&>(), "arguments", &parsed)) continue;  // stays a text
    *arguments = std::move(parsed);
  }
}

Error prepare(OrderedJson& message, const std::string& where) {
  if (const auto images = message.find("images"); images != message.end() && !images->empty()) {  // Ollama's
    return error(kNoPictures, where + ": images");
  }
  OrderedJson& content = message["content"];
  if (content.is_array()) {
    if (Error e = join_parts(content, where + ": content")) return e;
  }
  if (content.is_null()) content = "";  // of a message that is nothing but calls
  if (!content.is_string()) return error("wrong type", where + ": content", "a text or a list of parts");
  parse_arguments(message);
  return {};
}

Error prepare(Conversation& conversation) {
  OrderedJson& messages = conversation.messages;
  if (Error e = check_messages(messages)) return error(e.message(), "request: messages");
  if (messages.empty()) return error("empty", "request: messages", "at least one");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (Error e = prepare(messages[i], "request: messages[" + std::to_string(i) + "]")) return e;
  }
  return {};
}

bool has_tool(const OrderedJson& tools, const std::string& name) {
  return std::ranges::any_of(tools, [&](const OrderedJson& tool) {
    return tool.is_object() && tool.contains("function") && tool["function"].is_object() &&
           text_of(tool["function"], "name") == name;
  });
}

Error check_choice(const ChatOrder& order) {
  const OrderedJson& tools = order.conversation.tools;
  if (order.choice != ToolChoice::required && order.choice != ToolChoice::named) return {};
  if (tools.is_null()) return error("there are no tools to choose from", "request: tool_choice");
  if (order.choice == ToolChoice::named && !has_tool(tools, order.tool)) {
    return error("no such tool", "request: tool_choice", "one of tools", "\"" + order.tool + "\"");
  }
  return {};
}

Error read_choice(const OrderedJson& choice, ChatOrder* out) {
  if (choice.is_null() || choice == "auto") return {};
  if (choice.is_object() && choice.contains("function") && choice["function"].is_object()) {
    out->choice = ToolChoice::named;
    out->tool = text_of(choice["function"], "name");
    return {};
  }
  if (choice == "none") {
    out->choice = ToolChoice::none;
  } else if (choice == "required") {
    out->choice = ToolChoice::required;
  } else {
    return error("not known", "request: tool_choice", "auto, none, required or {\"type\": \"function\", ...}");
  }
  return {};
}

// What has the model call a tool, behind the prompt.
Error force_call(const Serving& serving, const ChatOrder& order, ChatPrompt* out) {
  ToolCallOptions& reply = out->reply;
  if (reply.format == ToolFormat::kNone) {
    return error("this model's template has no form of calls that is known here", "request: tool_choice",
                 "auto or none");
  }
  reply.written = forced_call(reply.format, order.tool, reply.inside_thought);
  std::vector<int32_t> ids;
  if (Error e = encode(*serving.tokenizer, reply.written, {.add_special = false}, &ids)) return e;
  out->ids.insert(out->ids.end(), ids.begin(), ids.end());
  return {};
}

// A template opens a thought for the model, or closes an empty one where none is wanted.
void find_thought(std::string_view prompt, ChatPrompt* out) {
  prompt = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  for (const ThinkingMarks& marks : thinking_marks()) {
    if (prompt.ends_with(marks.open)) out->close_of_thought = marks.close;
    if (prompt.ends_with(marks.close)) out->may_think = false;
  }
}

}  // namespace

Error take_chat_order(OrderedJson& body, ChatOrder* out) {
  if (!body.is_object()) return error("wrong type", "request", "an object");
  const auto take = [&](const char* name) {
    OrderedJson value = nullptr;
    if (const auto field = body.find(name); field != body.end()) {
      value = std::move(*field);
      body.erase(field);
    }
    return value;
  };
  out->conversation.messages = take("messages");
  if (out->conversation.messages.is_null()) return error("missing field", "request: messages");
  if (OrderedJson tools = take("tools"); !tools.is_null()) {
    if (!tools.is_array()) return error("wrong type", "request: tools", "a list");
    if (!tools.empty()) out->conversation.tools = std::move(tools);
  }
  if (const OrderedJson variables = take("chat_template_kwargs"); !variables.is_null()) {
    if (!variables.is_object()) return error("wrong type", "request: chat_template_kwargs", "an object");
    out->conversation.variables.update(variables);
  }
  return read_choice(take("tool_choice"), out);
}

Error make_chat_prompt(const Serving& serving, ChatOrder order, ChatPrompt* out) {
  Conversation& conversation = order.conversation;
  if (Error e = check_choice(order)) return e;
  if (order.choice == ToolChoice::none) conversation.tools = nullptr;
  if (Error e = prepare(conversation)) return e;
  Prompt prompt;
  const int64_t most_tokens = serving.service->context();
  if (Error e = make_prompt(*serving.chat_template, *serving.tokenizer, conversation, &prompt, most_tokens)) {
    return e.what == "too long" ? too_long(serving, "messages") : e;
  }
  out->ids = std::move(prompt.ids);
  const ToolFormat format = detect_tool_format(template_source(*serving.chat_template, conversation));
  // Harmony's marks are around thoughts and answers, too.
  const bool is_read = !conversation.tools.is_null() || format == ToolFormat::kHarmony;
  out->reply = {.format = is_read ? format : ToolFormat::kNone,
                .tools = std::move(conversation.tools),
                .inside_thought = ends_in_thought(prompt.text)};
  find_thought(prompt.text, out);
  const bool is_forced = order.choice == ToolChoice::required || order.choice == ToolChoice::named;
  return is_forced ? force_call(serving, order, out) : Error{};
}

std::vector<ToolEvent> parts_of(ToolCallParser& parser, const TextEvent& event) {
  std::vector<ToolEvent> parts = parser.put(event.text);
  if (event.is_end) std::ranges::move(parser.finish(), std::back_inserter(parts));
  return parts;
}

Prompted order_replies(const Serving& serving, const TextFields& fields, const ChatPrompt& prompt, bool only_one_call) {
  const auto is_mark = [format = prompt.reply.format](std::string_view token) {
    return is_thinking_mark(token) || is_tool_mark(format, token);
  };
  return order_texts(serving, fields, {prompt.ids}, is_mark,
                     only_one_call ? std::make_shared<const ToolCallOptions>(prompt.reply) : nullptr);
}

}  // namespace pinion
