// Rules for the text of a reply: constraints of requests (request.h), and tool calls held to the request's tools.

#include "apps/cli/grammar_rules.h"
#include "apps/serve/conversation.h"

namespace pinion {
namespace {

constexpr double kMaxGrammarSeconds = 1;  // CPU time on the engine thread, which all requests share

// --- Tool calls

struct ToolRulesOptions {
  std::shared_future<HeldCalls> held;
  std::shared_ptr<const Tokenizer> tokenizer;
  ToolCallOptions reply;
  bool is_forced;   // the reply is nothing but calls
  MakeRules outer;  // of the text outside of calls; empty: none
};

class ToolRules : public TextRules {
 public:
  explicit ToolRules(std::shared_ptr<const ToolRulesOptions> options)
      : options_(std::move(options)), row_(tool_format_row(options_->reply.format)), parser_(options_->reply) {
    if (options_->outer) outer_ = options_->outer();
  }

  bool is_ready() const override {
    return options_->held.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  Error begin(int64_t vocab_size, std::span<const int32_t> eos_ids) override {
    vocab_size_ = vocab_size;
    eos_ids_.assign(eos_ids.begin(), eos_ids.end());
    Error e = outer_ ? outer_->begin(vocab_size, eos_ids) : Error{};
    follow(options_->is_forced ? options_->reply.forced_prefix : "");
    return e;
  }

  Error add(int32_t id) override {
    parser_.put(text_of(id));
    Error e = outer_ ? outer_->add(id) : Error{};
    if (call_ && !e) e = call_->add(id);
    follow("");
    return e;
  }

  std::vector<int32_t> jump_forward() override {
    TextRules* rules = current();
    return rules ? rules->jump_forward() : std::vector<int32_t>();
  }

 private:
  TextRules* current() const { return call_ ? call_.get() : outer_.get(); }

  std::string text_of(int32_t id) const {
    std::string bytes = token_bytes(*options_->tokenizer, id);
    if (!bytes.empty()) return bytes;
    std::string text = token_text(*options_->tokenizer, id);
    return is_tool_mark(row_.name, text) || is_thinking_mark(text) ? text : "";
  }

  // Begins or leaves a call. `begun`: text of a call that the parser cannot tell from an answer yet.
  void follow(std::string begun) {
    const bool is_last = options_->is_forced || row_.body == ToolBody::kHarmony;  // nothing follows the calls
    if (call_ && call_->is_complete && !is_last) call_.reset();
    if (!call_ && (!outer_ || outer_->allowed.empty())) {  // else the call is part of the constrained text
      if (!parser_.open_call().empty()) begun = parser_.open_call();
      begin_call(std::move(begun));
    }
    const TextRules* rules = current();
    allowed = rules ? rules->allowed : std::vector<uint32_t>();
    is_complete = rules && rules->is_complete;
  }

  void begin_call(std::string begun) {
    // A mark that may be a word of an answer, such as "functools", needs a bracket or a line end behind the name.
    const auto begins = [&](std::string_view mark) {
      const bool is_certain = mark.find_first_of("<[=") != mark.npos;
      return !mark.empty() && begun.starts_with(mark) &&
             (is_certain || begun.find_first_of("[{\n", mark.size()) != begun.npos);
    };
    const bool has_mark = std::ranges::any_of(row_.open, begins) || begins(kHarmonyCall);
    const auto is_named = [&](const OrderedJson& tool) {
      const std::string name = pinion::text_of(field_of(tool, "function"), "name");
      return begun.find('"' + name + '"') != begun.npos || begun.find(name + '(') != begun.npos;
    };
    // Without a mark, the text may also be an answer until it names a tool.
    const bool is_call =
        has_mark || options_->is_forced || (!row_.bare.empty() && std::ranges::any_of(options_->reply.tools, is_named));
    const std::shared_ptr<const Grammar>& grammar = options_->held.get().grammar;
    if (!grammar || begun.empty() || !is_call) return;
    std::unique_ptr<TextRules> rules = grammar_rules({.grammar = grammar,
                                                      .tokenizer = options_->tokenizer,
                                                      .begun = std::move(begun),
                                                      .max_seconds = kMaxGrammarSeconds})();
    // It fails if the token with the mark goes on with a text that is no call: then it is content.
    if (!rules->begin(vocab_size_, eos_ids_)) call_ = std::move(rules);
  }

  std::shared_ptr<const ToolRulesOptions> options_;
  const ToolFormatRow& row_;
  ToolCallParser parser_;
  std::unique_ptr<TextRules> outer_, call_;  // call_: while the text is in a call
  int64_t vocab_size_ = 0;
  std::vector<int32_t> eos_ids_;
};

// The schemas of the tools that may be called, by name.
OrderedJson schemas_of(const ChatPrompt& chat) {
  const OrderedJson none = {{"type", "object"}, {"additionalProperties", false}};
  OrderedJson schemas = OrderedJson::object();
  for (const OrderedJson& tool : chat.reply.tools) {
    const OrderedJson& function = field_of(tool, "function");
    const std::string name = text_of(function, "name");
    if (name.empty() || (!chat.tool.empty() && name != chat.tool)) continue;
    const OrderedJson& parameters = field_of(function, "parameters");
    schemas[name] = parameters.is_null() ? none : parameters;
  }
  return schemas;
}

GrammarSource source_of(ToolFormat format, bool is_forced, const OrderedJson& schemas) {
  const OrderedJson source = {{"format", format}, {"is_forced", is_forced}, {"tools", schemas}};
  return {.kind = GrammarSource::Kind::kToolCalls, .text = json_text(source)};
}

HeldCalls compile_calls(const ServerState& server, ToolFormat format, bool is_forced, OrderedJson schemas) {
  HeldCalls held;
  const GrammarSource source = source_of(format, is_forced, schemas);
  if (!server.grammars->find(source, false, &held.grammar)) {
    const Slot slot(*server.grammar_slots);
    if (server.grammars->compile(source, "request: tools", false, &held.grammar)) {
      for (const auto& [name, schema] : schemas.items()) held.loose_tools.push_back(name);
      for (OrderedJson& schema : schemas) schema = {{"type", "object"}};
      const GrammarSource loose = source_of(format, is_forced, schemas);
      if (server.grammars->compile(loose, "request: tools", true, &held.grammar)) return {};
    }
  }
  std::ranges::copy(loose_tools(*held.grammar), std::back_inserter(held.loose_tools));
  std::ranges::transform(held.loose_tools, held.loose_tools.begin(), header_text);
  return held;
}

// Adds rules to fields->options.rules: a call that the model begins, or that the prompt has begun, gets a name of the
// request's tools and arguments that fit its schema. The text outside of calls follows the rules that were there.
// Tools whose schema no grammar expresses may get any object. The grammar is compiled by the thread that first waits
// for fields->held; the rules are not ready before that.
void hold_calls(const ServerState& server, const ChatPrompt& chat, GenerationFields* fields) {
  if (chat.reply.format.empty() || !chat.reply.tools.is_array()) return;
  OrderedJson schemas = schemas_of(chat);
  if (schemas.empty()) return;
  const auto compile = [&server, format = chat.reply.format, is_forced = chat.is_forced, schemas]() -> HeldCalls {
    try {
      return compile_calls(server, format, is_forced, schemas);
    } catch (const std::bad_alloc&) {  // it must not reach the engine's thread; calls are free then
      return {};
    }
  };
  fields->held = std::async(std::launch::deferred, compile);
  if (chat.is_forced && std::exchange(fields->options.min_tokens, 0) > 0) fields->ignored.emplace_back("min_tokens");
  const auto options = std::make_shared<const ToolRulesOptions>(
      ToolRulesOptions{fields->held, server.tokenizer, chat.reply, chat.is_forced, fields->options.rules});
  fields->options.rules = [options] { return std::make_unique<ToolRules>(options); };
}

// --- Structured output

using Kind = GrammarSource::Kind;

constexpr const char* kFinalChannel = "<|channel|>final<|message|>";  // Harmony: the answer follows this

// `kind`: vLLM's name, with its value: {"json": schema}, an object or JSON text, {"regex": text}, {"grammar": text},
// {"choice": texts}, {"json_object": true}.
Error set_constraint(OutputConstraint* out, const std::string& field, const std::string& kind,
                     const OrderedJson& value) {
  const std::string where = "request: " + field;
  GrammarSource source;
  if (kind == "json_object") {
    source.text = R"({"type": "object"})";
  } else if (kind == "json") {
    if (value.is_null()) return error("missing field", where, "a JSON schema");
    source.text = value.is_string() ? value.get<std::string>() : value.dump();
  } else if (kind == "choice") {  // becomes a grammar; JSON's string escapes are valid in GBNF
    const bool is_list = value.is_array() && !value.empty();
    if (!is_list || !std::ranges::all_of(value, [](const OrderedJson& text) { return text.is_string(); })) {
      return error("wrong type", where, "a list of strings");
    }
    source.kind = Kind::kGbnf;
    for (const OrderedJson& text : value) source.text += (source.text.empty() ? "root ::= " : " | ") + json_text(text);
  } else if (kind == "regex" || kind == "grammar") {
    if (!value.is_string()) return error("wrong type", where, "a string");
    source = {.kind = kind == "regex" ? Kind::kRegex : Kind::kGbnf, .text = value.get<std::string>()};
  } else {
    return error("unknown value", where + ": " + kind, "json, regex, grammar, choice or json_object");
  }
  if (out->source) return error("a second output constraint", where, "one; " + out->field + " is given");
  *out = {.field = field, .source = std::move(source)};
  return {};
}

Error read_structured_outputs(const OrderedJson& given, const std::string& field, OutputConstraint* out) {
  if (!given.is_null() && !given.is_object()) return error("wrong type", "request: " + field, "an object");
  for (const auto& [name, value] : given.items()) {
    if (value.is_null() || value == false) continue;
    if (Error e = set_constraint(out, field, name, value)) return e;
  }
  return {};
}

Error read_ollama_format(const OrderedJson& format, OutputConstraint* out) {
  if (format.is_null() || format == "") return {};
  if (format == "json") return set_constraint(out, "format", "json_object", true);
  if (!format.is_object()) return error("unknown value", "request: format", "\"json\" or a JSON schema");
  return set_constraint(out, "format", "json", format);
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

// Allows the unconstrained parts of a reply: a thought that the prompt or the model has opened, and tool calls.
void allow_free_parts(const Tokenizer& tokenizer, const ChatPrompt& chat, GrammarRulesOptions* options) {
  const ToolCallOptions& reply = chat.reply;
  if (reply.format == "harmony") {
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
    return set_constraint(out, field, schema.is_null() ? "json_object" : "json", schema);
  }
  if (type == "json_schema") {
    const OrderedJson& named = field_of(format, "json_schema");
    return set_constraint(out, field, "json", named.is_null() ? field_of(format, "schema") : field_of(named, "schema"));
  }
  return error("unknown value", "request: " + field, "{\"type\": \"text\"}, json_object or json_schema",
               "\"" + type + "\"");
}

Error take_output_constraint(OrderedJson& body, Api api, OutputConstraint* out) {
  switch (api) {
    case Api::ollama: return read_ollama_format(take_field(body, "format"), out);
    case Api::anthropic:
      if (Error e = read_response_format(take_field(body, "output_format"), "output_format", out)) return e;
      return read_response_format(field_of(take_field(body, "output_config"), "format"), "output_config", out);
    case Api::openai: break;
  }
  if (Error e = read_response_format(take_field(body, "response_format"), "response_format", out)) return e;
  if (Error e = read_structured_outputs(take_field(body, "structured_outputs"), "structured_outputs", out)) return e;
  for (const char* name : {"json", "regex", "grammar", "choice"}) {  // older names of vLLM
    const std::string field = std::string("guided_") + name;
    if (Error e = read_structured_outputs({{name, take_field(body, field.c_str())}}, field, out)) return e;
  }
  const OrderedJson schema = take_field(body, "json_schema"), grammar = take_field(body, "grammar");
  if (Error e = schema.is_null() ? Error{} : set_constraint(out, "json_schema", "json", schema)) return e;
  return grammar.is_null() || grammar == "" ? Error{} : set_constraint(out, "grammar", "grammar", grammar);
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
    slot.unlock();
    slot = Slot(*server.grammar_slots);
    const std::string where = "request: " + constraint.field;
    if (Error e = server.grammars->compile(*constraint.source, where, false, &grammar)) return e;
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
