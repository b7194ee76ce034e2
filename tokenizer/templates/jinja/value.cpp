// See value.h.
#include "tokenizer/templates/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

constexpr int kMostDepth = 1000;
thread_local int depth = 0;

struct Iterator : Object {
  Iterator(std::string type, Next function) : type_name_(std::move(type)), next(std::move(function)) {}
  std::string type_name() const override { return type_name_; }
  std::string repr() const override { return "<" + type_name_ + " object>"; }
  Next iterate() override {
    return [this](Value* out) { return next(out); };  // who iterates keeps the value
  }

  std::string type_name_;
  Next next;
};

}  // namespace

void fail(const std::string& message) { throw Failure(message); }

void fail_undefined(const Value& undefined) { fail(*undefined.get<Undefined>().complaint); }

Depth::Depth(int levels) : levels_(levels) {
  if (depth >= kMostDepth) fail("nests or calls itself too deep");
  depth += levels_;
}
Depth::~Depth() { depth -= levels_; }

std::optional<Value> Object::attribute(const std::string&) { return {}; }
std::optional<Value> Object::item(int64_t) { return {}; }
Value Object::call(Interpreter&, const Arguments&) { fail("'" + type_name() + "' object is not callable"); }

Value Value::mapping(Pairs pairs) { return Mapping{std::make_shared<const Pairs>(std::move(pairs))}; }

const Items* Value::items() const {
  if (is<List>()) return get<List>().items.get();
  return is<Tuple>() ? get<Tuple>().items.get() : nullptr;
}

std::optional<int64_t> Value::integer() const {
  if (is<bool>()) return get<bool>() ? 1 : 0;
  if (is<int64_t>()) return get<int64_t>();
  return {};
}

std::optional<double> Value::number() const {
  if (is<double>()) return get<double>();
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return {};
}

const Value* find(const Pairs& pairs, const Value& key) {
  const std::string* name = key.text();
  for (const Pair& pair : pairs) {
    const std::string* other = pair.key.text();
    if (name != nullptr && other != nullptr ? *name == *other : equal(pair.key, key)) return &pair.value;
  }
  return nullptr;
}

void set(Pairs* pairs, const Value& key, Value value) {
  need_hashable(key);
  const Value* found = find(*pairs, key);
  if (found == nullptr) return pairs->push_back({key, std::move(value)});
  std::ranges::find_if(*pairs, [&](const Pair& pair) { return &pair.value == found; })->value = std::move(value);
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "NoneType";
  if (value.is<bool>()) return "bool";
  if (value.is<int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.is_text()) return value.is_markup() ? "Markup" : "str";
  if (value.is<List>()) return "list";
  if (value.is<Tuple>()) return "tuple";
  return value.is<Mapping>() ? "dict" : value.object()->type_name();
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto number = value.number()) return *number != 0;
  const auto size = length(value);
  return !size || *size != 0;
}

namespace {

bool equal_pairs(const Pairs& a, const Pairs& b) {
  if (a.size() != b.size()) return false;
  return std::ranges::all_of(a, [&](const Pair& pair) {
    const Value* other = find(b, pair.key);
    return other != nullptr && equal(pair.value, *other);
  });
}

}  // namespace

bool equal(const Value& a, const Value& b) {
  const Depth guard;
  if (a.integer() && b.integer()) return a.integer() == b.integer();
  if (a.number() && b.number()) return a.number() == b.number();
  if (a.is_text() && b.is_text()) return *a.text() == *b.text();
  if (a.items() && b.items() && a.is<List>() == b.is<List>()) {
    return std::ranges::equal(*a.items(), *b.items(), [](const Value& x, const Value& y) { return equal(x, y); });
  }
  if (a.pairs() && b.pairs()) return equal_pairs(*a.pairs(), *b.pairs());
  if (a.object() || b.object()) return a.object() && b.object() && a.object()->equals(*b.object());
  return (a.is_undefined() && b.is_undefined()) || (a.is_none() && b.is_none());
}

