// Runs a parsed template.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/templates/jinja/syntax.h"
#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

// Names of a block, a round of a loop or a macro's call; what is not there is looked for outside.
struct Scope {
  std::shared_ptr<Scope> outside;
  std::vector<std::pair<std::string, Value>> names = {};

  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
};
using ScopePointer = std::shared_ptr<Scope>;
ScopePointer inside(ScopePointer scope);

// What alone has attributes that a template can set.
struct Namespace : Object {
  explicit Namespace(Pairs pairs) : attributes(std::move(pairs)) {}
  std::string type_name() const override { return "Namespace"; }
  std::string repr() const override;
  std::optional<Value> attribute(const std::string& name) override;

  Pairs attributes;
};

class Interpreter {
 public:
  Interpreter() : top_(inside(nullptr)) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void define(const std::string& variable, Value value) { top_->set(variable, std::move(value)); }
  std::string render(const Body& body);
  size_t place() const { return place_; }  // of the source: where it is or failed

  Value call(const Value& callee, const Arguments& arguments);
  // The first argument is the value that the filter or test is applied to.
  Value apply_filter(const std::string& name, Arguments arguments);
  bool apply_test(const std::string& name, Arguments arguments);

  // For loops and macros, which are values.
  std::string render_loop(const Statement& loop, const ScopePointer& scope, const Value& iterable, int64_t depth);
  std::string call_macro(const Macro& macro, const ScopePointer& closure, const Arguments& arguments);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow run(const Body& body, const ScopePointer& scope, std::string* out);
  Flow run(const Statement& statement, const ScopePointer& scope, std::string* out);
  Flow run_if(const Statement& statement, const ScopePointer& scope, std::string* out);
  Flow run_loop(const Statement& statement, const ScopePointer& scope, const Value& iterable, int64_t depth,
                std::string* out);
  Next filtered(const Statement& loop, const ScopePointer& scope, Next next);
  void run_with(const Statement& statement, const ScopePointer& scope, std::string* out);
  void run_call_block(const Statement& statement, const ScopePointer& scope, std::string* out);
  Value block_value(const Statement& statement, const ScopePointer& scope);
  void assign(const Expression& target, const Value& value, const ScopePointer& scope);

  Value evaluate(const Expression& expression, const ScopePointer& scope);
  Value evaluate_part(const Expression& expression, size_t part, const ScopePointer& scope);
  Items evaluate_all(const std::vector<ExpressionPointer>& parts, const ScopePointer& scope);
  Arguments evaluate(const CallArguments& arguments, const ScopePointer& scope);
  Value look_up(const std::string& name, const ScopePointer& scope);
  Value evaluate_mapping(const Expression& expression, const ScopePointer& scope);
  Value evaluate_choice(const Expression& expression, const ScopePointer& scope);
  Value evaluate_compare(const Expression& expression, const ScopePointer& scope);
  Value evaluate_concat(const Expression& expression, const ScopePointer& scope);
  Value evaluate_binary(const Expression& expression, const ScopePointer& scope);
  Value evaluate_item(const Expression& expression, const ScopePointer& scope);
  Value evaluate_call(const Expression& expression, const ScopePointer& scope);
  Value evaluate_applied(const Expression& expression, const ScopePointer& scope);

  ScopePointer top_;
  std::vector<ScopePointer> closures_;  // of macros: such a scope and what it defines hold each other
  Value block_text_;                    // what a block's filters are applied to
  size_t place_ = 0;
};

// The value of a macro; `caller` of a call's body.
Value macro_value(std::shared_ptr<const Macro> macro, ScopePointer closure);

}  // namespace pinion::jinja
