// Arithmetic, comparison and element access, with Python's results and messages. See value.h.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {
namespace {

[[noreturn]] void fail_types(std::string_view op, const Value& left, const Value& right) {
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  if (op == "+" && left.is_text()) fail("can only concatenate str (not \"" + type_name(right) + "\") to str");
  fail("unsupported operand type(s) for " + std::string(op) + ": '" + type_name(left) + "' and '" + type_name(right) +
       "'");
}

Value calculate(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b == 0) fail("division by zero");
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (divides && b == -1) return op == "%" ? Value(int64_t{0}) : with_sign('-', a);  // INT64_MIN / -1 would trap
  if (op == "//") return floor_divide(a, b);
  if (op == "%") return a - floor_divide(a, b) * b;
  const bool overflows = op == "+"   ? __builtin_add_overflow(a, b, &result)
                         : op == "-" ? __builtin_sub_overflow(a, b, &result)
                                     : __builtin_mul_overflow(a, b, &result);
  if (overflows) fail_overflow();
  return result;
}

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

Value calculate(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (b == 0) fail("float division by zero");
  if (op == "/") return a / b;
  const double rest = floor_modulo(a, b);
  if (op == "%") return rest;
  const double quotient = (a - rest) / b, whole = std::floor(quotient);
  if (quotient == 0) return std::copysign(0.0, a / b);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

// Fails before an allocation that the memory limit of the process would refuse anyway.
void check_size(size_t size, int64_t times) {
  constexpr int64_t kMaxBytes = int64_t{1} << 40;
  if (static_cast<int64_t>(size) > kMaxBytes / std::max<int64_t>(times, 1)) fail("out of memory");
}

Value repeated(const Value& value, int64_t times) {
  if (const std::string* text = value.text()) {
    std::string result;
    check_size(text->size(), times);
    if (times > 0) result.reserve(text->size() * times);
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

Value concatenated(const Value& left, const Value& right) {
  if (left.is_text() && right.is_text()) {
    if (left.is_markup() == right.is_markup()) return Value(*left.text() + *right.text(), left.is_markup());
    return Value(escaped(left) + escaped(right), true);
  }
  if (!left.items() || !right.items() || left.is<List>() != right.is<List>()) fail_types("+", left, right);
  Items items = *left.items();
  items.insert(items.end(), right.items()->begin(), right.items()->end());
  return left.is<List>() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* text = container.text()) {
    if (!item.is_text()) fail("'in <string>' requires string as left operand, not " + type_name(item));
    return text->find(*item.text()) != std::string::npos;
  }
  if (const Pairs* pairs = container.pairs()) {
    require_hashable(item);
    return find(*pairs, item) != nullptr;
  }
  if (!is_iterable(container)) fail("argument of type '" + type_name(container) + "' is not iterable");
  const Next next = iterate(container);
  for (Value other; next(&other);) {
    if (equal(other, item)) return true;
  }
  return false;
}

std::string description(const Value& value) { return value.is_none() ? "None" : type_name(value) + " object"; }

Value missing(const Value& object, const std::string& name) {
  return Value::undefined("'" + description(object) + "' has no attribute '" + name + "'");
}

// Python's object.name; nothing if it does not exist. Names that Jinja's sandbox refuses, of methods that change a
// value and of Python's internals (__), give an undefined value.
std::optional<Value> own_attribute(const Value& object, const std::string& name) {
  if (const Object* own = object.object()) {
    const Value* found = own->attributes ? find(*own->attributes, name) : nullptr;
    if (own->loop_attribute) return own->loop_attribute(name);
    return found ? std::optional(*found) : std::nullopt;
  }
  static constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                                      "pop",    "remove", "reverse", "sort"};
  static constexpr std::string_view kMappingChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const bool is_unsafe = name.starts_with("__") || (object.is<List>() && std::ranges::count(kListChanges, name) > 0) ||
                         (object.pairs() && std::ranges::count(kMappingChanges, name) > 0);
  if (is_unsafe) {
    return Value::undefined("access to attribute '" + name + "' of '" + type_name(object) + "' object is unsafe.");
  }
  const Builtin* method = find(methods(object), name);
  return method ? std::optional(function(*method, object)) : std::nullopt;
}

bool is_range(const Value& value) { return value.object() && value.object()->is_sequence; }

// Python's x[index]; nothing if that raises a LookupError or TypeError.
std::optional<Value> own_item(const Value& object, const Value& index) {
  if (const Pairs* pairs = object.pairs()) {
    if (index.is<List>() || index.is<Mapping>()) return {};
    const Value* found = find(*pairs, index);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (!index.integer()) return {};
  int64_t at = *index.integer();
  if (is_range(object)) return own_item(object.object()->items, index);
  if (!object.is_text() && !object.items()) return {};
  const int64_t size = *length(object);
  if (at < 0) at += size;
  if (at < 0 || at >= size) return {};
  if (object.items()) return (*object.items())[at];
  const std::string& text = *object.text();
  size_t begin = 0;
  for (int64_t i = 0; i < at; ++i) next_char(text, &begin);
  size_t end = begin;
  next_char(text, &end);
  return Value(text.substr(begin, end - begin), object.is_markup());
}

// Python's range(*slice.indices(size)).
std::vector<size_t> slice_indices(size_t count, const Value& start, const Value& stop, const Value& step) {
  const int64_t stride = step.is_none() ? 1 : require_integer(step), size = static_cast<int64_t>(count);
  if (stride == 0) fail("slice step cannot be zero");
  const int64_t lowest = stride < 0 ? -1 : 0, highest = stride < 0 ? size - 1 : size;
  const auto clipped = [&](const Value& bound, int64_t absent) {
    if (bound.is_none()) return absent;
    const int64_t at = require_integer(bound);
    return std::clamp(at < 0 ? at + size : at, lowest, highest);
  };
  const int64_t end = clipped(stop, stride < 0 ? lowest : highest);
  std::vector<size_t> indices;
  for (int64_t at = clipped(start, stride < 0 ? highest : lowest); stride > 0 ? at < end : at > end;) {
    indices.push_back(at);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  return indices;
}

}  // namespace

void fail_overflow() { fail("a number is too large"); }

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value binary(std::string_view op, const Value& left, const Value& right) {
  if (op == "%" && left.is_text()) return percent_format(left, right);
  if (left.integer() && right.integer()) return calculate(op, *left.integer(), *right.integer());
  if (left.number() && right.number()) return calculate(op, *left.number(), *right.number());
  if (op == "+") return concatenated(left, right);
  const auto is_sequence = [](const Value& value) { return value.is_text() || value.items(); };
  if (op == "*" && is_sequence(left) && right.integer()) return repeated(left, *right.integer());
  if (op == "*" && is_sequence(right) && left.integer()) return repeated(right, *left.integer());
  fail_types(op, left, right);
}

Value with_sign(char sign, const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.number()) fail(std::string("bad operand type for unary ") + sign + ": '" + type_name(value) + "'");
  if (value.is<double>()) return sign == '-' ? -value.get<double>() : value;
  if (sign == '+') return *value.integer();
  if (*value.integer() == std::numeric_limits<int64_t>::min()) fail_overflow();
  return -*value.integer();
}

bool is_true(std::string_view op, const Value& left, const Value& right) {
  if (op == "==") return equal(left, right);
  if (op == "!=") return !equal(left, right);
  if (op == "in") return contains(right, left);
  if (op == "not in") return !contains(right, left);
  const auto order = compare(left, right, op);
  if (!order) return false;
  if (op == "<") return *order < 0;
  if (op == "<=") return *order <= 0;
  return op == ">" ? *order > 0 : *order >= 0;
}

Value attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) fail_undefined(object);
  if (const auto own = own_attribute(object, name)) return *own;
  if (const auto found = own_item(object, name)) return *found;
  return missing(object, name);
}

Value item(const Value& object, const Value& index) {
  if (object.is_undefined()) fail_undefined(object);
  if (const auto found = own_item(object, index)) return *found;
  if (!index.is_text()) return Value::undefined(description(object) + " has no element " + repr(index));
  if (const auto own = own_attribute(object, *index.text())) return *own;
  return missing(object, *index.text());
}

Value slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is_undefined()) fail_undefined(object);
  if (const std::string* text = object.text()) {
    const std::u32string chars = to_chars(*text);
    std::u32string kept;
    for (const size_t at : slice_indices(chars.size(), start, stop, step)) kept += chars[at];
    return Value(from_chars(kept), object.is_markup());
  }
  if (!object.items() && !is_range(object)) fail("'" + type_name(object) + "' object is not subscriptable");
  const Items items = to_items(object);
  Items result;
  for (const size_t at : slice_indices(items.size(), start, stop, step)) result.push_back(items[at]);
  return object.is<Tuple>() ? Value::tuple(std::move(result)) : Value::list(std::move(result));
}

}  // namespace pinion::jinja
