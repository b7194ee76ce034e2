#include "apps/serve/conversation.h"

#include <algorithm>
#include <iterator>

#include "tokenizer/answers/answer_text.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr std::string_view kHarmonyTurn = "<|start|>assistant";
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

// `is_continued`: without content, the thoughts go on.
Error normalise_message(OrderedJson& message, const std::string& where, bool is_continued) {
  if (!field_of(message, "images").empty()) return error(kTextOnly, where + ": images");  // Ollama's
  OrderedJson& content = message["content"];
  if (content.is_array()) {
    if (Error e = join_parts(content, where + ": content")) return e;
  }
  if (content.is_null() && !is_continued) content = "";  // a message of tool calls only
  if (!content.is_string() && !content.is_null())
    return error("wrong type", where + ": content", "a string or a list of parts");
  parse_arguments(message);
  return {};
}

Error normalise_messages(Conversation& conversation) {
  OrderedJson& messages = conversation.messages;
  if (Error e = check_messages(messages)) return error(e.message(), "request: messages");
  if (messages.empty()) return error("empty", "request: messages", "at least one");
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool is_continued = conversation.continue_final_message && i + 1 == messages.size();
    if (Error e = normalise_message(messages[i], "request: messages[" + std::to_string(i) + "]", is_continued))
      return e;
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
  reply.forced_prefix = forced_call(reply.format, input.tool, reply.inside_thought);
  std::vector<int32_t> ids;
  if (Error e = encode(*server.tokenizer, reply.forced_prefix, {.add_special = false}, &ids)) return e;
  out->ids.insert(out->ids.end(), ids.begin(), ids.end());
  return {};
}

// The state of the answer at the end of the prompt. Templates may open a thought, or close an empty one to suppress it;
// a beginning of the answer may do either.
void find_beginning(const Prompt& prompt, bool is_harmony, ChatPrompt* out) {
  const std::string_view before = std::string_view(prompt.text).substr(0, prompt.continued_at);
  const size_t turn = is_harmony ? before.rfind(kHarmonyTurn) : before.npos;
  std::string begun(turn == before.npos ? opening_mark(before) : before.substr(turn + kHarmonyTurn.size()));
  begun += std::string_view(prompt.text).substr(prompt.continued_at);
  const auto is_closed_by = [all = rstrip(prompt.text)](const ThinkingMarks& marks) {
    return all.ends_with(marks.close);
  };
  out->may_think = std::ranges::none_of(thinking_marks(), is_closed_by);
  ThinkingSplitter thoughts(false);
  thoughts.put(begun);
  out->reply.inside_thought = thoughts.inside();
  if (thoughts.inside()) out->thought_close = thoughts.close_mark();
  if (prompt.continued_at < prompt.text.size()) out->reply.begun = std::move(begun);
}

}  // namespace

bool ends_with_answer(const OrderedJson& messages) {
  return messages.is_array() && !messages.empty() && text_of(messages.back(), "role") == "assistant";
}

Error take_chat_input(OrderedJson& body, ChatInput* out) {
  if (!body.is_object()) return error("wrong type", "request", "an object");
  out->conversation.messages = take_field(body, "messages");
  const OrderedJson& messages = out->conversation.messages;
  if (messages.is_null()) return error("missing field", "request: messages");
  out->conversation.continue_final_message = ends_with_answer(messages) && field_of(messages.back(), "prefix") == true;
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
    e.where = "request: messages";  // not the path of the template
    return e.what == "too long" ? too_long(server, "messages") : e;
  }
  out->ids = std::move(prompt.ids);
  const ToolFormat format = detect_tool_format(template_source(*server.chat_template, conversation));
  // Harmony marks thoughts and answers as well as calls.
  const bool has_marks = !conversation.tools.is_null() || format == ToolFormat::kHarmony;
  out->reply = {.format = has_marks ? format : ToolFormat::kNone, .tools = std::move(conversation.tools)};
  find_beginning(prompt, format == ToolFormat::kHarmony, out);
  const bool is_forced = input.choice == ToolChoice::required || input.choice == ToolChoice::named;
  return is_forced ? force_call(server, input, out) : Error{};
}

std::vector<ToolEvent> parse_event(ToolCallParser& parser, const RequestEvent& event) {
  std::vector<ToolEvent> parts = parser.put(event.text);
  if (event.is_end) std::ranges::move(parser.finish(), std::back_inserter(parts));
  return parts;
}

Submitted submit_chat_requests(const ServerState& server, GenerationFields fields, const ChatPrompt& prompt,
                               bool single_call) {
  fields.continues_prompt |= !prompt.reply.begun.empty();
  const auto is_mark = [format = prompt.reply.format](std::string_view token) {
    return is_thinking_mark(token) || is_tool_mark(format, token);
  };
  return submit_requests(server, fields, {prompt.ids}, is_mark,
                         single_call ? std::make_shared<const ToolCallOptions>(prompt.reply) : nullptr);
}

}  // namespace pinion
