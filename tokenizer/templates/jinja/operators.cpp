// See operators.h.
#include "tokenizer/templates/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/format.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

[[noreturn]] void fail_types(std::string_view sign, const Value& left, const Value& right) {
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  if (sign == "+" && left.is_text()) {
    fail("can only concatenate str (not \"" + type_name(right) + "\") to str");
  }
  fail("unsupported operand type(s) for " + std::string(sign) + ": '" + type_name(left) + "' and '" + type_name(right) +
       "'");
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (;;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
}

Value whole_numbers(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  const bool divides = sign == "/" || sign == "//" || sign == "%";
  if (divides && b == 0) fail("division by zero");
  if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (sign == "**" && b >= 0) return power(a, b);
  if (sign == "**") {
    if (a == 0) fail("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(a), static_cast<double>(b));
  }
  if (divides && b == -1) {  // whose quotient may be too large for a division
    if (sign == "%") return int64_t{0};
    return negative(a);
  }
  if (sign == "//") return floor_divide(a, b);
  if (sign == "%") return a - floor_divide(a, b) * b;
  const bool is_too_large = sign == "+"   ? __builtin_add_overflow(a, b, &result)
                            : sign == "-" ? __builtin_sub_overflow(a, b, &result)
                                          : __builtin_mul_overflow(a, b, &result);
  if (is_too_large) fail_overflow();
  return result;
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

Value numbers(std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") {
    if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b)) fail("complex numbers are not known here");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail_overflow();
    return result;
  }
  if (b == 0) fail("float division by zero");
  if (sign == "/") return a / b;
  const double rest = floor_modulo(a, b);
  if (sign == "%") return rest;
  const double quotient = (a - rest) / b, whole = std::floor(quotient);
  if (quotient == 0) return std::copysign(0.0, a / b);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

void check_size(size_t size, int64_t times) {
  constexpr int64_t kMostBytes = int64_t{1} << 40;  // far above what the process gets
  if (static_cast<int64_t>(size) > kMostBytes / std::max<int64_t>(times, 1)) fail("out of memory");
}

Value repeated(const Value& value, int64_t times) {
  if (const std::string* text = value.text()) {
    std::string result;
    check_size(text->size(), times);
    if (times > 0) result.reserve(text->size() * static_cast<size_t>(times));
    for (int64_t i = 0; i < times && !text->empty(); ++i) result += *text;
    return Value(std::move(result), value.is_markup());
  }
  Items result;
  check_size(value.items()->size() * sizeof(Value), times);
  for (int64_t i = 0; i < times && !value.items()->empty(); ++i) {
    result.insert(result.end(), value.items()->begin(), value.items()->end());
  }
  return value.is<List>() ? Value::list(std::move(result)) : Value::tuple(std::move(result));
}

Value joined(const Value& left, const Value& right) {
  if (left.is_text() && right.is_text()) {
    if (left.is_markup() == right.is_markup()) return Value(*left.text() + *right.text(), left.is_markup());
    const auto escaped = [](const Value& value) {
      return value.is_markup() ? *value.text() : html_escaped(*value.text());
    };
    return Value(escaped(left) + escaped(right), true);
  }
  if (!left.items() || !right.items() || left.is<List>() != right.is<List>()) fail_types("+", left, right);
  Items items = *left.items();
  items.insert(items.end(), right.items()->begin(), right.items()->end());
  return left.is<List>() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace

void fail_overflow() { fail("a number is too large"); }

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value binary(std::string_view sign, const Value& left, const Value& right) {
  if (sign == "%" && left.is_text()) return percent_formatted(left, right);
  if (left.integer() && right.integer()) return whole_numbers(sign, *left.integer(), *right.integer());
  if (left.number() && right.number()) return numbers(sign, *left.number(), *right.number());
  if (sign == "+") return joined(left, right);
  const bool left_repeats = left.is_text() || left.items(), right_repeats = right.is_text() || right.items();
  if (sign == "*" && left_repeats && right.integer()) return repeated(left, *right.integer());
  if (sign == "*" && right_repeats && left.integer()) return repeated(right, *left.integer());
  fail_types(sign, left, right);
}

Value negative(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is<double>()) return -value.get<double>();
  if (!value.integer()) fail("bad operand type for unary -: '" + type_name(value) + "'");
  if (*value.integer() == std::numeric_limits<int64_t>::min()) fail_overflow();
  return -*value.integer();
}

Value positive(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is<double>()) return value;
  if (!value.integer()) fail("bad operand type for unary +: '" + type_name(value) + "'");
  return *value.integer();
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* text = container.text()) {
    if (item.is_undefined()) fail("'in <string>' requires string as left operand, not Undefined");
    if (!item.is_text()) fail("'in <string>' requires string as left operand, not " + type_name(item));
    return text->find(*item.text()) != std::string::npos;
  }
  if (const Pairs* pairs = container.pairs()) {
    need_hashable(item);
    return find(*pairs, item) != nullptr;
  }
  if (!is_iterable(container)) fail("argument of type '" + type_name(container) + "' is not iterable");
  const Next next = iterate(container);
  for (Value other; next(&other);) {
    if (equal(other, item)) return true;
  }
  return false;
}

