#include "apps/serve/conversation.h"

#include <filesystem>
#include <iterator>

#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr std::string_view kHarmonyTurn = "<|start|>assistant";
constexpr const char* kPart = "parts like {\"type\": \"text\", \"text\": ...}";

Error join_parts(OrderedJson& content, const std::string& where, bool* has_media) {
  std::string text;
  for (const OrderedJson& part : content) {
    if (text_of(part, "type").empty()) return error("wrong type", where, kPart);
    text += part_text(part, has_media);
  }
  content = text;
  return {};
}

// OpenAI sends a call's arguments as a JSON string; templates expect the object.
void parse_arguments(OrderedJson& message) {
  for (OrderedJson* call : calls_of(message)) {
    OrderedJson& function = (*call)["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    OrderedJson parsed;
    if (parse_body(arguments->get_ref<const std::string&>(), &parsed)) continue;  // stays a string
    *arguments = std::move(parsed);
  }
}

// `is_continued`: without content, the thoughts go on.
Error normalise_message(OrderedJson& message, const std::string& where, bool is_continued, bool* has_media) {
  OrderedJson& content = message["content"];
  if (Error e = content.is_array() ? join_parts(content, where + ": content", has_media) : Error{}) return e;
  // Or "": a message of tool calls only.
  if (content.is_null() && !is_continued) content = text_of(message, "refusal");
  const bool is_text = content.is_string() || content.is_null();
  if (!is_text) return error("wrong type", where + ": content", "a string or a list of parts");
  if (const OrderedJson images = take_field(message, "images"); !images.empty()) {  // Ollama's
    content = "[image]" + text_of(message, "content");
    *has_media = true;
  }
  message.erase("refusal");
  parse_arguments(message);
  return {};
}

Error normalise_messages(ChatInput& input) {
  OrderedJson& messages = input.conversation.messages;
  if (Error e = check_messages(messages)) return error(e.message(), "request: messages");
  if (messages.empty()) return error("empty", "request: messages", "at least one");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string where = "request: messages[" + std::to_string(i) + "]";
    const bool is_continued = input.conversation.continue_final_message && i + 1 == messages.size();
    bool has_media = false;
    if (Error e = normalise_message(messages[i], where, is_continued, &has_media)) return e;
    if (has_media && awaits_answer(messages, i)) return error(kTextOnly, where);
    input.has_media |= has_media;
  }
  return {};
}

std::string tool_name(const OrderedJson& tool) {
  const OrderedJson& function = field_of(tool, "function");
  return text_of(function.is_object() ? function : tool, "name");
}

bool has_tool(const OrderedJson& tools, const std::string& name) {
  return std::ranges::find(tools, name, tool_name) != tools.end();
}

Error no_such_tool(const std::string& name) {
  return error("no such tool", "request: tool_choice", "one of tools", "\"" + name + "\"");
}

Error check_tool_choice(const ChatInput& input) {
  const OrderedJson& tools = input.conversation.tools;
  if (input.choice != ToolChoice::required && input.choice != ToolChoice::named) return {};
  if (tools.is_null()) return error("requires tools", "request: tool_choice");
  return input.choice == ToolChoice::named && !has_tool(tools, input.tool) ? no_such_tool(input.tool) : Error{};
}

// {"type": "allowed_tools", "mode": "auto", "tools": [...]}, or nested: the prompt has these tools only.
Error keep_allowed_tools(const OrderedJson& choice, ChatInput* out) {
  OrderedJson& tools = out->conversation.tools;
  const OrderedJson& nested = field_of(choice, "allowed_tools");
  const OrderedJson& given = nested.is_object() ? nested : choice;
  const OrderedJson& allowed = field_of(given, "tools");
  const std::string mode = text_of(given, "mode");
  if (mode != "auto" && mode != "required")
    return error("unknown value", "request: tool_choice: mode", "auto, required");
  if (allowed.empty()) return error("empty", "request: tool_choice: tools", "at least one");
  for (const OrderedJson& tool : allowed) {
    if (!has_tool(tools, tool_name(tool))) return no_such_tool(tool_name(tool));
  }
  const auto is_left_out = [&](const OrderedJson& tool) { return !has_tool(allowed, tool_name(tool)); };
  tools.erase(std::remove_if(tools.begin(), tools.end(), is_left_out), tools.end());
  if (mode == "required") out->choice = ToolChoice::required;
  return {};
}

