// Runs a parsed template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/templates/jinja/syntax.h"
#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

// Variables of a block, an iteration of a loop, or a call of a macro. Lookups continue in the enclosing scope.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> names = {};

  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

// The only object whose attributes a template can set.
struct Namespace : Object {
  explicit Namespace(Pairs pairs) : attributes(std::move(pairs)) {}
  std::string type_name() const override { return "Namespace"; }
  std::string repr() const override { return "<Namespace " + jinja::repr(Value::mapping(attributes)) + ">"; }
  std::optional<Value> attribute(const std::string& name) override;

  Pairs attributes;
};

class Interpreter {
 public:
  Interpreter() : top_(std::make_shared<Scope>()) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void define(const std::string& variable, Value value) { top_->set(variable, std::move(value)); }
  std::string render(const Body& body);
  size_t offset() const { return offset_; }  // of the code that runs or failed, bytes of the source

  std::string call_macro(const Macro& macro, const ScopePtr& closure, const Arguments& arguments);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow run(const Body& body, const ScopePtr& scope, std::string* out);
  Flow run(const Statement& statement, const ScopePtr& scope, std::string* out);
  Flow run_if(const Statement& statement, const ScopePtr& scope, std::string* out);
  Flow run_loop(const Statement& statement, const ScopePtr& scope, std::string* out);
  Next filtered(const Statement& loop, const ScopePtr& scope, Next next);
  void run_with(const Statement& statement, const ScopePtr& scope, std::string* out);
  void run_call_block(const Statement& statement, const ScopePtr& scope, std::string* out);
  Value block_value(const Statement& statement, const ScopePtr& scope);
  void assign(const Expression& target, const Value& value, const ScopePtr& scope);

  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value operand(const Expression& expression, size_t index, const ScopePtr& scope);
  Items evaluate_all(const std::vector<ExpressionPtr>& expressions, const ScopePtr& scope);
  Arguments evaluate(const CallArguments& arguments, const ScopePtr& scope);
  Value look_up(const std::string& name, const ScopePtr& scope);
  Value evaluate_mapping(const Expression& expression, const ScopePtr& scope);
  Value evaluate_conditional(const Expression& expression, const ScopePtr& scope);
  Value evaluate_compare(const Expression& expression, const ScopePtr& scope);
  Value evaluate_operation(const Expression& expression, const ScopePtr& scope);
  Value evaluate_call(const Expression& expression, const ScopePtr& scope);
  Value call(const Value& callee, const Arguments& arguments);

  ScopePtr top_;
  std::vector<ScopePtr> closures_;  // scopes with macros, which refer to each other: the destructor breaks the cycles
  Value block_text_;                // the text to which the filters of a block are applied
  size_t offset_ = 0;
};

}  // namespace pinion::jinja