std::optional<int> compare(const Value& a, const Value& b, const char* sign) {
  const Depth guard;
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : (y < x ? 1 : 0); };
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.integer() && b.integer()) return order(*a.integer(), *b.integer());
  if (a.number() && b.number()) {
    if (std::isnan(*a.number()) || std::isnan(*b.number())) return {};
    return order(*a.number(), *b.number());
  }
  if (a.is_text() && b.is_text()) return order(*a.text(), *b.text());  // UTF-8 keeps the characters' order
  if (a.items() && b.items() && a.is<List>() == b.is<List>()) {
    const Items &x = *a.items(), &y = *b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return compare(x[i], y[i], sign);
    }
    return order(x.size(), y.size());
  }
  fail("'" + std::string(sign) + "' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) +
       "'");
}

bool less(const Value& a, const Value& b) {
  const auto order = compare(a, b, "<");
  return order && *order < 0;
}

std::string to_text(const Value& value) {
  if (value.is_undefined()) return {};
  if (const std::string* text = value.text()) return *text;
  return repr(value);
}

namespace {

std::string repr_items(const Items& items, const char* open, const char* close) {
  std::string text = open;
  for (const Value& item : items) text += (text.size() > 1 ? ", " : "") + repr(item);
  return text + close;
}

std::string repr_pairs(const Pairs& pairs) {
  std::string text = "{";
  for (const Pair& pair : pairs) text += (text.size() > 1 ? ", " : "") + repr(pair.key) + ": " + repr(pair.value);
  return text + "}";
}

}  // namespace

std::string repr(const Value& value) {
  const Depth guard;
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is<bool>()) return value.get<bool>() ? "True" : "False";
  if (value.is<int64_t>()) return std::to_string(value.get<int64_t>());
  if (value.is<double>()) return repr(value.get<double>());
  if (value.is_markup()) return "Markup(" + in_quotes(*value.text()) + ")";
  if (const std::string* text = value.text()) return in_quotes(*text);
  if (value.is<List>()) return repr_items(*value.items(), "[", "]");
  if (value.is<Tuple>()) return repr_items(*value.items(), "(", value.items()->size() == 1 ? ",)" : ")");
  return value.pairs() ? repr_pairs(*value.pairs()) : value.object()->repr();
}

bool is_iterable(const Value& value) {
  if (value.object()) return static_cast<bool>(value.object()->iterate());
  return value.is_undefined() || value.is_text() || value.items() || value.pairs();
}

Next iterate(const Value& value) {
  if (value.is_undefined()) return [](Value*) { return false; };
  if (value.object()) {
    if (Next next = value.object()->iterate()) {
      return [kept = value, next = std::move(next)](Value* out) { return next(out); };
    }
  }
  if (value.items()) {
    return [kept = value, at = size_t{0}](Value* out) mutable {
      const Items& items = *kept.items();
      return at < items.size() ? (*out = items[at++], true) : false;
    };
  }
  if (value.pairs()) {
    return [kept = value, at = size_t{0}](Value* out) mutable {
      const Pairs& pairs = *kept.pairs();
      return at < pairs.size() ? (*out = pairs[at++].key, true) : false;
    };
  }
  if (!value.is_text()) fail("'" + type_name(value) + "' object is not iterable");
  return [kept = value, at = size_t{0}](Value* out) mutable {
    const std::string& text = *kept.text();
    if (at == text.size()) return false;
    const size_t begin = at;
    next_char(text, &at);
    *out = text.substr(begin, at - begin);
    return true;
  };
}

Items to_items(const Value& value) {
  if (const Items* items = value.items()) return *items;
  Items items;
  const Next next = iterate(value);
  for (Value item; next(&item);) items.push_back(item);
  return items;
}

std::optional<int64_t> length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const std::string* text = value.text()) return static_cast<int64_t>(char_count(*text));
  if (const Items* items = value.items()) return static_cast<int64_t>(items->size());
  if (const Pairs* pairs = value.pairs()) return static_cast<int64_t>(pairs->size());
  return value.object() ? value.object()->length() : std::nullopt;
}

int64_t need_integer(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (const auto whole = value.integer()) return *whole;
  fail("'" + type_name(value) + "' object cannot be interpreted as an integer");
}

const std::string& need_text(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (const std::string* text = value.text()) return *text;
  fail("expected str, got " + type_name(value));
}

void need_hashable(const Value& key) {
  if (key.is<List>() || key.is<Mapping>()) fail("unhashable type: '" + type_name(key) + "'");
}

Value iterator(std::string type_name, Next next) {
  return ObjectPointer(std::make_shared<Iterator>(std::move(type_name), std::move(next)));
}

}  // namespace pinion::jinja
