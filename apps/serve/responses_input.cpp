// Reads requests of the Responses API: items become messages of the chat API, tools of other types functions.

#include "apps/serve/responses.h"

namespace pinion {
namespace {

OrderedJson response_head(const ServerState& server, const OrderedJson& request) {
  OrderedJson head = server_table("response");
  head["id"] = response_id("resp_");
  head["created_at"] = static_cast<int64_t>(std::time(nullptr));
  head["model"] = server.model;
  for (const auto& [name, value] : server_table("response_fields").items()) {
    const OrderedJson& given = field_of(request, name.c_str());
    head[name] = given.is_null() ? value : given;
  }
  return head;
}

Error missing_text(const std::string& where, const char* name) {
  return error("missing field", where + ": " + name, "a string");
}

std::string name_for_model(const OrderedJson& tool, const std::string& space) {
  const std::string name = text_of(tool, "name");
  const bool is_joined = space.empty() || space.ends_with('_') || name.starts_with('_');
  return space + (is_joined ? "" : "__") + name;
}

Error read_parts(const OrderedJson& content, const std::string& where, std::string* text, bool* has_media) {
  if (content.is_string()) *text = content;
  if (!content.is_string() && !content.is_array()) return error("wrong type", where, "a string or a list of parts");
  for (size_t i = 0; content.is_array() && i < content.size(); ++i) {
    if (text_of(content[i], "type").empty()) return missing_text(where + "[" + std::to_string(i) + "]", "type");
    *text += part_text(content[i], has_media);
  }
  return {};
}

std::string thoughts_of(const OrderedJson& item) {
  std::string text = text_of(item, "encrypted_content");
  text.erase(0, text.starts_with(kThoughtMark) ? kThoughtMark.size() : text.npos);
  for (const char* parts : {"summary", "content"}) {
    if (!field_of(item, parts).empty()) text.clear();
    for (const OrderedJson& part : field_of(item, parts)) text += text_of(part, "text");
  }
  return text;
}

// Reads items as messages. The thoughts, texts and calls of one turn form one message of the assistant.
struct ItemReader {
  const OrderedJson& items;
  GenerationFields* fields;
  bool* has_media;
  OrderedJson messages = OrderedJson::array();

  // `kinds`: fields of the assistant's last message after which a new one begins.
  OrderedJson& answer(std::initializer_list<const char*> kinds) {
    const auto is_set = [&](const char* kind) { return !field_of(messages.back(), kind).empty(); };
    if (!ends_with_role(messages, "assistant") || std::ranges::any_of(kinds, is_set)) {
      messages.push_back({{"role", "assistant"}, {"content", nullptr}});
    }
    return messages.back();
  }

  Error add_message(size_t i, const std::string& where) {
    constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
    const std::string role = text_of(items[i], "role");
    std::string text;
    bool has_medium = false;
    if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
      return error("unknown value", where + ": role", "user, assistant, system or developer");
    }
    if (Error e = read_parts(field_of(items[i], "content"), where + ": content", &text, &has_medium)) return e;
    if (has_medium && awaits_answer(items, i)) return error(kTextOnly, where);
    *has_media |= has_medium;
    if (role == "assistant") {
      answer({"content"})["content"] = std::move(text);
    } else {
      messages.push_back({{"role", role}, {"content", std::move(text)}});
    }
    return {};
  }

  // The call of a tool, or its output.
  Error add_call(const OrderedJson& item, const std::string& where) {
    const std::string type = text_of(item, "type"), id = text_of(item, "call_id"),
                      name = name_for_model(item, text_of(item, "namespace"));
    const bool is_custom = type == "custom_tool_call";
    if (id.empty()) return missing_text(where, "call_id");
    if (type.ends_with("_output")) {
      std::string text;
      if (Error e = read_parts(field_of(item, "output"), where + ": output", &text, has_media)) return e;
      messages.push_back({{"role", "tool"}, {"tool_call_id", id}, {"content", std::move(text)}});
      return {};
    }
    OrderedJson arguments = field_of(item, is_custom ? "input" : "arguments");
    if (name.empty()) return missing_text(where, "name");
    if (!arguments.is_string()) return missing_text(where, is_custom ? "input" : "arguments");
    if (is_custom) arguments = {{"input", std::move(arguments)}};
    answer({})["tool_calls"].push_back(call_json(id, name, std::move(arguments)));
    return {};
  }