Error read_tool_choice(const OrderedJson& choice, ChatInput* out) {
  if (choice.is_null() || choice == "auto") return {};
  const std::string type = text_of(choice, "type");
  if (type == "allowed_tools") return keep_allowed_tools(choice, out);
  if (type == "function" || field_of(choice, "function").is_object()) {
    out->choice = ToolChoice::named;
    out->tool = tool_name(choice);
    return {};
  }
  if (choice != "none" && choice != "required") {
    return error("unknown value", "request: tool_choice", "auto, none, required or {\"type\": \"function\", ...}");
  }
  out->choice = choice == "none" ? ToolChoice::none : ToolChoice::required;
  return {};
}

// Appends the beginning of a tool call to the prompt.
Error force_call(const ServerState& server, const ChatInput& input, ChatPrompt* out) {
  ToolCallOptions& reply = out->reply;
  if (reply.format.empty()) {
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

// The answer's state at the prompt's end: templates and begun answers may open a thought, or close one to suppress it.
void find_beginning(const Prompt& prompt, bool is_harmony, ChatPrompt* out) {
  const std::string_view before = std::string_view(prompt.text).substr(0, prompt.continued_at);
  const size_t turn = is_harmony ? before.rfind(kHarmonyTurn) : before.npos;
  std::string begun(turn == before.npos ? opening_mark(before) : before.substr(turn + kHarmonyTurn.size()));
  begun += std::string_view(prompt.text).substr(prompt.continued_at);
  const auto is_closed = [all = rstrip(prompt.text)](const ThinkingMarks& marks) { return all.ends_with(marks.close); };
  out->may_think = std::ranges::none_of(thinking_marks(), is_closed);
  ThinkingSplitter thoughts(false);
  thoughts.put(begun);
  out->reply.inside_thought = thoughts.inside();
  if (thoughts.inside()) out->thought_close = thoughts.close_mark();
  if (prompt.continued_at < prompt.text.size()) out->reply.begun = std::move(begun);
}

// Drops the oldest turns if that is needed for an answer, of an eighth of the context at most.
Error fit_prompt(const ServerState& server, GenerationFields* fields, Conversation* conversation, Prompt* out) {
  const int64_t context = server.service->context(), eighth = std::max<int64_t>(1, context / 8);
  const int64_t room = std::clamp<int64_t>(fields->options.max_tokens, 1, eighth);
  int64_t turns = 0;
  Error e = drop_turns(*server.chat_template, *server.tokenizer, context - room, context, conversation, out, &turns);
  if (turns > 0) fields->ignored.push_back("messages: oldest turns (" + std::to_string(turns) + ")");
  return e;
}

}  // namespace

OrderedJson call_json(const std::string& id, const std::string& name, OrderedJson arguments) {
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

std::string part_text(const OrderedJson& part, bool* has_media) {
  std::string type = text_of(part, "type");
  if (type == "text" || type == "input_text" || type == "output_text") return text_of(part, "text");
  if (type == "refusal") return text_of(part, "refusal");
  const OrderedJson& source = field_of(part, "source");  // of Anthropic's documents
  if (text_of(source, "type") == "text") return text_of(source, "data");
  if (text_of(source, "type") == "content") {
    std::string text = text_of(source, "content");
    if (const OrderedJson& blocks = field_of(source, "content"); blocks.is_array()) {
      for (const OrderedJson& block : blocks) text += part_text(block, has_media);
    }
    return text;
  }
  *has_media = true;
  if (type.starts_with("input_")) type.erase(0, 6);
  if (type.ends_with("_url")) type.erase(type.size() - 4);
  return "[" + type + "]";
}

bool awaits_answer(const OrderedJson& messages, size_t i) {
  if (text_of(messages[i], "role") != "user") return false;
  return std::none_of(messages.begin() + static_cast<std::ptrdiff_t>(i) + 1, messages.end(), [](const auto& later) {
    return text_of(later, "role") == "user" || text_of(later, "role") == "assistant";
  });
}

Error take_chat_input(OrderedJson& body, ChatInput* out) {
  if (!body.is_object()) return error("wrong type", "request", "an object");
  out->conversation.messages = take_field(body, "messages");
  const OrderedJson& messages = out->conversation.messages;
  if (messages.is_null()) return error("missing field", "request: messages");
  out->conversation.continue_final_message =
      ends_with_role(messages, "assistant") && field_of(messages.back(), "prefix") == true;
  if (OrderedJson tools = take_field(body, "tools"); !tools.is_null()) {
    if (!tools.is_array()) return error("wrong type", "request: tools", "a list");
    if (!tools.empty()) out->conversation.tools = std::move(tools);
  }
  if (const OrderedJson effort = take_field(body, "reasoning_effort"); effort.is_string()) {
    out->conversation.variables["reasoning_effort"] = effort;
    if (effort == "none") out->conversation.variables["enable_thinking"] = false;
  }
  if (const OrderedJson variables = take_field(body, "chat_template_kwargs"); !variables.is_null()) {
    if (!variables.is_object()) return error("wrong type", "request: chat_template_kwargs", "an object");
    out->conversation.variables.update(variables);
  }
  return read_tool_choice(take_field(body, "tool_choice"), out);
}

Error make_chat_prompt(const ServerState& server, ChatInput input, GenerationFields* fields, ChatPrompt* out) {
  Conversation& conversation = input.conversation;
  if (Error e = check_tool_choice(input)) return e;
  if (input.choice == ToolChoice::none) conversation.tools = nullptr;
  conversation.is_strict = fields->is_strict;
  if (Error e = normalise_messages(input)) return e;
  if (input.has_media) fields->ignored.emplace_back("messages: media");
  Prompt prompt;
  const int64_t context = server.service->context();
  Error failure = input.drops_turns
                      ? fit_prompt(server, fields, &conversation, &prompt)
                      : make_prompt(*server.chat_template, *server.tokenizer, conversation, &prompt, context);
  failure.where = std::filesystem::path(failure.where).filename().string();  // the server's folders stay private
  if (failure) return failure.what == "too long" ? too_long(server, "messages") : failure;
  fields->mended = prompt.mended;
  if (!prompt.mended.empty()) note("messages that the chat template refuses were mended: " + joined(prompt.mended));
  out->ids = std::move(prompt.ids);
  truncate_prompt(*fields, &out->ids);
  const ToolFormat format = detect_tool_format(template_source(*server.chat_template, conversation));
  // Harmony marks thoughts and answers as well as calls.
  const bool has_marks = !conversation.tools.is_null() || format == "harmony";
  out->reply = {.format = has_marks ? format : ToolFormat(), .tools = std::move(conversation.tools)};
  find_beginning(prompt, format == "harmony", out);
  // Functionary's template ends in a mark that begins either a call or an answer.
  for (const std::string_view mark : tool_format_row(out->reply.format).open) {
    const bool ends_prompt = !mark.empty() && prompt.text.ends_with(mark);
    if (ends_prompt && out->reply.begun.empty()) out->reply.forced_prefix = mark;
  }
  out->text = std::move(prompt.text);
  out->is_forced = input.choice == ToolChoice::required || input.choice == ToolChoice::named;
  out->tool = input.tool;
  return out->is_forced ? force_call(server, input, out) : Error{};
}

std::vector<ToolEvent> parse_event(ToolCallParser& parser, const RequestEvent& event) {
  std::vector<ToolEvent> parts = parser.put(event.text);
  if (event.is_end) std::ranges::move(parser.finish(), std::back_inserter(parts));
  return parts;
}

Reply chat_reply(const ServerState& server, Api api, const ChatRequest& request, const HttpRequest& http,
                 std::unique_ptr<ResponseFormatter> formatter) {
  const ToolCallOptions& reply = request.prompt.reply;
  GenerationFields fields = request.fields;
  fields.continues_prompt |= !reply.begun.empty();
  fields.is_mark = [format = reply.format](std::string_view token) {
    return is_thinking_mark(token) || is_tool_mark(format, token);
  };
  if (request.single_call) fields.single_call = std::make_shared<const ToolCallOptions>(reply);
  return generation_reply(server, api, fields, {request.prompt.ids}, http, std::move(formatter));
}

}  // namespace pinion
