// Methods of lists, tuples, mappings and numbers: those that change nothing.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

// The keys, values or items of a mapping.
struct View : Object {
  enum class Kind { kKeys, kValues, kItems };
  View(Kind which, Value value) : kind(which), mapping(std::move(value)) {}
  std::string type_name() const override {
    return kind == Kind::kKeys ? "dict_keys" : (kind == Kind::kValues ? "dict_values" : "dict_items");
  }
  std::string repr() const override { return type_name() + "(" + jinja::repr(Value::list(contents())) + ")"; }
  std::optional<int64_t> length() override { return static_cast<int64_t>(mapping.pairs()->size()); }
  Next iterate() override {
    return [this, at = size_t{0}](Value* out) mutable {
      return at < mapping.pairs()->size() ? (*out = content((*mapping.pairs())[at++]), true) : false;
    };
  }
  Value content(const Pair& pair) const {
    if (kind == Kind::kItems) return Value::tuple({pair.key, pair.value});
    return kind == Kind::kKeys ? pair.key : pair.value;
  }
  Items contents() const {
    Items items;
    for (const Pair& pair : *mapping.pairs()) items.push_back(content(pair));
    return items;
  }

  Kind kind;
  Value mapping;
};

template <View::Kind kind>
Value view(Interpreter&, const Slots& a) {
  return ObjectPointer(std::make_shared<View>(kind, a[0]));
}

Value got(Interpreter&, const Slots& a) {
  need_hashable(a[1]);
  const Value* found = find(*a[0].pairs(), a[1]);
  return found ? *found : a.get(2, Value());
}

Value copied(Interpreter&, const Slots& a) { return a[0]; }

Value with_keys(Interpreter&, const Slots& a) {
  Pairs pairs;
  const Next next = iterate(a[1]);
  for (Value key; next(&key);) set(&pairs, key, a.get(2, Value()));
  return Value::mapping(std::move(pairs));
}

Value index_of(Interpreter&, const Slots& a) {
  const Items& items = *a[0].items();
  const auto size = static_cast<int64_t>(items.size());
  const auto bound = [&](size_t slot, int64_t absent) {
    const int64_t value = a.integer(slot, absent);
    return value < 0 ? std::max<int64_t>(value + size, 0) : std::min(value, size);
  };
  for (int64_t i = bound(2, 0); i < bound(3, size); ++i) {
    if (equal(items[static_cast<size_t>(i)], a[1])) return i;
  }
  fail(repr(a[1]) + " is not in " + type_name(a[0]));
}

Value counted(Interpreter&, const Slots& a) {
  return static_cast<int64_t>(
      std::ranges::count_if(*a[0].items(), [&](const Value& item) { return equal(item, a[1]); }));
}

Value is_integer(Interpreter&, const Slots& a) { return *a[0].number() == std::floor(*a[0].number()); }

Value bit_length(Interpreter&, const Slots& a) {
  const int64_t value = need_integer(a[0]);
  const auto bits = static_cast<uint64_t>(value);
  return static_cast<int64_t>(std::bit_width(value < 0 ? 0 - bits : bits));
}

constexpr Builtin kOfMappings[] = {
    {"get", "/ self key | default", got},
    {"items", "/ self", view<View::Kind::kItems>},
    {"keys", "/ self", view<View::Kind::kKeys>},
    {"values", "/ self", view<View::Kind::kValues>},
    {"copy", "/ self", copied},
    {"fromkeys", "/ self iterable | value", with_keys},
};
constexpr Builtin kOfLists[] = {
    {"index", "/ self value | start stop", index_of},
    {"count", "/ self value", counted},
    {"copy", "/ self", copied},
};
constexpr Builtin kOfWholeNumbers[] = {{"bit_length", "/ self", bit_length}};
constexpr Builtin kOfNumbers[] = {{"is_integer", "/ self", is_integer}};

}  // namespace

std::span<const Builtin> collection_methods(const Value& of) {
  if (of.pairs()) return kOfMappings;
  if (of.is<List>()) return kOfLists;
  if (of.is<Tuple>()) return std::span(kOfLists).first(2);
  if (of.is<double>()) return kOfNumbers;
  if (of.integer()) return kOfWholeNumbers;
  return {};
}

}  // namespace pinion::jinja
