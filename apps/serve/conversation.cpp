#include "apps/serve/conversation.h"

namespace pinion {
namespace {

// The parts of a content as one text.
Error join_parts(OrderedJson& content, const std::string& where) {
  std::string text;
  for (const OrderedJson& part : content) {
    if (!part.is_object()) return error("wrong type", where, "parts like {\"type\": \"text\", \"text\": ...}");
    const std::string type = part.value("type", OrderedJson("text")).is_string() ? part.value("type", "text") : "";
    const auto words = part.find("text");
    if (type != "text" || words == part.end() || !words->is_string()) {
      return error("only texts are read, no pictures or sounds", where,
                   "parts like {\"type\": \"text\", \"text\": ...}");
    }
    text += words->get_ref<const std::string&>();
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

Error read_message(OrderedJson& message, const std::string& where) {
  const auto content = message.find("content");
  if (content != message.end() && content->is_array()) {
    if (Error e = join_parts(*content, where + ": content")) return e;
  }
  if (content == message.end() || message["content"].is_null())
    message["content"] = "";  // of a message with calls alone
  parse_arguments(message);
  return {};
}

}  // namespace

Error read_conversation(const Serving&, const std::string& body, Conversation* out) {
  OrderedJson json;
  if (Error e = parse_ordered_json(body, "request", &json)) return e;
  const auto messages = json.find("messages");
  if (messages == json.end()) return error("missing field", "request: messages");
  if (Error e = check_messages(*messages)) return error(e.message(), "request: messages");
  if (messages->empty()) return error("empty", "request: messages", "at least one");
  for (size_t i = 0; i < messages->size(); ++i) {
    if (Error e = read_message((*messages)[i], "request: messages[" + std::to_string(i) + "]")) return e;
  }
  out->messages = std::move(*messages);
  if (const auto tools = json.find("tools"); tools != json.end() && tools->is_array() && !tools->empty()) {
    out->tools = std::move(*tools);
  }
  if (const auto variables = json.find("chat_template_kwargs"); variables != json.end() && variables->is_object()) {
    out->variables = std::move(*variables);
  }
  return {};
}

}  // namespace pinion
