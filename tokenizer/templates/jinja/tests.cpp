// Tests: what stands behind `is`.
#include <algorithm>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/interpreter.h"
#include "tokenizer/templates/jinja/operators.h"

namespace pinion::jinja {
namespace {

bool is_number(const Value& value) { return value.number().has_value(); }
bool is_boolean(const Value& value) { return value.is<bool>(); }

template <bool (*holds)(const Value&)>
Value one(Interpreter&, const Slots& a) {
  return holds(a[0]);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_true(const Value& value) { return is_boolean(value) && truth(value); }
bool is_false(const Value& value) { return is_boolean(value) && !truth(value); }
bool is_integer(const Value& value) { return value.is<int64_t>(); }
bool is_float(const Value& value) { return value.is<double>(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_mapping(const Value& value) { return value.is<Mapping>(); }
bool is_escaped(const Value& value) { return value.is_markup(); }
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.object() && value.object()->is_callable());
}
bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_text() || value.items() || value.pairs() ||
         (value.object() && value.object()->is_sequence());
}

Value remainder(const Value& value, const Value& divisor) { return binary("%", value, divisor); }

bool is_even(const Value& value) { return equal(remainder(value, int64_t{2}), int64_t{0}); }
bool is_odd(const Value& value) { return equal(remainder(value, int64_t{2}), int64_t{1}); }

Value is_divisible(Interpreter&, const Slots& a) { return equal(remainder(a[0], a[1]), int64_t{0}); }

// A method of the text that the value is printed as.
template <const char* method>
Value printed(Interpreter& interpreter, const Slots& a) {
  return run(interpreter, *find(text_tests(), method), {{to_text(a[0])}, {}});
}
constexpr char kIsLower[] = "islower", kIsUpper[] = "isupper";

constexpr char kEqual[] = "==", kUnequal[] = "!=", kLess[] = "<", kLessOrEqual[] = "<=", kGreater[] = ">",
               kGreaterOrEqual[] = ">=", kIn[] = "in";
template <const char* sign>
Value compared(Interpreter&, const Slots& a) {
  return holds(sign, a[0], a[1]);
}

// The same object, or a value of which Python keeps one.
Value is_same(Interpreter&, const Slots& a) {
  const Value &x = a[0], &y = a[1];
  if (type_name(x) != type_name(y)) return false;
  if (x.items()) return x.items() == y.items() || (x.is<Tuple>() && x.items()->empty() && y.items()->empty());
  if (x.pairs()) return x.pairs() == y.pairs();
  if (x.is_undefined()) return x.get<Undefined>().complaint == y.get<Undefined>().complaint;
  return equal(x, y);
}

Value is_filter(Interpreter&, const Slots& a) {
  need_hashable(a[0]);
  return a[0].is_text() && find_filter(*a[0].text()) != nullptr;
}
Value is_test(Interpreter&, const Slots& a) {
  need_hashable(a[0]);
  return a[0].is_text() && find(tests(), *a[0].text()) != nullptr;
}

constexpr Builtin kTests[] = {
    {"defined", "value", one<is_defined>},
    {"undefined", "value", one<is_undefined>},
    {"none", "value", one<is_none>},
    {"boolean", "value", one<is_boolean>},
    {"true", "value", one<is_true>},
    {"false", "value", one<is_false>},
    {"integer", "value", one<is_integer>},
    {"float", "value", one<is_float>},
    {"number", "value", one<is_number>},
    {"string", "value", one<is_string>},
    {"mapping", "value", one<is_mapping>},
    {"sequence", "value", one<is_sequence>},
    {"iterable", "value", one<is_iterable>},
    {"callable", "/ value", one<is_callable>},
    {"escaped", "value", one<is_escaped>},
    {"even", "value", one<is_even>},
    {"odd", "value", one<is_odd>},
    {"divisibleby", "value num", is_divisible},
    {"lower", "value", printed<kIsLower>},
    {"upper", "value", printed<kIsUpper>},
    {"sameas", "value other", is_same},
    {"filter", "value", is_filter},
    {"test", "value", is_test},
    {"in", "value seq", compared<kIn>},
    {"==", "/ a b", compared<kEqual>},
    {"eq", "/ a b", compared<kEqual>},
    {"equalto", "/ a b", compared<kEqual>},
    {"!=", "/ a b", compared<kUnequal>},
    {"ne", "/ a b", compared<kUnequal>},
    {">", "/ a b", compared<kGreater>},
    {"gt", "/ a b", compared<kGreater>},
    {"greaterthan", "/ a b", compared<kGreater>},
    {">=", "/ a b", compared<kGreaterOrEqual>},
    {"ge", "/ a b", compared<kGreaterOrEqual>},
    {"<", "/ a b", compared<kLess>},
    {"lt", "/ a b", compared<kLess>},
    {"lessthan", "/ a b", compared<kLess>},
    {"<=", "/ a b", compared<kLessOrEqual>},
    {"le", "/ a b", compared<kLessOrEqual>},
};

}  // namespace

std::span<const Builtin> tests() { return kTests; }

}  // namespace pinion::jinja
