// Statements, see interpreter.h.
#include "tokenizer/templates/jinja/interpreter.h"

#include <algorithm>
#include <utility>

#include "tokenizer/templates/jinja/loop.h"

namespace pinion::jinja {

using Kind = Statement::Kind;

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outside.get()) {
    const auto found = std::ranges::find(scope->names, name, [](const auto& pair) { return pair.first; });
    if (found != scope->names.end()) return &found->second;
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  const auto found = std::ranges::find(names, name, [](const auto& pair) { return pair.first; });
  if (found != names.end()) {
    found->second = std::move(value);
  } else {
    names.emplace_back(name, std::move(value));
  }
}

ScopePointer inside(ScopePointer scope) { return std::make_shared<Scope>(Scope{std::move(scope)}); }

std::string Namespace::repr() const { return "<Namespace " + jinja::repr(Value::mapping(attributes)) + ">"; }

std::optional<Value> Namespace::attribute(const std::string& name) {
  const Value* found = find(attributes, name);
  return found ? std::optional(*found) : std::nullopt;
}

Interpreter::~Interpreter() {
  for (const ScopePointer& scope : closures_) scope->names.clear();
}

std::string Interpreter::render(const Body& body) {
  std::string out;
  run(body, inside(top_), &out);
  return out;
}

