#include "apps/serve/answer_form.h"

#include <algorithm>
#include <utility>

#include "apps/cli/grammar_rules.h"
#include "tokenizer/answers/thinking.h"

namespace pinion {
namespace {

using Kind = GrammarSource::Kind;

constexpr const char* kOpenaiFields[] = {"response_format", "structured_outputs", "json_schema",    "grammar",
                                         "guided_json",     "guided_regex",       "guided_grammar", "guided_choice"};
constexpr double kMostGrammarSeconds = 1;  // of the thread that all texts share
constexpr const char* kAnyObject = R"({"type": "object"})";
constexpr const char* kFinalChannel = "<|channel|>final<|message|>";  // Harmony's, behind which the answer stands

// A field of an object; null where there is none.
const OrderedJson& field_of(const OrderedJson& json, const char* name) {
  static const OrderedJson kNull;
  const auto found = json.find(name);  // of what is no object: its end
  return found == json.end() ? kNull : *found;
}

Error set(AnswerForm* out, const std::string& field, Kind kind, std::string text) {
  if (out->source) return error("a second form", "request: " + field, "one, " + out->field + " has it");
  *out = {.field = field, .source = GrammarSource{.kind = kind, .text = std::move(text)}};
  return {};
}

// A schema, or the text of one.
Error set_schema(AnswerForm* out, const std::string& field, const OrderedJson& schema) {
  if (schema.is_null()) return error("missing field", "request: " + field, "a JSON schema");
  return set(out, field, Kind::json_schema, schema.is_string() ? schema.get<std::string>() : schema.dump());
}

Error set_text(AnswerForm* out, const std::string& field, Kind kind, const OrderedJson& text) {
  if (!text.is_string()) return error("wrong type", "request: " + field, "a text");
  return set(out, field, kind, text.get<std::string>());
}

// One of some texts, as a grammar. JSON's escapes are GBNF's.
Error set_choice(AnswerForm* out, const std::string& field, const OrderedJson& texts) {
  std::string rule = "root ::=";
  if (!texts.is_array() || texts.empty()) return error("wrong type", "request: " + field, "a list of texts");
  for (const OrderedJson& text : texts) {
    if (!text.is_string()) return error("wrong type", "request: " + field, "a list of texts");
    rule += (&text == &texts.front() ? " " : " | ") + json_text(text);
  }
  return set(out, field, Kind::ebnf, std::move(rule));
}

// {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}; Anthropic has the schema beside the type.
Error read_format(const OrderedJson& format, const std::string& field, AnswerForm* out) {
  if (format.is_null()) return {};
  const std::string type = text_of(format, "type");
  if (type == "text") return {};
  if (type == "json_object") {
    const OrderedJson& schema = field_of(format, "schema");
    return schema.is_null() ? set(out, field, Kind::json_schema, kAnyObject) : set_schema(out, field, schema);
  }
  if (type == "json_schema") {
    const OrderedJson& named = field_of(format, "json_schema");
    return set_schema(out, field, named.is_null() ? field_of(format, "schema") : field_of(named, "schema"));
  }
  return error("not known", "request: " + field, "{\"type\": \"text\"}, json_object or json_schema",
               "\"" + type + "\"");
}

// vLLM's: {"json": schema}, {"regex": text}, {"grammar": text}, {"choice": texts}, {"json_object": true}
Error read_structured(const OrderedJson& given, const std::string& field, AnswerForm* out) {
  if (given.is_null()) return {};
  if (!given.is_object()) return error("wrong type", "request: " + field, "an object");
  for (const auto& [name, value] : given.items()) {
    Error e;
    if (value.is_null() || value == false) continue;
    if (name == "json") {
      e = set_schema(out, field, value);
    } else if (name == "regex") {
      e = set_text(out, field, Kind::regex, value);
    } else if (name == "grammar") {
      e = set_text(out, field, Kind::ebnf, value);
    } else if (name == "choice") {
      e = set_choice(out, field, value);
    } else if (name == "json_object") {
      e = set(out, field, Kind::json_schema, kAnyObject);
    } else {
      e = error("not known", "request: " + field + ": " + name, "json, regex, grammar, choice or json_object");
    }
    if (e) return e;
  }
  return {};
}

Error read_ollama(const OrderedJson& format, AnswerForm* out) {
  if (format.is_null() || format == "") return {};
  if (format == "json") return set(out, "format", Kind::json_schema, kAnyObject);
  if (!format.is_object()) return error("not known", "request: format", "\"json\" or a JSON schema");
  return set_schema(out, "format", format);
}

OrderedJson take(OrderedJson& body, const char* name) {
  OrderedJson value = field_of(body, name);
  if (body.is_object()) body.erase(name);
  return value;
}

// A thought that the prompt has opened or the model may begin with, calls that it may say instead.
void allow_more(const Tokenizer& tokenizer, const ChatPrompt& chat, GrammarOrder* order) {
  const ToolCallOptions& reply = chat.reply;
  if (reply.format == ToolFormat::kHarmony) {
    order->free_until = kFinalChannel;
    order->may_end_free = !reply.tools.is_null();
    return;
  }
  if (reply.inside_thought) order->free_until = chat.close_of_thought;
  const auto may_open = [&](std::string_view mark, std::string_view until) {
    const int32_t id = mark.empty() ? -1 : token_id(tokenizer, mark);
    if (id >= 0) order->openings.push_back({id, std::string(until)});
  };
  if (!reply.inside_thought && chat.may_think) {
    for (const ThinkingMarks& marks : thinking_marks()) may_open(marks.open, marks.close);
  }
  if (reply.tools.is_null()) return;
  for (const std::string_view mark : tool_format_row(reply.format).open) may_open(mark, "");
}

}  // namespace

Error take_answer_form(OrderedJson& body, Shape shape, AnswerForm* out) {
  switch (shape) {
    case Shape::ollama:
      return read_ollama(take(body, "format"), out);
    case Shape::anthropic:
      if (Error e = read_format(take(body, "output_format"), "output_format", out)) return e;
      return read_format(field_of(take(body, "output_config"), "format"), "output_config", out);
    case Shape::openai:
      break;
  }
  if (Error e = read_format(take(body, "response_format"), "response_format", out)) return e;
  if (Error e = read_structured(take(body, "structured_outputs"), "structured_outputs", out)) return e;
  for (const char* name : {"json", "regex", "grammar", "choice"}) {  // vLLM's older fields
    const std::string field = std::string("guided_") + name;
    if (Error e = read_structured({{name, take(body, field.c_str())}}, field, out)) return e;
  }
  const OrderedJson schema = take(body, "json_schema"), grammar = take(body, "grammar");
  if (!schema.is_null()) {
    if (Error e = set_schema(out, "json_schema", schema)) return e;
  }
  return grammar.is_null() || grammar == "" ? Error{} : set_text(out, "grammar", Kind::ebnf, grammar);
}

Error read_answer_form(const Json& request, const std::string& body, AnswerForm* out) {
  const auto is_there = [&](const char* name) { return request.is_object() && request.contains(name); };
  if (std::ranges::none_of(kOpenaiFields, is_there)) return {};
  OrderedJson ordered;
  if (Error e = parse_body(body, &ordered)) return e;
  return take_answer_form(ordered, Shape::openai, out);
}

Error keep_to_form(const Serving& serving, const AnswerForm& form, const ChatPrompt* chat, Reading& reading,
                   TextFields* fields) {
  if (!form.source || (chat && !chat->reply.written.empty())) return {};  // a call that is forced is all of the answer
  std::shared_ptr<const Grammar> grammar;
  if (!serving.grammars->find(*form.source, false, &grammar)) {
    reading.move_to(*serving.preparers);
    if (Error e = serving.grammars->compile(*form.source, "request: " + form.field, false, &grammar)) return e;
  }
  GrammarOrder order{
      .grammar = std::move(grammar), .tokenizer = serving.tokenizer, .most_seconds = kMostGrammarSeconds};
  if (chat) allow_more(*serving.tokenizer, *chat, &order);
  fields->options.rules = grammar_rules(std::move(order));
  return {};
}

}  // namespace pinion
