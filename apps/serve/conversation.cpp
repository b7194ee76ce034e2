#include "apps/serve/conversation.h"

#include <algorithm>
#include <iterator>

#include "tokenizer/answers/answer_text.h"

namespace pinion {
namespace {

constexpr const char* kPart = "parts like {\"type\": \"text\", \"text\": ...}";

Error join_parts(OrderedJson& content, const std::string& where) {
  std::string text;
  for (const OrderedJson& part : content) {
    if (!part.is_object()) return error("wrong type", where, kPart);
    if (text_of(part, "type") != "text") return error(kTextOnly, where, kPart);
    text += text_of(part, "text");
  }
  content = text;
  return {};
}

// OpenAI sends a call's arguments as a JSON string; templates expect the object.
void parse_arguments(OrderedJson& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (OrderedJson& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    OrderedJson& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    OrderedJson parsed;
    if (parse_ordered_json(arguments->get_ref<const std::string&>(), "arguments", &parsed)) continue;  // stays a string
    *arguments = std::move(parsed);
  }
}

Error normalise_message(OrderedJson& message, const std::string& where) {
  if (!field_of(message, "images").empty()) return error(kTextOnly, where + ": images");  // Ollama's
  OrderedJson& content = message["content"];
  if (content.is_array()) {
    if (Error e = join_parts(content, where + ": content")) return e;
  }
  if (content.is_null()) content = "";  // a message of tool calls only
  if (!content.is_string()) return error("wrong type", where + ": content", "a string or a list of parts");
  parse_arguments(message);
  return {};
}

Error normalise_messages(Conversation& conversation) {
  OrderedJson& messages = conversation.messages;
  if (Error e = check_messages(messages)) return error(e.message(), "request: messages");
  if (messages.empty()) return error("empty", "request: messages", "at least one");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (Error e = normalise_message(messages[i], "request: messages[" + std::to_string(i) + "]")) return e;
  }
  return {};
}

bool has_tool(const OrderedJson& tools, const std::string& name) {
  return std::ranges::any_of(tools, [&](const OrderedJson& tool) {
    const OrderedJson& function = field_of(tool, "function");
    return function.is_object() && text_of(function, "name") == name;
  });
}

Error check_tool_choice(const ChatInput& input) {
  const OrderedJson& tools = input.conversation.tools;
  if (input.choice != ToolChoice::required && input.choice != ToolChoice::named) return {};
  if (tools.is_null()) return error("requires tools", "request: tool_choice");
  if (input.choice == ToolChoice::named && !has_tool(tools, input.tool)) {
    return error("no such tool", "request: tool_choice", "one of tools", "\"" + input.tool + "\"");
  }
  return {};
}

Error read_tool_choice(const OrderedJson& choice, ChatInput* out) {
  if (choice.is_null() || choice == "auto") return {};
  if (const OrderedJson& function = field_of(choice, "function"); function.is_object()) {
    out->choice = ToolChoice::named;
    out->tool = text_of(function, "name");
    return {};
  }
  if (choice == "none") {
    out->choice = ToolChoice::none;
  } else if (choice == "required") {
    out->choice = ToolChoice::required;
  } else {
    return error("unknown value", "request: tool_choice", "auto, none, required or {\"type\": \"function\", ...}");
  }
  return {};
}

// Appends the beginning of a tool call to the prompt.
Error force_call(const ServerState& server, const ChatInput& input, ChatPrompt* out) {
  ToolCallOptions& reply = out->reply;
  if (reply.format == ToolFormat::kNone) {
    return error("the format of tool calls in this model's template is unknown", "request: tool_choice",
                 "auto or none");
  }
  const std::string text = forced_call(reply.format, input.tool, out->thought_close);
  reply.forced_prefix += text;
  std::vector<int32_t> ids;
  if (Error e = encode(*server.tokenizer, text, {.add_special = false}, &ids)) return e;
  out->ids.insert(out->ids.end(), ids.begin(), ids.end());
  return {};
}

// Templates may open a thought, or close an empty one to suppress it.
void find_thought(std::string_view prompt, ChatPrompt* out) {
  prompt = prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1);
  for (const ThinkingMarks& marks : thinking_marks()) {
    if (prompt.ends_with(marks.open)) out->thought_close = marks.close;
    if (prompt.ends_with(marks.close)) out->may_think = false;
  }
}

}  // namespace

Error take_chat_input(OrderedJson& body, ChatInput* out) {
  if (!body.is_object()) return error("wrong type", "request", "an object");
  out->conversation.messages = take_field(body, "messages");
  if (out->conversation.messages.is_null()) return error("missing field", "request: messages");
  if (OrderedJson tools = take_field(body, "tools"); !tools.is_null()) {
    if (!tools.is_array()) return error("wrong type", "request: tools", "a list");
    if (!tools.empty()) out->conversation.tools = std::move(tools);
  }
  if (const OrderedJson variables = take_field(body, "chat_template_kwargs"); !variables.is_null()) {
    if (!variables.is_object()) return error("wrong type", "request: chat_template_kwargs", "an object");
    out->conversation.variables.update(variables);
  }
  return read_tool_choice(take_field(body, "tool_choice"), out);
}

Error make_chat_prompt(const ServerState& server, ChatInput input, ChatPrompt* out) {
  Conversation& conversation = input.conversation;
  if (Error e = check_tool_choice(input)) return e;
  if (input.choice == ToolChoice::none) conversation.tools = nullptr;
  if (Error e = normalise_messages(conversation)) return e;
  Prompt prompt;
  const int64_t max_tokens = server.service->context();
  if (Error e = make_prompt(*server.chat_template, *server.tokenizer, conversation, &prompt, max_tokens)) {
    return e.what == "too long" ? too_long(server, "messages") : e;
  }
  out->ids = std::move(prompt.ids);
  const ToolFormat format = detect_tool_format(template_source(*server.chat_template, conversation));
  // Harmony marks thoughts and answers as well as calls.
  const bool has_marks = !conversation.tools.is_null() || format == ToolFormat::kHarmony;
  out->reply = {.format = has_marks ? format : ToolFormat::kNone,
                .tools = std::move(conversation.tools),
                .inside_thought = ends_in_thought(prompt.text)};
  find_thought(prompt.text, out);
  // Functionary's template ends in a mark that begins either a call or an answer.
  for (const std::string_view mark : tool_format_row(out->reply.format).open) {
    if (!mark.empty() && prompt.text.ends_with(mark)) out->reply.forced_prefix = mark;
  }
  out->is_forced = input.choice == ToolChoice::required || input.choice == ToolChoice::named;
  return out->is_forced ? force_call(server, input, out) : Error{};
}

std::vector<ToolEvent> parse_event(ToolCallParser& parser, const RequestEvent& event) {
  std::vector<ToolEvent> parts = parser.put(event.text);
  if (event.is_end) std::ranges::move(parser.finish(), std::back_inserter(parts));
  return parts;
}

Submitted submit_chat_requests(const ServerState& server, const GenerationFields& fields, const ChatPrompt& prompt,
                               bool single_call) {
  const auto is_mark = [format = prompt.reply.format](std::string_view token) {
    return is_thinking_mark(token) || is_tool_mark(format, token);
  };
  return submit_requests(server, fields, {prompt.ids}, is_mark,
                         single_call ? std::make_shared<const ToolCallOptions>(prompt.reply) : nullptr);
}

}  // namespace pinion
