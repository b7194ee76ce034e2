#include "apps/serve/tool_rules.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "apps/cli/grammar_rules.h"
#include "tokenizer/answers/answer_text.h"

namespace pinion {
namespace {

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
    return is_tool_mark(row_.format, text) || is_thinking_mark(text) ? text : "";
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
  const OrderedJson source = {{"format", static_cast<int>(format)}, {"is_forced", is_forced}, {"tools", schemas}};
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
      if (server.grammars->compile(source_of(format, is_forced, schemas), "request: tools", true, &held.grammar)) {
        return {};
      }
    }
  }
  std::ranges::copy(loose_tools(*held.grammar), std::back_inserter(held.loose_tools));
  std::ranges::transform(held.loose_tools, held.loose_tools.begin(), header_text);
  return held;
}

}  // namespace

void hold_calls(const ServerState& server, const ChatPrompt& chat, GenerationFields* fields) {
  if (chat.reply.format == ToolFormat::kNone || !chat.reply.tools.is_array()) return;
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

}  // namespace pinion
