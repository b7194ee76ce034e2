// What expressions of a template are about: Python's values, as far as a template in Jinja's sandbox can meet them. All
// but namespaces, loops and iterators never change, so that copies share what they hold.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace pinion::jinja {

class Interpreter;
class Value;
struct Pair;
using Items = std::vector<Value>;
using Pairs = std::vector<Pair>;

// A template that fails; jinja.cpp makes an Error of it.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void fail(const std::string& message);

// The next item of what is iterated; false at the end.
using Next = std::function<bool(Value*)>;

struct Undefined {
  std::shared_ptr<const std::string> complaint;  // of who uses it
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> bytes;  // UTF-8
  bool is_markup = false;                    // MarkupSafe's Markup: what is joined to it gets escaped
};
struct List {
  std::shared_ptr<const Items> items;
};
struct Tuple {
  std::shared_ptr<const Items> items;
  bool is_group = false;  // of the filter groupby: the items have names, too
};
struct Mapping {
  std::shared_ptr<const Pairs> pairs;  // in the order of insertion, no key twice
};

struct Arguments {
  Items positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Everything else: functions, macros, loops, ranges, iterators. Each says what it can do.
struct Object {
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;  // Python's
  virtual std::string repr() const { return "<" + type_name() + ">"; }
  virtual std::optional<Value> attribute(const std::string& name);
  virtual std::optional<Value> item(int64_t index);  // of a sequence; below 0: from the end
  virtual std::optional<int64_t> length() { return {}; }
  virtual bool is_sequence() const { return false; }
  virtual bool equals(const Object& other) const { return this == &other; }
  virtual Next iterate() { return {}; }  // null: cannot be iterated
  virtual bool is_callable() const { return false; }
  virtual Value call(Interpreter& interpreter, const Arguments& arguments);
};
using ObjectPointer = std::shared_ptr<Object>;

class Value {
 public:
  Value() : held_(None{}) {}
  Value(bool value) : held_(value) {}
  Value(int64_t value) : held_(value) {}
  Value(double value) : held_(value) {}
  Value(std::string text, bool is_markup = false)
      : held_(Text{std::make_shared<const std::string>(std::move(text)), is_markup}) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Undefined undefined) : held_(std::move(undefined)) {}
  Value(Text text) : held_(std::move(text)) {}
  Value(List list) : held_(std::move(list)) {}
  Value(Tuple tuple) : held_(std::move(tuple)) {}
  Value(Mapping mapping) : held_(std::move(mapping)) {}
  Value(ObjectPointer object) : held_(std::move(object)) {}

  static Value undefined(std::string complaint) {
    return Undefined{std::make_shared<const std::string>(std::move(complaint))};
  }
  static Value list(Items items) { return List{std::make_shared<const Items>(std::move(items))}; }
  static Value tuple(Items items) { return Tuple{std::make_shared<const Items>(std::move(items))}; }
  static Value mapping(Pairs pairs);

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_text() const { return is<Text>(); }
  bool is_markup() const { return is_text() && get<Text>().is_markup; }

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }
  template <class T>
  const T& get() const {
    return std::get<T>(held_);
  }

  // Null where the value is of another type.
  const std::string* text() const { return is_text() ? get<Text>().bytes.get() : nullptr; }
  const Items* items() const;  // of a list or a tuple
  const Pairs* pairs() const { return is<Mapping>() ? get<Mapping>().pairs.get() : nullptr; }
  Object* object() const { return is<ObjectPointer>() ? get<ObjectPointer>().get() : nullptr; }
  std::optional<int64_t> integer() const;  // a boolean is one, too
  std::optional<double> number() const;    // integers and booleans, too

 private:
  std::variant<Undefined, None, bool, int64_t, double, Text, List, Tuple, Mapping, ObjectPointer> held_;
};

struct Pair {
  Value key, value;
};

const Value* find(const Pairs& pairs, const Value& key);
void set(Pairs* pairs, const Value& key, Value value);

std::string type_name(const Value& value);  // Python's: "str", "NoneType"
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
// Below 0, 0 or above for a < b, a == b, a > b; nothing for numbers that have no order. Fails as Python's `sign` does
// where the types have no order.
std::optional<int> compare(const Value& a, const Value& b, const char* sign);
bool less(const Value& a, const Value& b);

std::string to_text(const Value& value);  // str()
std::string repr(const Value& value);     // repr()
std::string repr(double value);
std::string in_quotes(std::string_view text);

bool is_iterable(const Value& value);
Next iterate(const Value& value);  // fails where it cannot
Items to_items(const Value& value);
std::optional<int64_t> length(const Value& value);

// Fails with what is wrong about an argument.
int64_t need_integer(const Value& value);
const std::string& need_text(const Value& value);
void need_hashable(const Value& key);  // of a mapping
[[noreturn]] void fail_undefined(const Value& undefined);

// An iterator, which can be read once.
Value iterator(std::string type_name, Next next);

// Counts how deep values and expressions nest, so that none overflows the stack.
class Depth {
 public:
  explicit Depth(int levels = 1);
  ~Depth();
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  int levels_;
};

}  // namespace pinion::jinja
