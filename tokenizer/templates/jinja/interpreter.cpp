// Runs a parsed template: statements, macros, and expressions. See syntax.h.
#include <algorithm>
#include <utility>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/syntax.h"

namespace pinion::jinja {
namespace {

// Variables of a block, an iteration of a loop, or a call of a macro. Lookups continue in the enclosing scope.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> names = {};

  const Value* find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
      const auto found = std::ranges::find(scope->names, name, [](const auto& pair) { return pair.first; });
      if (found != scope->names.end()) return &found->second;
    }
    return nullptr;
  }

  void set(const std::string& name, Value value) {
    const auto found = std::ranges::find(names, name, [](const auto& pair) { return pair.first; });
    if (found != names.end()) {
      found->second = std::move(value);
    } else {
      names.emplace_back(name, std::move(value));
    }
  }
};
using ScopePtr = std::shared_ptr<Scope>;

ScopePtr inside(ScopePtr scope) { return std::make_shared<Scope>(Scope{std::move(scope)}); }

// A loop, which reads one item ahead for loop.last and loop.nextitem.
class Loop : public std::enable_shared_from_this<Loop> {
 public:
  // Without a length, the remaining items are read and counted when the template uses loop.length.
  Loop(Next next, std::optional<int64_t> length)
      : next_(std::make_shared<const Next>(std::move(next))), length_(length) {}

  // Stores the next item; false: the end.
  bool advance(Value* item) {
    if (!peek()) return false;
    ++index_;
    previous_ = std::exchange(current_, std::exchange(following_, {}));
    *item = *current_;
    return true;
  }

  std::optional<Value> attribute(const std::string& name) {
    if (name == "index") return index_ + 1;
    if (name == "index0") return index_;
    if (name == "first") return index_ == 0;
    if (name == "last") return !peek();
    if (name == "depth") return int64_t{1};  // recursive loops are not supported
    if (name == "depth0") return int64_t{0};
    if (name == "changed") fail("loop.changed is not supported");
    if (name == "length") return length();
    if (name == "revindex") return length() - index_;
    if (name == "revindex0") return length() - index_ - 1;
    if (name == "previtem") return index_ > 0 ? *previous_ : Value::undefined("there is no previous item");
    if (name == "nextitem") return peek() ? *following_ : Value::undefined("there is no next item");
    if (name != "cycle") return {};
    const auto cycle = [loop = shared_from_this()](Interpreter&, const Arguments& choices) {
      if (choices.positional.empty()) fail("no items for cycling given");
      return choices.positional[loop->index_ % choices.positional.size()];
    };
    return Object{.type_name = "function", .text = name, .call = cycle};
  }

 private:
  bool peek() {
    Value item;
    const auto next = next_;
    if (!following_ && (*next)(&item)) following_ = std::move(item);
    return following_.has_value();
  }

  int64_t length() {
    if (length_) return *length_;
    Items rest;
    if (following_) rest.push_back(*following_);
    const auto next = next_;
    for (Value item; (*next)(&item);) rest.push_back(item);
    length_ = index_ + 1 + std::ssize(rest);
    following_.reset();
    next_ = std::make_shared<const Next>(iterate(Value::list(std::move(rest))));
    return *length_;
  }

  std::shared_ptr<const Next> next_;  // length() may replace it while it is being called
  std::optional<int64_t> length_;
  int64_t index_ = -1;
  std::optional<Value> previous_, current_, following_;
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

class Interpreter {
 public:
  explicit Interpreter(ScopePtr variables) : top_(std::move(variables)) {}

  ~Interpreter() {
    for (const ScopePtr& scope : closures_) scope->names.clear();
  }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string render(const Body& body) {
    std::string out;
    run(body, inside(top_), &out);
    return out;
  }

  size_t offset() const { return offset_; }  // of the code that runs or failed, bytes of the source

