// OutputConstraint of request.h.
#include <iterator>

#include "apps/cli/grammar_rules.h"
#include "apps/serve/tool_rules.h"
#include "tokenizer/answers/answer_text.h"

namespace pinion {
namespace {

using Kind = GrammarSource::Kind;

constexpr const char* kAnyObject = R"({"type": "object"})";
constexpr const char* kFinalChannel = "<|channel|>final<|message|>";  // Harmony: the answer follows this

Error set_constraint(OutputConstraint* out, const std::string& field, Kind kind, std::string text) {
  if (out->source) return error("a second output constraint", "request: " + field, "one; " + out->field + " is given");
  *out = {.field = field, .source = GrammarSource{.kind = kind, .text = std::move(text)}};
  return {};
}

// `schema`: an object, or its JSON text.
Error set_schema(OutputConstraint* out, const std::string& field, const OrderedJson& schema) {
  if (schema.is_null()) return error("missing field", "request: " + field, "a JSON schema");
  return set_constraint(out, field, Kind::kJsonSchema, schema.is_string() ? schema.get<std::string>() : schema.dump());
}

Error set_text(OutputConstraint* out, const std::string& field, Kind kind, const OrderedJson& text) {
  if (!text.is_string()) return error("wrong type", "request: " + field, "a string");
  return set_constraint(out, field, kind, text.get<std::string>());
}

// Converts the list to a grammar; JSON's string escapes are valid in GBNF.
Error set_choice(OutputConstraint* out, const std::string& field, const OrderedJson& texts) {
  std::string rule = "root ::=";
  if (!texts.is_array() || texts.empty()) return error("wrong type", "request: " + field, "a list of strings");
  for (const OrderedJson& text : texts) {
    if (!text.is_string()) return error("wrong type", "request: " + field, "a list of strings");
    rule += (&text == &texts.front() ? " " : " | ") + json_text(text);
  }
  return set_constraint(out, field, Kind::kGbnf, std::move(rule));
}

// vLLM: {"json": schema}, {"regex": text}, {"grammar": text}, {"choice": texts}, {"json_object": true}
Error read_structured_outputs(const OrderedJson& given, const std::string& field, OutputConstraint* out) {
  if (given.is_null()) return {};
  if (!given.is_object()) return error("wrong type", "request: " + field, "an object");
  for (const auto& [name, value] : given.items()) {
    if (value.is_null() || value == false) continue;
    Error e = name == "json"          ? set_schema(out, field, value)
              : name == "regex"       ? set_text(out, field, Kind::kRegex, value)
              : name == "grammar"     ? set_text(out, field, Kind::kGbnf, value)
              : name == "choice"      ? set_choice(out, field, value)
              : name == "json_object" ? set_constraint(out, field, Kind::kJsonSchema, kAnyObject)
                                      : error("unknown value", "request: " + field + ": " + name,
                                              "json, regex, grammar, choice or json_object");
    if (e) return e;
  }
  return {};
}

Error read_ollama_format(const OrderedJson& format, OutputConstraint* out) {
  if (format.is_null() || format == "") return {};
  if (format == "json") return set_constraint(out, "format", Kind::kJsonSchema, kAnyObject);
  if (!format.is_object()) return error("unknown value", "request: format", "\"json\" or a JSON schema");
  return set_schema(out, "format", format);
}

// The part of the answer's beginning that the constraint covers: without thoughts.
std::string begun_content(ToolCallOptions reply) {
  const std::string begun = std::exchange(reply.begun, {});
  if (begun.empty()) return {};
  reply.inside_thought = false;
  ToolCallParser parser(std::move(reply));
  std::vector<ToolEvent> events = parser.put(begun);
  std::ranges::move(parser.finish(), std::back_inserter(events));
  std::string content;
  for (const ToolEvent& event : events) content += event.kind == ToolEvent::Kind::kContent ? event.text : "";
  return content;
}

// Allows the unconstrained parts of a reply: a thought that the prompt has opened or the model may open, and tool
// calls.
void allow_free_parts(const Tokenizer& tokenizer, const ChatPrompt& chat, GrammarRulesOptions* options) {
  const ToolCallOptions& reply = chat.reply;
  if (reply.format == ToolFormat::kHarmony) {
    options->free_until = kFinalChannel;
    options->may_end_free = !reply.tools.is_null();
    return;
  }
  if (reply.inside_thought) options->free_until = chat.thought_close;
  const auto allow_opening = [&](std::string_view mark, std::string_view until) {
    const int32_t id = mark.empty() ? -1 : token_id(tokenizer, mark);
    if (id >= 0) options->openings.push_back({id, std::string(until)});
  };
  if (!reply.inside_thought && chat.may_think) {
    for (const ThinkingMarks& marks : thinking_marks()) allow_opening(marks.open, marks.close);
  }
  if (reply.tools.is_null()) return;
  const ToolFormatRow& row = tool_format_row(reply.format);
  for (const std::string_view mark : row.open) allow_opening(mark, "");
  for (const std::string_view mark : row.other_marks) allow_opening(row.force_before.starts_with(mark) ? mark : "", "");
}

}  // namespace

Error read_response_format(const OrderedJson& format, const std::string& field, OutputConstraint* out) {
  if (format.is_null()) return {};
  const std::string type = text_of(format, "type");
  if (type == "text") return {};
  if (type == "json_object") {
    const OrderedJson& schema = field_of(format, "schema");
    return schema.is_null() ? set_constraint(out, field, Kind::kJsonSchema, kAnyObject)
                            : set_schema(out, field, schema);
  }
  if (type == "json_schema") {
    const OrderedJson& named = field_of(format, "json_schema");
    return set_schema(out, field, named.is_null() ? field_of(format, "schema") : field_of(named, "schema"));
  }
  return error("unknown value", "request: " + field, "{\"type\": \"text\"}, json_object or json_schema",
               "\"" + type + "\"");
}

Error take_output_constraint(OrderedJson& body, Api api, OutputConstraint* out) {
  switch (api) {
    case Api::ollama:
      return read_ollama_format(take_field(body, "format"), out);
    case Api::anthropic:
      if (Error e = read_response_format(take_field(body, "output_format"), "output_format", out)) return e;
      return read_response_format(field_of(take_field(body, "output_config"), "format"), "output_config", out);
    case Api::openai:
      break;
  }
  if (Error e = read_response_format(take_field(body, "response_format"), "response_format", out)) return e;
  if (Error e = read_structured_outputs(take_field(body, "structured_outputs"), "structured_outputs", out)) return e;
  for (const char* name : {"json", "regex", "grammar", "choice"}) {  // older names of vLLM
    const std::string field = std::string("guided_") + name;
    if (Error e = read_structured_outputs({{name, take_field(body, field.c_str())}}, field, out)) return e;
  }
  const OrderedJson schema = take_field(body, "json_schema"), grammar = take_field(body, "grammar");
  if (!schema.is_null()) {
    if (Error e = set_schema(out, "json_schema", schema)) return e;
  }
  return grammar.is_null() || grammar == "" ? Error{} : set_text(out, "grammar", Kind::kGbnf, grammar);
}

Error constrain_output(const ServerState& server, const OutputConstraint& constraint, const ChatPrompt* chat,
                       Slot& slot, GenerationFields* fields) {
  if (chat && (!constraint.source || chat->is_forced)) hold_calls(server, *chat, fields);
  if (!constraint.source) return {};
  if (fields->options.min_tokens > 0) {
    return error("a constraint decides the length of its text", "request: min_tokens", "no " + constraint.field);
  }
  if (chat && chat->is_forced) return {};
  std::shared_ptr<const Grammar> grammar;
  if (!server.grammars->find(*constraint.source, false, &grammar)) {
    slot.move_to(*server.grammar_slots);
    if (Error e = server.grammars->compile(*constraint.source, "request: " + constraint.field, false, &grammar)) {
      return e;
    }
  }
  GrammarRulesOptions options{
      .grammar = std::move(grammar), .tokenizer = server.tokenizer, .max_seconds = kMaxGrammarSeconds};
  if (chat) {
    options.begun = begun_content(chat->reply);
    allow_free_parts(*server.tokenizer, *chat, &options);
  }
  fields->options.rules = grammar_rules(std::move(options));
  fields->is_constrained = true;
  if (chat) hold_calls(server, *chat, fields);
  return {};
}

}  // namespace pinion
