// Expressions, see interpreter.h.
#include <utility>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/interpreter.h"
#include "tokenizer/templates/jinja/operators.h"

namespace pinion::jinja {

using Kind = Expression::Kind;

Value Interpreter::evaluate(const Expression& e, const ScopePointer& scope) {
  const Depth guard;
  place_ = e.place;
  switch (e.kind) {
    case Kind::kConstant:
      return e.value;
    case Kind::kName:
      return look_up(e.text, scope);
    case Kind::kList:
      return Value::list(evaluate_all(e.parts, scope));
    case Kind::kTuple:
      return Value::tuple(evaluate_all(e.parts, scope));
    case Kind::kMapping:
      return evaluate_mapping(e, scope);
    case Kind::kConditional:
    case Kind::kAnd:
    case Kind::kOr:
      return evaluate_choice(e, scope);
    case Kind::kNot:
      return !truth(evaluate_part(e, 0, scope));
    case Kind::kCompare:
      return evaluate_compare(e, scope);
    case Kind::kConcat:
      return evaluate_concat(e, scope);
    case Kind::kBinary:
    case Kind::kNegative:
    case Kind::kPositive:
      return evaluate_binary(e, scope);
    case Kind::kAttribute:
    case Kind::kItem:
    case Kind::kSlice:
      return evaluate_item(e, scope);
    case Kind::kCall:
      return evaluate_call(e, scope);
    case Kind::kFilter:
    case Kind::kTest:
      return evaluate_applied(e, scope);
    case Kind::kMember:
      break;
  }
  fail("not a value");
}

Value Interpreter::evaluate_part(const Expression& e, size_t part, const ScopePointer& scope) {
  return e.parts[part] ? evaluate(*e.parts[part], scope) : Value();
}

Items Interpreter::evaluate_all(const std::vector<ExpressionPointer>& parts, const ScopePointer& scope) {
  Items items;
  for (const ExpressionPointer& part : parts) items.push_back(evaluate(*part, scope));
  return items;
}

Value Interpreter::look_up(const std::string& name, const ScopePointer& scope) {
  if (const Value* found = scope->find(name)) return *found;
  if (const Builtin* global = find(global_functions(), name)) return function(*global);
  return Value::undefined("'" + name + "' is undefined");
}

Value Interpreter::evaluate_mapping(const Expression& e, const ScopePointer& scope) {
  Pairs pairs;
  for (size_t i = 0; i < e.parts.size(); i += 2) {
    const Value key = evaluate_part(e, i, scope);
    set(&pairs, key, evaluate_part(e, i + 1, scope));
  }
  return Value::mapping(std::move(pairs));
}

Value Interpreter::evaluate_choice(const Expression& e, const ScopePointer& scope) {
  Value first = evaluate_part(e, 0, scope);
  const bool holds = truth(first);
  if (e.kind == Kind::kConditional) {
    if (holds || e.parts[2]) return evaluate_part(e, holds ? 1 : 2, scope);
    return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
  }
  return holds == (e.kind == Kind::kAnd) ? evaluate_part(e, 1, scope) : std::move(first);
}

Value Interpreter::evaluate_compare(const Expression& e, const ScopePointer& scope) {
  Value left = evaluate_part(e, 0, scope);
  for (size_t i = 0; i < e.signs.size(); ++i) {
    Value right = evaluate_part(e, i + 1, scope);
    place_ = e.place;
    if (!holds(e.signs[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_concat(const Expression& e, const ScopePointer& scope) {
  std::string text;
  for (size_t i = 0; i < e.parts.size(); ++i) text += to_text(evaluate_part(e, i, scope));
  return text;
}

Value Interpreter::evaluate_binary(const Expression& e, const ScopePointer& scope) {
  const Value left = evaluate_part(e, 0, scope);
  const Value right = e.kind == Kind::kBinary ? evaluate_part(e, 1, scope) : Value();
  place_ = e.place;
  if (e.kind == Kind::kBinary) return binary(e.text, left, right);
  return e.kind == Kind::kNegative ? negative(left) : positive(left);
}

Value Interpreter::evaluate_item(const Expression& e, const ScopePointer& scope) {
  const Value of = evaluate_part(e, 0, scope);
  if (e.kind == Kind::kAttribute) {
    place_ = e.place;
    return attribute(of, e.text);
  }
  const Value first = evaluate_part(e, 1, scope);
  if (e.kind == Kind::kItem) {
    place_ = e.place;
    return item(of, first);
  }
  const Value stop = evaluate_part(e, 2, scope), step = evaluate_part(e, 3, scope);
  place_ = e.place;
  return slice(of, first, stop, step);
}

Arguments Interpreter::evaluate(const CallArguments& arguments, const ScopePointer& scope) {
  Arguments result{evaluate_all(arguments.positional, scope), {}};
  for (const auto& [name, value] : arguments.named) result.named.emplace_back(name, evaluate(*value, scope));
  if (arguments.all_positional) {
    for (Value& value : to_items(evaluate(*arguments.all_positional, scope))) {
      result.positional.push_back(std::move(value));
    }
  }
  if (!arguments.all_named) return result;
  const Value named = evaluate(*arguments.all_named, scope);
  if (named.pairs() == nullptr) fail("argument after ** must be a mapping, not " + type_name(named));
  for (const Pair& pair : *named.pairs()) result.named.emplace_back(need_text(pair.key), pair.value);
  return result;
}

Value Interpreter::evaluate_call(const Expression& e, const ScopePointer& scope) {
  const Value callee = evaluate_part(e, 0, scope);
  const Arguments arguments = evaluate(e.arguments, scope);
  place_ = e.place;
  return call(callee, arguments);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) fail_undefined(callee);
  if (callee.object() == nullptr) fail("'" + type_name(callee) + "' object is not callable");
  return callee.object()->call(*this, arguments);
}

Value Interpreter::evaluate_applied(const Expression& e, const ScopePointer& scope) {
  Value of = e.parts[0] ? evaluate(*e.parts[0], scope) : block_text_;
  Arguments arguments = evaluate(e.arguments, scope);
  arguments.positional.insert(arguments.positional.begin(), std::move(of));
  place_ = e.place;
  if (e.kind == Kind::kTest) return apply_test(e.text, std::move(arguments));
  return apply_filter(e.text, std::move(arguments));
}

Value Interpreter::apply_filter(const std::string& name, Arguments arguments) {
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) fail("no filter named '" + name + "'");
  return jinja::run(*this, *filter, std::move(arguments));
}

bool Interpreter::apply_test(const std::string& name, Arguments arguments) {
  const Builtin* test = find(tests(), name);
  if (test == nullptr) fail("no test named '" + name + "'");
  return truth(jinja::run(*this, *test, std::move(arguments)));
}

}  // namespace pinion::jinja