  Error add_item(size_t i, const std::string& where) {
    const std::string type = text_of(items[i], "type");
    if (type == "message" || (type.empty() && items[i].contains("role"))) return add_message(i, where);
    if (type.empty()) return missing_text(where, "type");
    if (type.starts_with("function_call") || type.starts_with("custom_tool_call")) return add_call(items[i], where);
    if (type != "reasoning") note_ignored("input: ", type, fields);
    const std::string thoughts = type == "reasoning" ? thoughts_of(items[i]) : "";
    if (!thoughts.empty()) answer({"content", "tool_calls"})["reasoning_content"] = thoughts;
    return {};
  }
};

// Appends the input to the items of the previous response and reads all as messages.
Error read_items(const ServerState& server, OrderedJson given, ResponsesRequest* out, ItemReader* reader) {
  const size_t first = out->items.size();
  if (given.is_string()) given = {{{"role", "user"}, {"content", std::move(given)}}};
  if (!given.is_array()) return error("wrong type", "request: input", "a string or a list of items");
  for (OrderedJson& item : given) out->items.push_back(std::move(item));
  for (size_t i = 0; i < out->items.size(); ++i) {
    const std::string where = "request: input[" + std::to_string(i - std::min(i, first)) + "]";
    if (OrderedJson& item = out->items[i]; text_of(item, "type") == "item_reference") {
      item = server.responses->find_item(text_of(item, "id"));
      if (item.is_null()) return error("no such item is stored; send it whole", where + ": id");
    }
    if (Error e = reader->add_item(i, where)) return e;
  }
  return reader->messages.empty() ? error("no message", "request: input", "at least one") : Error{};
}

// A text as the only argument. The model sees a Lark grammar, but is not held to it.
OrderedJson custom_parameters(const OrderedJson& format, GenerationFields* fields) {
  OrderedJson text = {{"type", "string"}};
  const std::string syntax = text_of(format, "syntax"), definition = text_of(format, "definition");
  if (syntax == "regex") {
    text["pattern"] = "^(?:" + definition + ")$";
  } else if (!definition.empty()) {
    text["description"] = "Grammar (" + syntax + "):\n" + definition;
    note_ignored("tools: format.syntax: ", syntax, fields);
  }
  return {{"type", "object"},
          {"properties", {{"input", std::move(text)}}},
          {"required", {"input"}},
          {"additionalProperties", false}};
}

// Appends tools in the chat API's format.
Error read_response_tools(const OrderedJson& given, const std::string& where, const std::string& space,
                          ResponsesRequest* out, OrderedJson* tools) {
  if (!given.is_null() && !given.is_array()) return error("wrong type", where, "a list");
  for (size_t i = 0; i < given.size(); ++i) {
    const OrderedJson& tool = given[i];
    const std::string type = text_of(tool, "type"), name = text_of(tool, "name"), full = name_for_model(tool, space);
    const std::string here = where + "[" + std::to_string(i) + "]";
    const bool is_space = type == "namespace", is_custom = type == "custom";
    if (type.empty()) return missing_text(here, "type");
    if (!is_space && !is_custom && type != "function") {
      note_ignored("tools: ", type, &out->fields);
      continue;
    }
    if (name.empty()) return missing_text(here, "name");
    if (is_space) {
      if (Error e = read_response_tools(field_of(tool, "tools"), here + ": tools", full, out, tools)) return e;
      continue;
    }
    if (!out->tools.emplace(full, ResponseTool{name, space, is_custom}).second) {
      return error("two tools have this name", here + ": name", "unique names", full);
    }
    OrderedJson function = {{"name", full}};
    for (const char* field : {"description", "parameters", "strict"}) {
      if (const OrderedJson& value = field_of(tool, field); !value.is_null()) function[field] = value;
    }
    if (is_custom) function["parameters"] = custom_parameters(field_of(tool, "format"), &out->fields);
    tools->push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return {};
}

// "tool_choice" in the chat API's format.
OrderedJson chat_choice(OrderedJson choice, GenerationFields* fields) {
  const std::string type = text_of(choice, "type");
  if (type == "function" || type == "custom")
    return {{"type", "function"}, {"name", name_for_model(choice, text_of(choice, "namespace"))}};
  if (type == "allowed_tools") {
    OrderedJson allowed = OrderedJson::array();
    for (const OrderedJson& tool : field_of(choice, "tools")) {
      const std::string name = name_for_model(tool, text_of(tool, "namespace"));
      if (!name.empty()) allowed.push_back({{"name", name}});
    }
    choice["tools"] = std::move(allowed);
  } else if (!type.empty()) {
    note_ignored("tool_choice: ", type, fields);
    return nullptr;
  }
  return choice;
}

// Reads the fields that are no part of the conversation.
Error read_settings(JsonFields& fields, const ServerState& server, ResponsesRequest* out, ChatInput* input) {
  read_generation_fields(fields, server, &out->fields);
  GenerateOptions& options = out->fields.options;
  out->fields.choices = 1;
  options.max_tokens = read_max_tokens(fields, server, {"max_tokens", "max_output_tokens"}, server.service->context());
  out->single_call = !fields.boolean("parallel_tool_calls", true);
  out->is_stored = fields.boolean("store", true);
  const int64_t top = fields.integer("top_logprobs", 0, 0, kMaxTopLogprobs);
  for (const std::string& part : fields.texts("include")) {
    if (part == "message.output_text.logprobs") {
      options.logprobs = static_cast<int32_t>(top);
    } else if (part != "reasoning.encrypted_content") {  // always there
      note_ignored("include: ", part, &out->fields);
    }
  }
  const std::string truncation = fields.text("truncation", "disabled");
  input->drops_turns = truncation == "auto";
  if (truncation != "auto" && truncation != "disabled") fields.fail("truncation", "unknown value", "auto or disabled");
  fields.error = fields.fields("metadata").error;
  return check_other_fields(fields, "", &out->fields.ignored);
}

}  // namespace

Error read_responses_request(const ServerState& server, const std::string& body, ResponsesRequest* out) {
  if (!server.chat_template) return error(kNoChatTemplate, "");
  Slot slot(*server.parse_slots);
  OrderedJson json, tools = OrderedJson::array();
  ChatInput input;
  OutputConstraint constraint;
  if (Error e = parse_body(body, &json)) return e;
  out->response = response_head(server, json);
  OrderedJson given = take_field(json, "input"), format = field_of(field_of(json, "text"), "format");
  if (Error e = read_response_format(format, "text.format", &constraint)) return e;
  if (Error e = take_output_constraint(json, Api::openai, &constraint)) return e;
  if (Error e = read_response_tools(take_field(json, "tools"), "request: tools", "", out, &tools)) return e;
  OrderedJson chat = {{"tools", std::move(tools)},
                      {"tool_choice", chat_choice(take_field(json, "tool_choice"), &out->fields)},
                      {"chat_template_kwargs", take_field(json, "chat_template_kwargs")}};
  const Json rest = request_fields(json);
  JsonFields fields{rest, "request"};
  JsonFields text = fields.fields("text"), reasoning = fields.fields("reasoning");
  if (text.has("verbosity")) note_ignored("text.", "verbosity", &out->fields);
  const std::string effort = reasoning.text("effort", ""), previous = fields.text("previous_response_id", "");
  if (!effort.empty()) chat["reasoning_effort"] = effort;
  out->has_summary = reasoning.has("summary") || reasoning.has("generate_summary");
  const std::string instructions = fields.text("instructions", "");
  if (Error e = read_settings(fields, server, out, &input)) return e;
  const auto stored = previous.empty() ? nullptr : server.responses->find(previous);
  if (!previous.empty() && !stored) {
    return error("not stored; send the whole conversation as input", "request: previous_response_id");
  }
  if (Error e = stored ? parse_body(stored->items, &out->items) : Error{}) return e;
  ItemReader reader{out->items, &out->fields, &input.has_media};
  if (!instructions.empty()) reader.messages.push_back({{"role", "system"}, {"content", instructions}});
  if (Error e = read_items(server, std::move(given), out, &reader)) return e;
  chat["messages"] = std::move(reader.messages);
  if (Error e = take_chat_input(chat, &input)) return e;
  out->response["temperature"] = out->fields.options.sampler.temperature;
  out->response["top_p"] = out->fields.options.sampler.top_p;
  Error failure = make_chat_prompt(server, std::move(input), &out->fields, &out->prompt);
  if (failure.where == "request: messages") failure.where = "request: input";
  return failure ? failure : constrain_output(server, constraint, &out->prompt, slot, &out->fields);
}

}  // namespace pinion
