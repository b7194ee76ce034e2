// Filters on lists, mappings and other iterables. See builtin.h.
#include "kernels/base/text.h"
#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

// The argument `attribute` of a filter: a name with dots ("a.b.0"), an index, or none for the item itself.
class Path {
 public:
  explicit Path(const Value& attribute) {
    const std::string* text = attribute.text();
    if (text == nullptr) {
      if (!attribute.is_none()) steps_.push_back(attribute);
      return;
    }
    for (const std::string_view step : pinion::split(*text, '.')) {
      const bool is_index = !step.empty() && step.find_first_not_of("0123456789") == step.npos;
      steps_.push_back(is_index ? Value(*parse_integer(step)) : Value(std::string(step)));
    }
  }

  // `absent`, unless none, replaces each undefined step.
  Value of(Value value, const Value& absent = {}) const {
    for (const Value& step : steps_) {
      value = item(value, step);
      if (value.is_undefined() && !absent.is_none()) value = absent;
    }
    return value;
  }

 private:
  Items steps_;
};

// A sort key; text is compared in lower case unless the filter is case sensitive.
Value sort_key(const Value& value, bool case_sensitive) {
  return value.is_text() && !case_sensitive ? Value(from_chars(lower(to_chars(*value.text())))) : value;
}

struct Keyed {
  Value key, item;
};

// Stable in both directions.
Value sorted(std::vector<Keyed> items, bool descending) {
  if (descending) std::ranges::reverse(items);
  stable_sort(&items, [](const Keyed& a, const Keyed& b) { return less(a.key, b.key); });
  if (descending) std::ranges::reverse(items);
  Items result;
  for (Keyed& keyed : items) result.push_back(std::move(keyed.item));
  return Value::list(std::move(result));
}

// `attribute` "a,b.c" gives two keys, the more significant first. Keys are compared as lists, as in Jinja, so that two
// undefined ones are equal.
Value sort(const Slots& a) {
  std::vector<Path> paths;
  const Value attribute = a.get(3, {});
  if (!attribute.is_text()) {
    paths.emplace_back(attribute);
  } else {
    for (const std::string_view name : pinion::split(*attribute.text(), ',')) paths.emplace_back(std::string(name));
  }
  std::vector<Keyed> items;
  for (const Value& item : to_items(a[0])) {
    Items keys;
    for (const Path& path : paths) keys.push_back(sort_key(path.of(item), a.flag(2)));
    items.push_back({Value::list(std::move(keys)), item});
  }
  return sorted(std::move(items), a.flag(1));
}

Value sort_mapping(const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (a[0].pairs() == nullptr) fail("'" + type_name(a[0]) + "' object has no attribute 'items'");
  const std::string by = a.has(2) ? to_text(a[2]) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  std::vector<Keyed> items;
  for (const Pair& pair : *a[0].pairs()) {
    items.push_back({sort_key(by == "key" ? pair.key : pair.value, a.flag(1)), Value::tuple({pair.key, pair.value})});
  }
  return sorted(std::move(items), a.flag(3));
}

Value unique(const Slots& a) {
  return iterator("generator", [next = iterate(a[0]), path = Path(a.get(2, {})), case_sensitive = a.flag(1),
                                seen = Pairs()](Value* out) mutable {
    while (next(out)) {
      const size_t known = seen.size();
      set(&seen, sort_key(path.of(*out), case_sensitive), {});
      if (seen.size() > known) return true;
    }
    return false;
  });
}

template <bool finds_max>
Value extreme(const Slots& a) {
  const Path path(a.get(2, {}));
  const auto key_of = [&](const Value& item) { return sort_key(path.of(item), a.flag(1)); };
  const Next next = iterate(a[0]);
  Value best, item;
  if (!next(&best)) return Value::undefined("No aggregated item, sequence was empty.");
  Value best_key = key_of(best);
  while (next(&item)) {
    const Value key = key_of(item);
    if (!is_true(finds_max ? ">" : "<", key, best_key)) continue;
    best = item;
    best_key = key;
  }
  return best;
}