  std::string call_macro(const Macro& macro, const ScopePtr& closure, const Arguments& arguments) {
    const DepthGuard guard;
    const ScopePtr scope = inside(closure);
    Arguments rest = arguments;
    const size_t count = macro.parameters.size(), first_default = count - macro.defaults.size();
    for (size_t i = 0; i < count; ++i) {
      const std::string& name = macro.parameters[i];
      const bool is_positional = i < arguments.positional.size();
      std::optional<Value> value = is_positional ? arguments.positional[i] : take_named(&rest, name);
      if (!value && i >= first_default) value = evaluate(*macro.defaults[i - first_default], scope);
      scope->set(name, value ? *value : Value::undefined("parameter '" + name + "' was not provided"));
    }
    if (macro.uses_caller && std::ranges::count(macro.parameters, "caller") == 0) {
      scope->set("caller", take_named(&rest, "caller").value_or(Value::undefined("No caller defined")));
    }
    if (!rest.named.empty()) fail("macro '" + macro.name + "' takes no keyword argument '" + rest.named[0].first + "'");
    if (arguments.positional.size() > count) {
      fail("macro '" + macro.name + "' takes not more than " + std::to_string(count) + " argument(s)");
    }
    std::string out;
    run(macro.body, scope, &out);
    return out;
  }

  static Value macro_value(const std::shared_ptr<const Macro>& macro, const ScopePtr& closure) {
    const auto call = [macro, closure](Interpreter& interpreter, const Arguments& arguments) {
      return interpreter.call_macro(*macro, closure, arguments);
    };
    return Object{.type_name = "Macro", .text = "'" + macro->name + "'", .call = call};
  }

 private:
  enum class Flow { kNext, kBreak, kContinue };

  Flow run(const Body& body, const ScopePtr& scope, std::string* out) {
    const DepthGuard guard;
    for (const Statement& statement : body) {
      if (const Flow flow = run(statement, scope, out); flow != Flow::kNext) return flow;
    }
    return Flow::kNext;
  }

  Flow run(const Statement& statement, const ScopePtr& scope, std::string* out) {
    using enum Statement::Kind;
    const Statement::Kind kind = statement.kind;
    offset_ = statement.offset;
    if (kind == kIf) return run_if(statement, scope, out);
    if (kind == kFor) return run_loop(statement, scope, out);
    if (kind == kScope) return run(statement.bodies[0], inside(scope), out);
    if (kind == kBreak) return Flow::kBreak;
    if (kind == kContinue) return Flow::kContinue;
    if (kind == kText) *out += statement.text;
    if (kind == kPrint) *out += to_text(evaluate(*statement.expressions[0], scope));
    if (kind == kFilterBlock) *out += to_text(block_value(statement, scope));
    if (kind == kSet) assign(*statement.target, evaluate(*statement.expressions[0], scope), scope);
    if (kind == kSetBlock) assign(*statement.target, block_value(statement, scope), scope);
    if (kind == kWith) run_with(statement, scope, out);
    if (kind == kCallBlock) run_call_block(statement, scope, out);
    if (kind == kMacro) {
      scope->set(statement.macro->name, macro_value(statement.macro, scope));
      closures_.push_back(scope);
    }
    return Flow::kNext;
  }

  Flow run_if(const Statement& statement, const ScopePtr& scope, std::string* out) {
    for (size_t i = 0; i < statement.bodies.size(); ++i) {
      const bool is_else = i == statement.expressions.size();
      if (is_else || truth(evaluate(*statement.expressions[i], scope))) return run(statement.bodies[i], scope, out);
    }
    return Flow::kNext;
  }

  // The items for which the condition of the loop is true.
  Next filtered(const Statement& loop, const ScopePtr& scope, Next next) {
    return [this, &loop, scope, next = std::move(next)](Value* out) {
      while (next(out)) {
        const ScopePtr iteration = inside(scope);
        assign(*loop.target, *out, iteration);
        if (truth(evaluate(*loop.expressions[1], iteration))) return true;
      }
      return false;
    };
  }