Interpreter::Flow Interpreter::run(const Body& body, const ScopePointer& scope, std::string* out) {
  const Depth guard;
  for (const Statement& statement : body) {
    if (const Flow flow = run(statement, scope, out); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run(const Statement& statement, const ScopePointer& scope, std::string* out) {
  place_ = statement.place;
  switch (statement.kind) {
    case Kind::kText:
      *out += statement.text;
      break;
    case Kind::kPrint:
      for (const ExpressionPointer& printed : statement.expressions) *out += to_text(evaluate(*printed, scope));
      break;
    case Kind::kIf:
      return run_if(statement, scope, out);
    case Kind::kFor:
      return run_loop(statement, scope, evaluate(*statement.expressions[0], scope), 0, out);
    case Kind::kSet:
      assign(*statement.target, evaluate(*statement.expressions[0], scope), scope);
      break;
    case Kind::kSetBlock:
      assign(*statement.target, block_value(statement, scope), scope);
      break;
    case Kind::kWith:
      run_with(statement, scope, out);
      break;
    case Kind::kMacro:
      scope->set(statement.macro->name, macro_value(statement.macro, scope));
      closures_.push_back(scope);
      break;
    case Kind::kCallBlock:
      run_call_block(statement, scope, out);
      break;
    case Kind::kFilterBlock:
      *out += to_text(block_value(statement, scope));
      break;
    case Kind::kScope:
      return run(statement.branches[0], inside(scope), out);
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::run_if(const Statement& statement, const ScopePointer& scope, std::string* out) {
  for (size_t i = 0; i < statement.branches.size(); ++i) {
    const bool is_else = i == statement.expressions.size();
    if (is_else || truth(evaluate(*statement.expressions[i], scope))) return run(statement.branches[i], scope, out);
  }
  return Flow::kNext;
}

// The items for which a loop's condition holds.
Next Interpreter::filtered(const Statement& loop, const ScopePointer& scope, Next next) {
  return [this, &loop, scope, next = std::move(next)](Value* out) {
    while (next(out)) {
      const ScopePointer round = inside(scope);
      assign(*loop.target, *out, round);
      if (truth(evaluate(*loop.expressions[1], round))) return true;
    }
    return false;
  };
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement, const ScopePointer& scope, const Value& iterable,
                                        int64_t depth, std::string* out) {
  const bool has_condition = statement.expressions[1] != nullptr;
  Next next = iterate(iterable);
  if (has_condition) next = filtered(statement, scope, std::move(next));
  const auto loop =
      std::make_shared<Loop>(statement, scope, std::move(next), has_condition ? std::nullopt : length(iterable), depth);
  bool is_empty = true;  // as Jinja has it: of rounds that came to their end
  for (Value item; loop->advance(&item);) {
    const ScopePointer round = inside(scope);
    round->set("loop", ObjectPointer(loop));
    assign(*statement.target, item, round);
    const Flow flow = run(statement.branches[0], round, out);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) is_empty = false;
  }
  return is_empty ? run(statement.branches[1], inside(scope), out) : Flow::kNext;
}

std::string Interpreter::render_loop(const Statement& loop, const ScopePointer& scope, const Value& iterable,
                                     int64_t depth) {
  std::string out;
  run_loop(loop, scope, iterable, depth, &out);
  return out;
}

void Interpreter::run_with(const Statement& statement, const ScopePointer& scope, std::string* out) {
  const ScopePointer inner = inside(scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    assign(*statement.targets[i], evaluate(*statement.expressions[i], scope), inner);
  }
  run(statement.branches[0], inner, out);
}

void Interpreter::run_call_block(const Statement& statement, const ScopePointer& scope, std::string* out) {
  const Expression& called = *statement.expressions[0];
  const Value callee = evaluate(*called.parts[0], scope);
  Arguments arguments = evaluate(called.arguments, scope);
  arguments.named.emplace_back("caller", macro_value(statement.macro, scope));
  place_ = called.place;
  *out += to_text(call(callee, arguments));
}

// The text of a block's body, through the block's filters.
Value Interpreter::block_value(const Statement& statement, const ScopePointer& scope) {
  std::string text;
  run(statement.branches[0], inside(scope), &text);
  if (!statement.expressions[0]) return text;
  const Value outer = std::exchange(block_text_, std::move(text));
  Value value = evaluate(*statement.expressions[0], scope);
  block_text_ = outer;
  return value;
}

void Interpreter::assign(const Expression& target, const Value& value, const ScopePointer& scope) {
  place_ = target.place;
  if (target.kind == Expression::Kind::kName) return scope->set(target.text, value);
  if (target.kind == Expression::Kind::kMember) {
    const Value* found = scope->find(target.text);
    auto* space = found ? dynamic_cast<Namespace*>(found->object()) : nullptr;
    if (space == nullptr) fail("cannot assign attribute on non-namespace object");
    if (target.signs[0].starts_with('_')) fail("a namespace's names cannot begin with _");
    return set(&space->attributes, target.signs[0], value);
  }
  const Items items = to_items(value);
  if (items.size() != target.parts.size()) {
    fail("cannot unpack " + std::to_string(items.size()) + " values, expected " + std::to_string(target.parts.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
}

namespace {

struct MacroValue : Object {
  MacroValue(std::shared_ptr<const Macro> parsed, ScopePointer scope)
      : macro(std::move(parsed)), closure(std::move(scope)) {}
  std::string type_name() const override { return "Macro"; }
  std::string repr() const override { return "<Macro '" + macro->name + "'>"; }
  bool is_callable() const override { return true; }
  Value call(Interpreter& interpreter, const Arguments& arguments) override {
    return interpreter.call_macro(*macro, closure, arguments);
  }
  std::optional<Value> attribute(const std::string& name) override {
    if (name == "name") return Value(macro->name);
    if (name == "catch_kwargs") return Value(macro->uses_kwargs);
    if (name == "catch_varargs") return Value(macro->uses_varargs);
    if (name == "caller") return Value(macro->uses_caller);
    if (name != "arguments") return {};
    Items names;
    for (const std::string& parameter : macro->signature.names) names.emplace_back(parameter);
    return Value::tuple(std::move(names));
  }

  std::shared_ptr<const Macro> macro;
  ScopePointer closure;
};

// Moves the argument of that name out of the list.
std::optional<Value> take_named(Arguments* arguments, const std::string& name) {
  const auto found = std::ranges::find(arguments->named, name, [](const auto& pair) { return pair.first; });
  if (found == arguments->named.end()) return {};
  Value value = std::move(found->second);
  arguments->named.erase(found);
  return value;
}

}  // namespace

Value macro_value(std::shared_ptr<const Macro> macro, ScopePointer closure) {
  return ObjectPointer(std::make_shared<MacroValue>(std::move(macro), std::move(closure)));
}

std::string Interpreter::call_macro(const Macro& macro, const ScopePointer& closure, const Arguments& arguments) {
  const Depth guard;
  const ScopePointer scope = inside(closure);
  Arguments left = arguments;
  const std::vector<std::string>& names = macro.signature.names;
  const size_t count = names.size(), given = std::min(count, left.positional.size());
  for (size_t i = 0; i < count; ++i) {
    std::optional<Value> value;
    if (i < given) {
      value = left.positional[i];
    } else {
      value = take_named(&left, names[i]);
    }
    const size_t first_default = count - macro.signature.defaults.size();
    if (!value && i >= first_default) value = evaluate(*macro.signature.defaults[i - first_default], scope);
    scope->set(names[i], value ? *value : Value::undefined("parameter '" + names[i] + "' was not provided"));
  }
  left.positional.erase(left.positional.begin(), left.positional.begin() + static_cast<std::ptrdiff_t>(given));
  if (macro.uses_caller && std::ranges::count(names, "caller") == 0) {
    const std::optional<Value> caller = take_named(&left, "caller");
    scope->set("caller", caller ? *caller : Value::undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    Pairs pairs;
    for (auto& [name, value] : left.named) set(&pairs, name, std::move(value));
    scope->set("kwargs", Value::mapping(std::move(pairs)));
  } else if (!left.named.empty()) {
    fail("macro '" + macro.name + "' takes no keyword argument '" + left.named[0].first + "'");
  }
  if (macro.uses_varargs) {
    scope->set("varargs", Value::tuple(std::move(left.positional)));
  } else if (!left.positional.empty()) {
    fail("macro '" + macro.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  }
  std::string out;
  run(macro.body, scope, &out);
  return out;
}

}  // namespace pinion::jinja
