// Values of template expressions: the Python types that occur in Jinja's sandbox, and the operators on them. Only
// namespaces, loops and iterators are mutable; copies of all other values share their contents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "tokenizer/tokens/unicode.h"

namespace pinion::jinja {

class Interpreter;
class Value;
struct Pair;
using Items = std::vector<Value>;
using Pairs = std::vector<Pair>;

// The error of a running template; jinja.cpp turns it into an Error.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fail(const std::string& message);

// Stores the next item and returns true, or returns false at the end.
using Next = std::function<bool(Value*)>;

struct Undefined {
  std::shared_ptr<const std::string> message;  // text of the error if an expression uses the value
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> bytes;  // UTF-8
  bool is_markup = false;                    // MarkupSafe's Markup: text joined to it is HTML-escaped first
};
struct List {
  std::shared_ptr<const Items> items;
};
struct Tuple {
  std::shared_ptr<const Items> items;
};
struct Mapping {
  std::shared_ptr<const Pairs> pairs;  // in insertion order, keys are unique
};

struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Object;
using ObjectPtr = std::shared_ptr<Object>;

class Value {
 public:
  Value() : value_(None{}) {}
  Value(bool value) : value_(value) {}
  Value(int64_t value) : value_(value) {}
  Value(double value) : value_(value) {}
  Value(std::string text, bool is_markup = false) : value_(Text{share(std::move(text)), is_markup}) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Object object);

  static Value undefined(std::string message) { return Value(Undefined{share(std::move(message))}, Exact()); }
  static Value list(Items items) { return Value(List{share(std::move(items))}, Exact()); }
  static Value tuple(Items items) { return Value(Tuple{share(std::move(items))}, Exact()); }
  static Value mapping(Pairs pairs);

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_text() const { return is<Text>(); }
  bool is_markup() const { return is_text() && get<Text>().is_markup; }

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  template <class T>
  const T& get() const {
    return std::get<T>(value_);
  }

  size_t index() const { return value_.index(); }  // of the type below

  // Null for a value of another type.
  const std::string* text() const { return is_text() ? get<Text>().bytes.get() : nullptr; }
  const Items* items() const;  // of a list or a tuple
  const Pairs* pairs() const { return is<Mapping>() ? get<Mapping>().pairs.get() : nullptr; }
  Object* object() const { return is<ObjectPtr>() ? get<ObjectPtr>().get() : nullptr; }
  std::optional<int64_t> integer() const;  // booleans count as 0 and 1
  std::optional<double> number() const;    // includes integers and booleans

 private:
  struct Exact {};  // selects the constructor without conversions
  template <class T>
  Value(T value, Exact) : value_(std::move(value)) {}
  template <class T>
  static std::shared_ptr<const T> share(T contents) {
    return std::make_shared<const T>(std::move(contents));
  }

  std::variant<Undefined, None, bool, int64_t, double, Text, List, Tuple, Mapping, ObjectPtr> value_;
};

struct Pair {
  Value key, value;
};

// All other types: functions, macros, loops, ranges, dictionary views, iterators, namespaces.
struct Object {
  std::string type_name;     // Python's
  std::string text = {};     // repr() between the brackets; empty: that of `items` or `attributes`
  Value items = {};          // of a range or a view: a list
  bool is_sequence = false;  // a range
  Next next = {};            // of an iterator
  std::function<Value(Interpreter& interpreter, const Arguments& arguments)> call = {};
  std::function<std::optional<Value>(const std::string& name)> loop_attribute = {};  // of the variable `loop`
  std::optional<Pairs> attributes = {};  // of a namespace: the only ones that a template can set
};

inline Value::Value(Object object) : value_(std::make_shared<Object>(std::move(object))) {}
inline Value Value::mapping(Pairs pairs) { return Value(Mapping{share(std::move(pairs))}, Exact()); }

const Value* find(const Pairs& pairs, const Value& key);
void set(Pairs* pairs, const Value& key, Value value);

std::string type_name(const Value& value);  // Python's: "str", "NoneType"
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
// Negative, 0 or positive for a < b, a == b, a > b; nothing for NaN. Types without an order fail, naming `op`.
std::optional<int> compare(const Value& a, const Value& b, std::string_view op);
bool less(const Value& a, const Value& b);
bool is_true(std::string_view op, const Value& left, const Value& right);  // == != < <= > >= in "not in"

Value binary(std::string_view op, const Value& left, const Value& right);  // + - * / // %
Value with_sign(char sign, const Value& value);                            // + or -
int64_t floor_divide(int64_t a, int64_t b);
[[noreturn]] void fail_overflow();

// x.name and x[index]. Each falls back to the other; the result is undefined if neither exists.
Value attribute(const Value& object, const std::string& name);
Value item(const Value& object, const Value& index);
Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);  // None: the default

std::string to_text(const Value& value);  // str()
std::string repr(const Value& value);     // repr()
std::string repr(double value);
std::string quoted_text(std::string_view text);  // repr() of a string

bool is_iterable(const Value& value);
bool is_sequence(const Value& value);  // the test `sequence`: includes strings and mappings, not views and iterators
Next iterate(const Value& value);      // fails for a value that is not iterable
Items to_items(const Value& value);
std::optional<int64_t> length(const Value& value);
Value iterator(std::string type_name, Next next);  // an Object that can be iterated once

// Fail with Python's message for a value of another type.
int64_t require_integer(const Value& value);
const std::string& require_text(const Value& value);
void require_hashable(const Value& key);
[[noreturn]] void fail_undefined(const Value& undefined);

// Bounds the recursion over nested values, expressions and calls, to protect the stack. `levels`: the cost of this one.
class DepthGuard {
 public:
  explicit DepthGuard(int levels = 1);
  ~DepthGuard();
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int levels_;
};

// --- text.cpp: characters of Python's strings, classes and cases.

// A Unicode scalar value. Python's strings may contain surrogates; a prompt may not.
constexpr bool is_char(int64_t code) { return code >= 0 && code <= 0x10FFFF && !(code >= 0xD800 && code < 0xE000); }

std::u32string to_chars(std::string_view text);
std::string from_chars(std::u32string_view chars);

// Character classes of str.isalpha(), str.isdigit(), ...
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_lower(char32_t c);
bool is_alnum(char32_t c);
bool is_printable(char32_t c);
bool is_line_end(char32_t c);

std::u32string upper(std::u32string_view text);
std::u32string lower(std::u32string_view text);
std::u32string title(std::u32string_view text);
std::u32string capitalize(std::u32string_view text);

// HTML's special characters as MarkupSafe writes them.
std::string html_escaped(std::string_view text);

}  // namespace pinion::jinja