  // As in Jinja, the else body runs if no iteration reached its end: none ran, or each was left by break or continue.
  Flow run_loop(const Statement& statement, const ScopePtr& scope, std::string* out) {
    const Value iterable = evaluate(*statement.expressions[0], scope);
    const bool has_condition = statement.expressions[1] != nullptr;
    Next next = iterate(iterable);
    if (has_condition) next = filtered(statement, scope, std::move(next));
    const auto loop = std::make_shared<Loop>(std::move(next), has_condition ? std::nullopt : length(iterable));
    const Value variable = Object{.type_name = "LoopContext",
                                  .loop_attribute = [loop](const std::string& name) { return loop->attribute(name); }};
    bool runs_else = true;
    for (Value item; loop->advance(&item);) {
      const ScopePtr iteration = inside(scope);
      iteration->set("loop", variable);
      assign(*statement.target, item, iteration);
      const Flow flow = run(statement.bodies[0], iteration, out);
      if (flow == Flow::kBreak) break;
      if (flow == Flow::kNext) runs_else = false;
    }
    return runs_else ? run(statement.bodies[1], inside(scope), out) : Flow::kNext;
  }

  void run_with(const Statement& statement, const ScopePtr& scope, std::string* out) {
    const ScopePtr inner = inside(scope);
    for (size_t i = 0; i < statement.targets.size(); ++i) {
      assign(*statement.targets[i], evaluate(*statement.expressions[i], scope), inner);
    }
    run(statement.bodies[0], inner, out);
  }

  void run_call_block(const Statement& statement, const ScopePtr& scope, std::string* out) {
    const Expression& expression = *statement.expressions[0];
    const Value callee = operand(expression, 0, scope);
    Arguments arguments = evaluate(expression.arguments, scope);
    arguments.named.emplace_back("caller", macro_value(statement.macro, scope));
    offset_ = expression.offset;
    *out += to_text(call(callee, arguments));
  }

  // The text of a block, after the block's filters.
  Value block_value(const Statement& statement, const ScopePtr& scope) {
    std::string text;
    run(statement.bodies[0], inside(scope), &text);
    if (!statement.expressions[0]) return text;
    const Value outer = std::exchange(block_text_, std::move(text));
    Value value = evaluate(*statement.expressions[0], scope);
    block_text_ = outer;
    return value;
  }

