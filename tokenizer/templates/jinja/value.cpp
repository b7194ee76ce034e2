// Values: types, comparison, spelling, iteration. See value.h.
#include "tokenizer/templates/jinja/value.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/base/text.h"

namespace pinion::jinja {
namespace {

constexpr int kMaxDepth = 1000;
thread_local int depth = 0;

bool equal_pairs(const Pairs& a, const Pairs& b) {
  if (a.size() != b.size()) return false;
  return std::ranges::all_of(a, [&](const Pair& pair) {
    const Value* other = find(b, pair.key);
    return other != nullptr && equal(pair.value, *other);
  });
}

}  // namespace

void fail(const std::string& message) { throw Failure(message); }
void fail_undefined(const Value& undefined) { fail(*undefined.get<Undefined>().message); }

DepthGuard::DepthGuard(int levels) : levels_(levels) {
  if (depth >= kMaxDepth) fail("nests or calls itself too deep");
  depth += levels_;
}
DepthGuard::~DepthGuard() { depth -= levels_; }

const Items* Value::items() const {
  return is<List>() ? get<List>().items.get() : is<Tuple>() ? get<Tuple>().items.get() : nullptr;
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
  const auto found = std::ranges::find_if(pairs, [&](const Pair& pair) { return equal(pair.key, key); });
  return found == pairs.end() ? nullptr : &found->value;
}

void set(Pairs* pairs, const Value& key, Value value) {
  require_hashable(key);
  const auto found = std::ranges::find_if(*pairs, [&](const Pair& pair) { return equal(pair.key, key); });
  if (found == pairs->end()) return pairs->push_back({key, std::move(value)});
  found->value = std::move(value);
}

std::string type_name(const Value& value) {
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",  "int", "float",
                                           "str",       "list",     "tuple", "dict"};
  return value.is_markup() ? "Markup" : value.object() ? value.object()->type_name : kNames[value.index()];
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto number = value.number()) return *number != 0;
  const auto size = length(value);
  return !size || *size != 0;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return *a.text() == *b.text();
  const DepthGuard guard;
  if (a.integer() && b.integer()) return a.integer() == b.integer();
  if (a.number() && b.number()) return a.number() == b.number();
  if (a.items() && b.items() && a.is<List>() == b.is<List>()) return std::ranges::equal(*a.items(), *b.items(), equal);
  if (a.pairs() && b.pairs()) return equal_pairs(*a.pairs(), *b.pairs());
  if (const Object *x = a.object(), *y = b.object(); x && y) {
    return x == y || (x->is_sequence && y->is_sequence && equal(x->items, y->items));
  }
  return (a.is_undefined() && b.is_undefined()) || (a.is_none() && b.is_none());
}

std::optional<int> compare(const Value& a, const Value& b, std::string_view op) {
  const DepthGuard guard;
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : (y < x ? 1 : 0); };
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.integer() && b.integer()) return order(*a.integer(), *b.integer());
  if (a.number() && b.number()) {
    if (std::isnan(*a.number()) || std::isnan(*b.number())) return {};
    return order(*a.number(), *b.number());
  }
  if (a.is_text() && b.is_text()) return order(*a.text(), *b.text());  // UTF-8 preserves the order of code points
  if (a.items() && b.items() && a.is<List>() == b.is<List>()) {
    const Items &x = *a.items(), &y = *b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return compare(x[i], y[i], op);
    }
    return order(x.size(), y.size());
  }
  fail("'" + std::string(op) + "' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) +
       "'");
}

bool less(const Value& a, const Value& b) {
  const auto order = compare(a, b, "<");
  return order && *order < 0;
}

std::string to_text(const Value& value) {
  if (value.is_undefined()) return {};
  return value.is_text() ? *value.text() : repr(value);
}

// The fewest digits that round-trip, as Python writes them.
std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> digits{};
  const double size = std::fabs(value);
  const bool has_exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto format = has_exponent ? std::chars_format::scientific : std::chars_format::fixed;
  std::string text(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value, format).ptr);
  if (!has_exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string quoted_text(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (const char32_t c : to_chars(text)) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      result += {'\\', static_cast<char>(c)};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += c == '\n' ? "\\n" : (c == '\r' ? "\\r" : "\\t");
    } else if (is_printable(c)) {
      append_utf8(c, &result);
    } else {
      const char* format = c < 0x100 ? "\\x%02x" : (c < 0x10000 ? "\\u%04x" : "\\U%08x");
      result += formatted(format, static_cast<unsigned>(c));
    }
  }
  return result + quote;
}

std::string repr(const Object& of) {
  if (of.items.items()) return of.type_name + "(" + (of.text.empty() ? repr(of.items) : of.text) + ")";
  const std::string text = of.attributes ? repr(Value::mapping(*of.attributes)) : of.text;
  return "<" + of.type_name + (text.empty() ? "" : " ") + text + ">";
}

std::string repr(const Value& value) {
  const DepthGuard guard;
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (value.is<bool>()) return value.get<bool>() ? "True" : "False";
  if (value.is<int64_t>()) return std::to_string(value.get<int64_t>());
  if (value.is<double>()) return repr(value.get<double>());
  if (value.is_text())
    return value.is_markup() ? "Markup(" + quoted_text(*value.text()) + ")" : quoted_text(*value.text());
  if (value.object()) return repr(*value.object());
  std::string text;
  const auto separator = [&] { return text.empty() ? "" : ", "; };
  if (const Pairs* pairs = value.pairs()) {
    for (const Pair& pair : *pairs) text += separator() + repr(pair.key) + ": " + repr(pair.value);
    return "{" + text + "}";
  }
  for (const Value& item : *value.items()) text += separator() + repr(item);
  return value.is<List>() ? "[" + text + "]" : "(" + text + (value.items()->size() == 1 ? ",)" : ")");
}

bool is_iterable(const Value& value) {
  if (const Object* object = value.object()) return object->next || object->items.items();
  return value.is_undefined() || value.is_text() || value.items() || value.pairs();
}

bool is_sequence(const Value& value) {
  if (value.object()) return value.object()->is_sequence;
  return value.is_undefined() || value.is_text() || value.items() || value.pairs();
}

Next iterate(const Value& value) {
  if (value.is_undefined()) return [](Value*) { return false; };
  if (const Object* object = value.object()) {
    if (object->items.items()) return iterate(object->items);
    if (object->next) return [kept = value, object](Value* out) { return object->next(out); };
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
  if (value.is_text()) return char_count(*value.text());
  if (value.items()) return value.items()->size();
  if (value.pairs()) return value.pairs()->size();
  const Object* object = value.object();
  if (object && object->loop_attribute) return object->loop_attribute("length")->integer();
  return object && object->items.items() ? length(object->items) : std::nullopt;
}

int64_t require_integer(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (const auto whole = value.integer()) return *whole;
  fail("'" + type_name(value) + "' object cannot be interpreted as an integer");
}

const std::string& require_text(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (value.is_text()) return *value.text();
  fail("expected str, got " + type_name(value));
}

void require_hashable(const Value& key) {
  if (key.is<List>() || key.is<Mapping>()) fail("unhashable type: '" + type_name(key) + "'");
}

Value iterator(std::string type_name, Next next) {
  return Object{.type_name = std::move(type_name), .text = "object", .next = std::move(next)};
}

}  // namespace pinion::jinja
