// Filters about sequences as a whole, and paths.h.
#include <algorithm>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/numbers.h"
#include "tokenizer/templates/jinja/operators.h"
#include "tokenizer/templates/jinja/paths.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {

Path::Path(const Value& attribute) {
  if (attribute.is_none()) return;
  const std::string* text = attribute.text();
  if (text == nullptr) {
    parts_.push_back(attribute);
    return;
  }
  for (size_t begin = 0; begin <= text->size();) {
    const size_t end = std::min(text->find('.', begin), text->size());
    const std::string part = text->substr(begin, end - begin);
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    parts_.push_back(is_index ? Value(*parse_integer(part, 10)) : Value(part));
    begin = end + 1;
  }
}

Value Path::of(Value value, const Value& absent) const {
  for (const Value& part : parts_) {
    value = item(value, part);
    if (value.is_undefined() && !absent.is_none()) value = absent;
  }
  return value;
}

Value without_case(const Value& value) {
  return value.is_text() ? Value(from_chars(lower(to_chars(*value.text())))) : value;
}

namespace {

Value counted(Interpreter&, const Slots& a) {
  const auto size = length(a[0]);
  if (!size) fail("object of type '" + type_name(a[0]) + "' has no len()");
  return *size;
}

Value listed(Interpreter&, const Slots& a) { return Value::list(to_items(a[0])); }

Value first(Interpreter&, const Slots& a) {
  Value item;
  return iterate(a[0])(&item) ? item : Value::undefined("No first item, sequence was empty.");
}

bool is_reversible(const Value& value) {
  return value.is_undefined() || value.is_text() || value.items() || value.pairs() ||
         (value.object() && value.object()->length() && value.object()->is_sequence());
}

Value last(Interpreter&, const Slots& a) {
  if (!is_reversible(a[0])) fail("'" + type_name(a[0]) + "' object is not reversible");
  const Items items = to_items(a[0]);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reversed(Interpreter&, const Slots& a) {
  if (a[0].is_text()) return slice(a[0], {}, {}, int64_t{-1});
  Items items = to_items(a[0]);
  std::ranges::reverse(items);
  if (!is_reversible(a[0])) return Value::list(std::move(items));
  return iterator(type_name(a[0]) + "_reverseiterator", iterate(Value::list(std::move(items))));
}

Value joined(Interpreter&, const Slots& a) {
  const std::string separator = a.has(1) ? to_text(a[1]) : "";
  const Path path(a.get(2, Value()));
  std::string text;
  bool is_first = true;
  const Next next = iterate(a[0]);
  for (Value item; next(&item); is_first = false) text += (is_first ? "" : separator) + to_text(path.of(item));
  return text;
}

Value batches(Interpreter&, const Slots& a) {
  const int64_t size = need_integer(a[1]);
  if (a.is_given(2) && size > (int64_t{1} << 24)) fail("out of memory");
  return iterator("generator", [next = iterate(a[0]), size, fill = a.get(2, Value()), batch = Items(),
                                ended = false](Value* out) mutable {
    for (Value item; !ended && next(&item);) {
      const bool is_full = static_cast<int64_t>(batch.size()) == size;
      Items full;
      if (is_full) full.swap(batch);
      batch.push_back(item);
      if (is_full) return *out = Value::list(std::move(full)), true;
    }
    if (ended || batch.empty()) return false;
    ended = true;
    if (!fill.is_none() && static_cast<int64_t>(batch.size()) < size) batch.resize(static_cast<size_t>(size), fill);
    *out = Value::list(std::move(batch));
    return true;
  });
}

Value slices(Interpreter&, const Slots& a) {
  const Items items = to_items(a[0]);
  const int64_t count = need_integer(a[1]), size = static_cast<int64_t>(items.size());
  if (count == 0) fail("integer division or modulo by zero");
  return iterator("generator", [=, fill = a.get(2, Value()), at = int64_t{0}, offset = int64_t{0}](Value* out) mutable {
    if (at >= count) return false;
    const int64_t each = size / count, longer = size % count, start = offset + at * each;
    if (at < longer) ++offset;
    Items slice(items.begin() + start, items.begin() + offset + (at + 1) * each);
    if (!fill.is_none() && at >= longer) slice.push_back(fill);
    ++at;
    *out = Value::list(std::move(slice));
    return true;
  });
}

Value item_pairs(Interpreter&, const Slots& a) {
  if (a[0].is_undefined()) return iterator("generator", iterate(a[0]));
  if (a[0].pairs() == nullptr) fail("Can only get item pairs from a mapping.");
  return iterator("generator", [kept = a[0], at = size_t{0}](Value* out) mutable {
    if (at == kept.pairs()->size()) return false;
    const Pair& pair = (*kept.pairs())[at++];
    *out = Value::tuple({pair.key, pair.value});
    return true;
  });
}

Value or_default(Interpreter&, const Slots& a) {
  const bool is_absent = a[0].is_undefined() || (a.flag(2) && !truth(a[0]));
  return is_absent ? a.get(1, "") : a[0];
}

// Python's attribute, not the item of a mapping.
Value attribute_of(Interpreter&, const Slots& a) {
  const std::string& name = need_text(a[1]);
  if (a[0].is_undefined()) fail_undefined(a[0]);
  const bool has_item = a[0].pairs() && find(*a[0].pairs(), name);
  if (!has_item) return attribute(a[0], name);
  return attribute(Value::mapping({}), name);
}

constexpr Builtin kFilters[] = {
    {"length", "/ obj", counted},
    {"count", "/ obj", counted},
    {"list", "value", listed},
    {"first", "seq", first},
    {"last", "seq", last},
    {"reverse", "value", reversed},
    {"join", "value | d attribute", joined},
    {"batch", "value linecount | fill_with", batches},
    {"slice", "value slices | fill_with", slices},
    {"items", "value", item_pairs},
    {"default", "value | default_value boolean", or_default},
    {"d", "value | default_value boolean", or_default},
    {"attr", "obj name", attribute_of},
};

}  // namespace

std::span<const Builtin> list_filters() { return kFilters; }

}  // namespace pinion::jinja