  void assign(const Expression& target, const Value& value, const ScopePtr& scope) {
    offset_ = target.offset;
    if (target.kind == Expression::Kind::kName) return scope->set(target.name, value);
    if (target.kind == Expression::Kind::kNamespaceAttribute) {
      const Value* found = scope->find(target.name);
      Object* space = found ? found->object() : nullptr;
      if (!space || !space->attributes) fail("cannot assign attribute on non-namespace object");
      if (target.operators[0].starts_with('_')) fail("a namespace's names cannot begin with _");
      return set(&*space->attributes, target.operators[0], value);
    }
    const Items items = to_items(value);
    if (items.size() != target.operands.size()) {
      fail("cannot unpack " + std::to_string(items.size()) + " values, expected " +
           std::to_string(target.operands.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], items[i], scope);
  }

  Value evaluate(const Expression& e, const ScopePtr& scope) {
    using enum Expression::Kind;
    const DepthGuard guard;
    offset_ = e.offset;
    if (e.kind == kConstant) return e.value;
    if (e.kind == kName) return look_up(e.name, scope);
    if (e.kind == kList) return Value::list(evaluate_all(e.operands, scope));
    if (e.kind == kTuple) return Value::tuple(evaluate_all(e.operands, scope));
    if (e.kind == kMapping) return evaluate_mapping(e, scope);
    if (e.kind == kConditional) return evaluate_conditional(e, scope);
    if (e.kind == kAnd || e.kind == kOr) {
      Value first = operand(e, 0, scope);
      return truth(first) == (e.kind == kAnd) ? operand(e, 1, scope) : std::move(first);
    }
    if (e.kind == kNot) return !truth(operand(e, 0, scope));
    if (e.kind == kCompare) return evaluate_compare(e, scope);
    if (e.kind == kConcat) {
      std::string text;
      for (size_t i = 0; i < e.operands.size(); ++i) text += to_text(operand(e, i, scope));
      return text;
    }
    if (e.kind == kCall || e.kind == kFilter || e.kind == kTest) return evaluate_call(e, scope);
    return evaluate_operation(e, scope);
  }

  Value operand(const Expression& e, size_t index, const ScopePtr& scope) {
    return index < e.operands.size() && e.operands[index] ? evaluate(*e.operands[index], scope) : Value();
  }

  Items evaluate_all(const std::vector<ExpressionPtr>& expressions, const ScopePtr& scope) {
    Items items;
    for (const ExpressionPtr& expression : expressions) items.push_back(evaluate(*expression, scope));
    return items;
  }

  Value look_up(const std::string& name, const ScopePtr& scope) {
    if (const Value* found = scope->find(name)) return *found;
    if (const Builtin* global = find(global_functions(), name)) return function(*global);
    return Value::undefined("'" + name + "' is undefined");
  }

  Value evaluate_mapping(const Expression& e, const ScopePtr& scope) {
    Pairs pairs;
    for (size_t i = 0; i < e.operands.size(); i += 2) {
      const Value key = operand(e, i, scope);
      set(&pairs, key, operand(e, i + 1, scope));
    }
    return Value::mapping(std::move(pairs));
  }

  Value evaluate_conditional(const Expression& e, const ScopePtr& scope) {
    const bool holds = truth(operand(e, 0, scope));
    if (holds || e.operands[2]) return operand(e, holds ? 1 : 2, scope);
    return Value::undefined("the inline if-expression evaluated to false and no else section was defined");
  }

  Value evaluate_compare(const Expression& e, const ScopePtr& scope) {
    Value left = operand(e, 0, scope);
    for (size_t i = 0; i < e.operators.size(); ++i) {
      Value right = operand(e, i + 1, scope);
      offset_ = e.offset;
      if (!is_true(e.operators[i], left, right)) return false;
      left = std::move(right);
    }
    return true;
  }

  Value evaluate_operation(const Expression& e, const ScopePtr& scope) {
    using enum Expression::Kind;
    const Value first = operand(e, 0, scope), second = operand(e, 1, scope), third = operand(e, 2, scope),
                fourth = operand(e, 3, scope);
    offset_ = e.offset;
    if (e.kind == kBinary) return binary(e.name, first, second);
    if (e.kind == kAttribute) return attribute(first, e.name);
    if (e.kind == kItem) return item(first, second);
    if (e.kind == kSlice) return slice(first, second, third, fourth);
    return with_sign(e.kind == kNegative ? '-' : '+', first);
  }

  Arguments evaluate(const CallArguments& arguments, const ScopePtr& scope) {
    Arguments result{evaluate_all(arguments.positional, scope), {}};
    for (const auto& [name, value] : arguments.named) result.named.emplace_back(name, evaluate(*value, scope));
    if (arguments.all_positional) {
      const Items items = to_items(evaluate(*arguments.all_positional, scope));
      result.positional.insert(result.positional.end(), items.begin(), items.end());
    }
    if (!arguments.all_named) return result;
    const Value named = evaluate(*arguments.all_named, scope);
    if (named.pairs() == nullptr) fail("argument after ** must be a mapping, not " + type_name(named));
    for (const Pair& pair : *named.pairs()) result.named.emplace_back(require_text(pair.key), pair.value);
    return result;
  }

  // A call, a filter, or a test.
  Value evaluate_call(const Expression& e, const ScopePtr& scope) {
    Value first = e.operands[0] ? evaluate(*e.operands[0], scope) : block_text_;
    Arguments arguments = evaluate(e.arguments, scope);
    offset_ = e.offset;
    if (e.kind == Expression::Kind::kCall) return call(first, arguments);
    arguments.positional.insert(arguments.positional.begin(), std::move(first));
    if (e.kind == Expression::Kind::kTest) return apply_test(*this, e.name, std::move(arguments));
    return apply_filter(*this, e.name, std::move(arguments));
  }

  Value call(const Value& callee, const Arguments& arguments) {
    if (callee.is_undefined()) fail_undefined(callee);
    if (!callee.object() || !callee.object()->call) fail("'" + type_name(callee) + "' object is not callable");
    return callee.object()->call(*this, arguments);
  }

  ScopePtr top_;
  std::vector<ScopePtr> closures_;  // scopes with macros, which refer to each other: the destructor breaks the cycles
  Value block_text_;                // the text to which the filters of a block are applied
  size_t offset_ = 0;
};

std::string render(const Body& body, Variables variables, size_t* offset) {
  Interpreter interpreter(std::make_shared<Scope>(Scope{{}, std::move(variables)}));
  try {
    return interpreter.render(body);
  } catch (...) {
    *offset = interpreter.offset();
    throw;
  }
}

}  // namespace pinion::jinja
