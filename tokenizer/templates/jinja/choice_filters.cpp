// Filters that look at each item of a sequence: which to take, in what order, what to make of it.
#include <algorithm>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/interpreter.h"
#include "tokenizer/templates/jinja/operators.h"
#include "tokenizer/templates/jinja/paths.h"
#include "tokenizer/templates/jinja/stable_sort.h"

namespace pinion::jinja {
namespace {

struct Keyed {
  Value key, item;
};

std::vector<Keyed> with_keys(const Value& value, const std::function<Value(const Value&)>& key) {
  std::vector<Keyed> result;
  for (const Value& item : to_items(value)) result.push_back({key(item), item});
  return result;
}

// Items of equal keys stay in their order.
void sort_by_keys(std::vector<Keyed>* items, bool descending) {
  if (descending) std::ranges::reverse(*items);
  stable_sort(items, [](const Keyed& a, const Keyed& b) { return less(a.key, b.key); });
  if (descending) std::ranges::reverse(*items);
}

Value items_of(const std::vector<Keyed>& sorted) {
  Items items;
  for (const Keyed& keyed : sorted) items.push_back(keyed.item);
  return Value::list(std::move(items));
}

// "a,b.c": several keys, the first one first.
std::vector<Path> paths(const Value& attribute) {
  const std::string* text = attribute.text();
  if (text == nullptr) return {Path(attribute)};
  std::vector<Path> result;
  for (size_t begin = 0; begin <= text->size();) {
    const size_t end = std::min(text->find(',', begin), text->size());
    result.emplace_back(text->substr(begin, end - begin));
    begin = end + 1;
  }
  return result;
}

Value sorted(Interpreter&, const Slots& a) {
  const std::vector<Path> parts = paths(a.get(3, Value()));
  const bool minds_case = a.flag(2);
  auto items = with_keys(a[0], [&](const Value& item) {
    Items keys;
    for (const Path& path : parts) keys.push_back(minds_case ? path.of(item) : without_case(path.of(item)));
    return Value::list(std::move(keys));
  });
  sort_by_keys(&items, a.flag(1));
  return items_of(items);
}

Value sorted_mapping(Interpreter&, const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (a[0].pairs() == nullptr) fail("'" + type_name(a[0]) + "' object has no attribute 'items'");
  const std::string by = a.has(2) ? to_text(a[2]) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> items;
  for (const Pair& pair : *a[0].pairs()) {
    const Value& key = by == "key" ? pair.key : pair.value;
    items.push_back({a.flag(1) ? key : without_case(key), Value::tuple({pair.key, pair.value})});
  }
  sort_by_keys(&items, a.flag(3));
  return items_of(items);
}

Value grouped(Interpreter&, const Slots& a) {
  const Path path(a[1]);
  const Value absent = a.get(2, Value());
  const bool minds_case = a.flag(3);
  auto items = with_keys(a[0], [&](const Value& item) {
    const Value key = path.of(item, absent);
    return minds_case ? key : without_case(key);
  });
  sort_by_keys(&items, false);
  Items groups;
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    Items group;
    for (; end < items.size() && equal(items[end].key, items[begin].key); ++end) group.push_back(items[end].item);
    if (group.empty()) group.push_back(items[end++].item);  // of a key that does not equal itself
    const Items both{path.of(group.front(), absent), Value::list(std::move(group))};
    groups.emplace_back(Tuple{std::make_shared<const Items>(both), true});
  }
  return Value::list(std::move(groups));
}

Value unique(Interpreter&, const Slots& a) {
  return iterator("generator", [next = iterate(a[0]), path = Path(a.get(2, Value())), minds_case = a.flag(1),
                                seen = Pairs()](Value* out) mutable {
    while (next(out)) {
      const Value key = minds_case ? path.of(*out) : without_case(path.of(*out));
      const size_t known = seen.size();
      set(&seen, key, {});
      if (seen.size() > known) return true;
    }
    return false;
  });
}

template <bool wants_largest>
Value extreme(Interpreter&, const Slots& a) {
  const Path path(a.get(2, Value()));
  const bool minds_case = a.flag(1);
  const auto key_of = [&](const Value& item) { return minds_case ? path.of(item) : without_case(path.of(item)); };
  const Next next = iterate(a[0]);
  Value best, best_key, item;
  if (!next(&best)) return Value::undefined("No aggregated item, sequence was empty.");
  best_key = key_of(best);
  while (next(&item)) {
    const Value key = key_of(item);
    const auto order = compare(key, best_key, wants_largest ? ">" : "<");
    if (!order || (wants_largest ? *order <= 0 : *order >= 0)) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Value summed(Interpreter&, const Slots& a) {
  const Path path(a.get(1, Value()));
  Value sum = a.get(2, int64_t{0});
  if (sum.is_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  const Next next = iterate(a[0]);
  for (Value item; next(&item);) sum = binary("+", sum, path.of(item));
  return sum;
}

std::optional<Value> named(const Arguments& arguments, std::string_view name) {
  const auto found = std::ranges::find(arguments.named, name, [](const auto& pair) { return pair.first; });
  return found == arguments.named.end() ? std::nullopt : std::optional(found->second);
}

// The arguments from that one on, behind a place for the item.
Arguments behind(const Arguments& arguments, size_t from) {
  Arguments result{{Value()}, arguments.named};
  for (size_t i = from; i < arguments.positional.size(); ++i) result.positional.push_back(arguments.positional[i]);
  return result;
}

Value mapped_attribute(const Slots& a) {
  for (const auto& [name, value] : a.rest.named) {
    if (name != "attribute" && name != "default") fail("Unexpected keyword argument '" + name + "'");
  }
  return iterator("generator", [next = iterate(a[0]), path = Path(*named(a.rest, "attribute")),
                                absent = named(a.rest, "default").value_or(Value())](Value* out) {
    Value item;
    return next(&item) ? (*out = path.of(item, absent), true) : false;
  });
}

Value mapped(Interpreter& interpreter, const Slots& a) {
  if (!truth(a[0])) return iterator("generator", [](Value*) { return false; });
  if (a.rest.positional.empty() && named(a.rest, "attribute")) return mapped_attribute(a);
  if (a.rest.positional.empty()) fail("map requires a filter argument");
  return iterator("generator", [&interpreter, next = iterate(a[0]), filter = need_text(a.rest.positional[0]),
                                call = behind(a.rest, 1)](Value* out) mutable {
    if (!next(&call.positional[0])) return false;
    *out = interpreter.apply_filter(filter, call);
    return true;
  });
}

// What a select or reject asks about an item, or about its attribute.
template <bool of_attribute, bool wanted>
Value selected(Interpreter& interpreter, const Slots& a) {
  const Items& more = a.rest.positional;
  if (!truth(a[0])) return iterator("generator", [](Value*) { return false; });
  if (of_attribute && more.empty()) fail("Missing parameter for attribute name");
  constexpr size_t kTest = of_attribute ? 1 : 0;  // its place among the arguments
  const std::string test = more.size() > kTest ? need_text(more[kTest]) : "";
  return iterator("generator", [&interpreter, test, next = iterate(a[0]), path = Path(of_attribute ? more[0] : Value()),
                                call = behind(a.rest, kTest + 1)](Value* out) {
    while (next(out)) {
      Arguments asked = call;
      asked.positional[0] = path.of(*out);
      const bool holds = test.empty() ? truth(asked.positional[0]) : interpreter.apply_test(test, std::move(asked));
      if (holds == wanted) return true;
    }
    return false;
  });
}

constexpr Builtin kFilters[] = {
    {"sort", "value | reverse case_sensitive attribute", sorted},
    {"dictsort", "value | case_sensitive by reverse", sorted_mapping},
    {"groupby", "value attribute | default case_sensitive", grouped},
    {"unique", "value | case_sensitive attribute", unique},
    {"min", "value | case_sensitive attribute", extreme<false>},
    {"max", "value | case_sensitive attribute", extreme<true>},
    {"sum", "iterable | attribute start", summed},
    {"map", "/ value *", mapped},
    {"select", "/ value *", selected<false, true>},
    {"reject", "/ value *", selected<false, false>},
    {"selectattr", "/ value *", selected<true, true>},
    {"rejectattr", "/ value *", selected<true, false>},
};

}  // namespace

std::span<const Builtin> choice_filters() { return kFilters; }

}  // namespace pinion::jinja