Value sum(const Slots& a) {
  const Path path(a.get(1, {}));
  Value total = a.get(2, int64_t{0});
  if (total.is_text()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  const Next next = iterate(a[0]);
  for (Value item; next(&item);) total = binary("+", total, path.of(item));
  return total;
}

std::optional<Value> find_named(const Arguments& arguments, std::string_view name) {
  const auto found = std::ranges::find(arguments.named, name, &std::pair<std::string, Value>::first);
  return found == arguments.named.end() ? std::nullopt : std::optional(found->second);
}

// Arguments of the filter or test that is applied to each item: a place for the item, then the arguments from `first`.
Arguments per_item(const Arguments& arguments, size_t first) {
  Arguments result{{Value()}, arguments.named};
  for (size_t i = first; i < arguments.positional.size(); ++i) result.positional.push_back(arguments.positional[i]);
  return result;
}

Value empty_generator() {
  return iterator("generator", [](Value*) { return false; });
}

Value map_attribute(const Slots& a) {
  for (const auto& [name, value] : a.rest.named) {
    if (name != "attribute" && name != "default") fail("Unexpected keyword argument '" + name + "'");
  }
  return iterator("generator", [next = iterate(a[0]), path = Path(*find_named(a.rest, "attribute")),
                                absent = find_named(a.rest, "default").value_or(Value())](Value* out) {
    Value item;
    return next(&item) ? (*out = path.of(item, absent), true) : false;
  });
}

Value map(const Slots& a) {
  if (!truth(a[0])) return empty_generator();
  if (a.rest.positional.empty() && find_named(a.rest, "attribute")) return map_attribute(a);
  if (a.rest.positional.empty()) fail("map requires a filter argument");
  return iterator("generator",
                  [&interpreter = a.interpreter, next = iterate(a[0]), filter = require_text(a.rest.positional[0]),
                   arguments = per_item(a.rest, 1)](Value* out) mutable {
                    if (!next(&arguments.positional[0])) return false;
                    *out = apply_filter(interpreter, filter, arguments);
                    return true;
                  });
}

// select, reject, selectattr, rejectattr. A test of the item or of its attribute selects it; without a test, its truth.
template <bool of_attribute, bool wanted>
Value selected(const Slots& a) {
  const Items& more = a.rest.positional;
  if (!truth(a[0])) return empty_generator();
  if (of_attribute && more.empty()) fail("Missing parameter for attribute name");
  constexpr size_t kTest = of_attribute ? 1 : 0;  // position of the test's name in `more`
  const std::string test = more.size() > kTest ? require_text(more[kTest]) : "";
  return iterator("generator", [&interpreter = a.interpreter, test, next = iterate(a[0]),
                                path = Path(of_attribute ? more[0] : Value()),
                                arguments = per_item(a.rest, kTest + 1)](Value* out) mutable {
    while (next(out)) {
      arguments.positional[0] = path.of(*out);
      const bool holds = test.empty() ? truth(arguments.positional[0]) : apply_test(interpreter, test, arguments);
      if (holds == wanted) return true;
    }
    return false;
  });
}

Value count(const Slots& a) {
  if (const auto size = length(a[0])) return *size;
  fail("object of type '" + type_name(a[0]) + "' has no len()");
}

Value first(const Slots& a) {
  Value item;
  return iterate(a[0])(&item) ? item : Value::undefined("No first item, sequence was empty.");
}

Value last(const Slots& a) {
  if (!is_sequence(a[0])) fail("'" + type_name(a[0]) + "' object is not reversible");
  const Items items = to_items(a[0]);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(const Slots& a) {
  if (a[0].is_text()) return slice(a[0], {}, {}, int64_t{-1});
  Items items = to_items(a[0]);
  std::ranges::reverse(items);
  if (!is_sequence(a[0])) return Value::list(std::move(items));
  return iterator(type_name(a[0]) + "_reverseiterator", iterate(Value::list(std::move(items))));
}

Value join(const Slots& a) {
  const std::string separator = a.has(1) ? to_text(a[1]) : "";
  const Path path(a.get(2, {}));
  std::string text;
  bool is_first = true;
  const Next next = iterate(a[0]);
  for (Value item; next(&item); is_first = false) text += (is_first ? "" : separator) + to_text(path.of(item));
  return text;
}

Value items(const Slots& a) {
  if (a[0].is_undefined()) return empty_generator();
  if (a[0].pairs() == nullptr) fail("Can only get item pairs from a mapping.");
  return iterator("generator", iterate(run(a.interpreter, *find(methods(a[0]), "items"), {{a[0]}, {}})));
}

Value or_default(const Slots& a) {
  const bool is_absent = a[0].is_undefined() || (a.flag(2) && !truth(a[0]));
  return is_absent ? a.get(1, "") : a[0];
}

constexpr Builtin kSequenceFilters[] = {
    {"length", "/ obj", count},
    {"count", "/ obj", count},
    {"list", "value", [](const Slots& a) { return Value::list(to_items(a[0])); }},
    {"first", "seq", first},
    {"last", "seq", last},
    {"reverse", "value", reverse},
    {"join", "value | d attribute", join},
    {"items", "value", items},
    {"default", "value | default_value boolean", or_default},
    {"d", "value | default_value boolean", or_default},
    {"sort", "value | reverse case_sensitive attribute", sort},
    {"dictsort", "value | case_sensitive by reverse", sort_mapping},
    {"unique", "value | case_sensitive attribute", unique},
    {"min", "value | case_sensitive attribute", extreme<false>},
    {"max", "value | case_sensitive attribute", extreme<true>},
    {"sum", "iterable | attribute start", sum},
    {"map", "/ value *", map},
    {"select", "/ value *", selected<false, true>},
    {"reject", "/ value *", selected<false, false>},
    {"selectattr", "/ value *", selected<true, true>},
    {"rejectattr", "/ value *", selected<true, false>},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kSequenceFilters; }

}  // namespace pinion::jinja