bool holds(const std::string& sign, const Value& left, const Value& right) {
  if (sign == "==") return equal(left, right);
  if (sign == "!=") return !equal(left, right);
  if (sign == "in") return contains(right, left);
  if (sign == "not in") return !contains(right, left);
  const auto order = compare(left, right, sign.c_str());
  if (!order) return false;
  if (sign == "<") return *order < 0;
  if (sign == "<=") return *order <= 0;
  return sign == ">" ? *order > 0 : *order >= 0;
}

namespace {

std::string described(const Value& value) { return value.is_none() ? "None" : type_name(value) + " object"; }

Value missing(const Value& of, const std::string& name) {
  return Value::undefined("'" + described(of) + "' has no attribute '" + name + "'");
}

// Python's attributes. What would change a value, or leads into Python, counts as undefined.
std::optional<Value> own_attribute(const Value& of, const std::string& name) {
  if (of.object()) return of.object()->attribute(name);
  const auto unsafe = [&] {
    return Value::undefined("access to attribute '" + name + "' of '" + type_name(of) + "' object is unsafe.");
  };
  if (name.starts_with("__")) return unsafe();
  static constexpr std::string_view kOfLists[] = {"append", "clear",  "extend",  "insert",
                                                  "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kOfMappings[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (of.is<List>() && std::ranges::count(kOfLists, name) > 0) return unsafe();
  if (of.pairs() && std::ranges::count(kOfMappings, name) > 0) return unsafe();
  if (of.is<Tuple>() && of.get<Tuple>().is_group && name == "grouper") return of.items()->at(0);
  if (of.is<Tuple>() && of.get<Tuple>().is_group && name == "list") return of.items()->at(1);
  for (const auto& table : {text_methods(), text_searches(), text_tests()}) {
    if (const Builtin* method = of.is_text() ? find(table, name) : nullptr) return bound(*method, of);
  }
  if (const Builtin* method = find(collection_methods(of), name)) return bound(*method, of);
  return {};
}

// Python's x[index]; nothing where that raises a LookupError or TypeError.
std::optional<Value> own_item(const Value& of, const Value& index) {
  if (const Pairs* pairs = of.pairs()) {
    if (index.is<List>() || index.is<Mapping>()) return {};
    const Value* found = find(*pairs, index);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (!index.integer()) return {};
  int64_t at = *index.integer();
  if (of.object()) return of.object()->item(at);
  if (!of.is_text() && !of.items()) return {};
  const int64_t size = *length(of);
  if (at < 0) at += size;
  if (at < 0 || at >= size) return {};
  if (of.items()) return (*of.items())[static_cast<size_t>(at)];
  const std::string& text = *of.text();
  size_t begin = 0;
  for (int64_t i = 0; i < at; ++i) next_char(text, &begin);
  size_t end = begin;
  next_char(text, &end);
  return Value(text.substr(begin, end - begin), of.is_markup());
}

}  // namespace

Value attribute(const Value& of, const std::string& name) {
  if (of.is_undefined()) fail_undefined(of);
  if (const auto own = own_attribute(of, name)) return *own;
  if (const auto found = own_item(of, name)) return *found;
  return missing(of, name);
}

Value item(const Value& of, const Value& index) {
  if (of.is_undefined()) fail_undefined(of);
  if (const auto found = own_item(of, index)) return *found;
  if (!index.is_text()) return Value::undefined(described(of) + " has no element " + repr(index));
  if (const auto own = own_attribute(of, *index.text())) return *own;
  return missing(of, *index.text());
}

namespace {

struct Steps {
  int64_t start, stop, step;
};

// Python's slice.indices().
Steps resolved(int64_t size, const Value& start, const Value& stop, const Value& step) {
  const int64_t stride = step.is_none() ? 1 : need_integer(step);
  if (stride == 0) fail("slice step cannot be zero");
  const int64_t lowest = stride < 0 ? -1 : 0, highest = stride < 0 ? size - 1 : size;
  const auto clipped = [&](const Value& bound, int64_t absent) {
    if (bound.is_none()) return absent;
    const int64_t at = need_integer(bound);
    return std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  return {clipped(start, stride < 0 ? highest : lowest), clipped(stop, stride < 0 ? lowest : highest), stride};
}

template <class Sequence>
Sequence sliced(const Sequence& all, const Steps& steps) {
  Sequence result;
  for (int64_t at = steps.start; steps.step > 0 ? at < steps.stop : at > steps.stop;) {
    result.push_back(all[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, steps.step, &at)) break;
  }
  return result;
}

}  // namespace

Value slice(const Value& of, const Value& start, const Value& stop, const Value& step) {
  if (of.is_undefined()) fail_undefined(of);
  if (const std::string* text = of.text()) {
    const std::u32string chars = to_chars(*text);
    const Steps steps = resolved(static_cast<int64_t>(chars.size()), start, stop, step);
    return Value(from_chars(sliced(chars, steps)), of.is_markup());
  }
  if (of.object() && of.object()->is_sequence()) {
    const Items items = to_items(of);
    return Value::list(sliced(items, resolved(static_cast<int64_t>(items.size()), start, stop, step)));
  }
  if (!of.items()) fail("'" + type_name(of) + "' object is not subscriptable");
  Items items = sliced(*of.items(), resolved(*length(of), start, stop, step));
  return of.is<List>() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace pinion::jinja
