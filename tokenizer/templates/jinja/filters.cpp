// Filters on text and numbers, then on lists, mappings and other iterables. See builtin.h.
#include <cmath>
#include <cstdlib>

#include "kernels/base/text.h"
#include "tokenizer/templates/jinja/builtin.h"

namespace pinion::jinja {

std::string escaped(const Value& value) { return value.is_markup() ? *value.text() : html_escaped(to_text(value)); }

namespace {

// int() or float() of a string, which spaces may surround and a plus sign may precede.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  constexpr bool kIsInteger = std::is_same_v<Number, int64_t>;
  std::string bare = *strip(std::string(text), {}).text();
  if (bare.size() > 1 && bare[0] == '+' && bare[1] != '-') bare.erase(0, 1);
  if (!kIsInteger && bare.find('(') != std::string::npos) return {};  // nan(1)
  Number value = 0;
  const auto [end, error] = std::from_chars(bare.data(), bare.data() + bare.size(), value);
  if (kIsInteger && error == std::errc::result_out_of_range) fail_overflow();
  if (bare.empty() || end != bare.data() + bare.size()) return {};
  if (error == std::errc::result_out_of_range) return std::strtod(bare.c_str(), nullptr);  // infinity or 0
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

int64_t truncated(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (std::fabs(value) >= 0x1p63) fail_overflow();
  return static_cast<int64_t>(value);
}

Value absolute(const Slots& a) {
  if (a[0].is<double>()) return std::fabs(a[0].get<double>());
  if (!a[0].integer()) fail("bad operand type for abs(): '" + type_name(a[0]) + "'");
  return *a[0].integer() < 0 ? with_sign('-', a[0]) : Value(*a[0].integer());
}

Value round_number(const Slots& a) {
  constexpr int64_t kMaxDigits = 323;  // of a double
  const int64_t digits = a.integer(1, 0);
  const std::string method = a.has(2) ? to_text(a[2]) : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (!a[0].number()) fail("type " + type_name(a[0]) + " doesn't define __round__ method");
  if (method == "common" && digits < 0) fail("a negative precision is not supported");
  if (method == "common" && a[0].integer()) return *a[0].integer();
  if (method == "common" && std::isfinite(*a[0].number()) && digits <= kMaxDigits) {
    return std::strtod(formatted("%.*f", static_cast<int>(digits), *a[0].number()).c_str(), nullptr);
  }
  if (method == "common") return *a[0].number();
  const double unit = std::pow(10.0, static_cast<double>(digits)), scaled = *a[0].number() * unit;
  return static_cast<double>(truncated(method == "ceil" ? std::ceil(scaled) : std::floor(scaled))) / unit;
}

Value to_integer(const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (a[0].integer()) return *a[0].integer();
  if (a[0].is<double>() && !std::isnan(a[0].get<double>())) return truncated(a[0].get<double>());
  const Value absent = a.get(1, int64_t{0});
  if (!a[0].is_text()) return absent;
  if (const auto whole = parse_number<int64_t>(*a[0].text())) return *whole;
  const auto number = parse_number<double>(*a[0].text());
  return number && std::isfinite(*number) ? Value(truncated(*number)) : absent;
}

Value to_float(const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (const auto number = a[0].number()) return *number;
  const auto number = a[0].is_text() ? parse_number<double>(*a[0].text()) : std::nullopt;
  return number ? Value(*number) : a.get(1, 0.0);
}

// Text and markup unchanged, all other values as str() writes them.
Value text_of(const Value& value) { return value.is_text() ? value : Value(to_text(value)); }

template <std::u32string (*change)(std::u32string_view)>
Value changed_case(const Slots& a) {
  return Value(from_chars(change(to_chars(to_text(a[0])))), a[0].is_markup());
}

// Capitalizes words, which begin after spaces, hyphens and opening brackets. (str.title() splits words differently.)
Value title_filter(const Slots& a) {
  constexpr std::u32string_view kMarks = U"-({[<";
  const auto precedes_word = [&](char32_t c) { return is_python_space(c) || kMarks.find(c) != kMarks.npos; };
  const std::u32string text = to_chars(to_text(a[0]));
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && precedes_word(text[end]) == precedes_word(text[at])) ++end;
    result += upper(text.substr(at, 1)) + lower(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return from_chars(result);
}

Value replace_filter(const Slots& a) {
  return replace(to_text(a[0]), to_text(a[1]), to_text(a[2]), a.is_given(3) ? require_integer(a[3]) : -1);
}

Value format_filter(const Slots& a) {
  if (a.rest.named.empty()) return percent_format(text_of(a[0]), Value::tuple(a.rest.positional));
  fail("format() takes no keyword arguments here");
}

Value indent(const Slots& a) {
  const std::string& text = require_text(a[0]);
  const Value width = a.get(1, int64_t{4});
  if (width.integer() && *width.integer() > (1 << 20)) fail("out of memory");
  const auto prefix = width.is_text() ? *width.text() : std::string(std::max<int64_t>(require_integer(width), 0), ' ');
  std::string result;
  bool is_first = true;
  for (const std::string& line : split_lines(text + "\n", false)) {
    const bool indents = is_first ? a.flag(2) : (a.flag(3) || !line.empty());
    result += (is_first ? "" : "\n") + (indents ? prefix : "") + line;
    is_first = false;
  }
  return Value(std::move(result), a[0].is_markup());
}

Value escape(const Slots& a) { return Value(escaped(a[0]), true); }

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
      steps_.push_back(is_index ? Value(*parse_number<int64_t>(step)) : Value(std::string(step)));
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

// Stable in both directions.
Value sorted(const Items& items, bool descending, auto key_of) {
  Pairs keyed;
  for (const Value& item : items) keyed.push_back({key_of(item), item});
  if (descending) std::ranges::reverse(keyed);
  stable_sort(&keyed, [](const Pair& a, const Pair& b) { return less(a.key, b.key); });
  if (descending) std::ranges::reverse(keyed);
  Items result;
  for (Pair& pair : keyed) result.push_back(std::move(pair.value));
  return Value::list(std::move(result));
}

// `attribute` "a,b.c" gives two keys, the more significant first, compared as lists: undefined ones are equal.
Value sort(const Slots& a) {
  std::vector<Path> paths;
  const Value attribute = a.get(3, {});
  if (!attribute.is_text()) {
    paths.emplace_back(attribute);
  } else {
    for (const std::string_view name : pinion::split(*attribute.text(), ',')) paths.emplace_back(std::string(name));
  }
  return sorted(to_items(a[0]), a.flag(1), [&](const Value& item) {
    Items keys;
    for (const Path& path : paths) keys.push_back(sort_key(path.of(item), a.flag(2)));
    return Value::list(std::move(keys));
  });
}

Value items_of(const Slots& a) { return run(a.interpreter, *find(methods(a[0]), "items"), {{a[0]}, {}}); }

Value sort_mapping(const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (a[0].pairs() == nullptr) fail("'" + type_name(a[0]) + "' object has no attribute 'items'");
  const std::string by = a.has(2) ? to_text(a[2]) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  return sorted(to_items(items_of(a)), a.flag(3),
                [&](const Value& pair) { return sort_key((*pair.items())[by == "key" ? 0 : 1], a.flag(1)); });
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
  return iterator("generator", iterate(items_of(a)));
}

Value or_default(const Slots& a) {
  const bool is_absent = a[0].is_undefined() || (a.flag(2) && !truth(a[0]));
  return is_absent ? a.get(1, "") : a[0];
}

constexpr Builtin kFilters[] = {
    {"upper", "s", changed_case<upper>},
    {"lower", "s", changed_case<lower>},
    {"capitalize", "s", changed_case<capitalize>},
    {"title", "s", title_filter},
    {"trim", "value | chars", [](const Slots& a) { return strip(text_of(a[0]), a.get(1, {})); }},
    {"replace", "s old new | count", replace_filter},
    {"string", "object", [](const Slots& a) { return text_of(a[0]); }},
    {"format", "/ value *", format_filter},
    {"indent", "s | width first blank", indent},
    {"tojson", "x | ensure_ascii indent separators sort_keys", to_json},
    {"safe", "value", [](const Slots& a) { return Value(to_text(a[0]), true); }},
    {"escape", "/ s", escape},
    {"e", "/ s", escape},
    {"abs", "/ x", absolute},
    {"round", "value | precision method", round_number},
    {"int", "value | default", to_integer},
    {"float", "value | default", to_float},
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

Value apply_filter(Interpreter& interpreter, const std::string& name, Arguments arguments) {
  const Builtin* filter = find(kFilters, name);
  if (filter == nullptr) fail("no filter named '" + name + "'");
  return run(interpreter, *filter, std::move(arguments));
}

}  // namespace pinion::jinja
