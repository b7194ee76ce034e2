// Filters that make a text of a text.
#include <algorithm>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/format.h"
#include "tokenizer/templates/jinja/json.h"
#include "tokenizer/templates/jinja/operators.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

// Markup as it is, anything else as str() writes it.
Value softly(const Value& value) { return value.is_text() ? value : Value(to_text(value)); }

Value call_method(Interpreter& interpreter, std::string_view name, Items arguments) {
  const Builtin* method = find(text_methods(), name);
  if (method == nullptr) method = find(text_searches(), name);
  return run(interpreter, *method, {std::move(arguments), {}});
}

Value upper_filter(Interpreter& interpreter, const Slots& a) {
  return call_method(interpreter, "upper", {softly(a[0])});
}
Value lower_filter(Interpreter& interpreter, const Slots& a) {
  return call_method(interpreter, "lower", {softly(a[0])});
}
Value capitalize_filter(Interpreter& interpreter, const Slots& a) {
  return call_method(interpreter, "capitalize", {softly(a[0])});
}
Value trim(Interpreter& interpreter, const Slots& a) {
  return call_method(interpreter, "strip", {softly(a[0]), a.get(1, Value())});
}
Value center(Interpreter& interpreter, const Slots& a) {
  return call_method(interpreter, "center", {softly(a[0]), a.get(1, int64_t{80})});
}
Value replace(Interpreter& interpreter, const Slots& a) {
  const Value count = a.is_given(3) ? a[3] : Value(int64_t{-1});
  return call_method(interpreter, "replace", {to_text(a[0]), to_text(a[1]), to_text(a[2]), count});
}

Value string(Interpreter&, const Slots& a) { return softly(a[0]); }

// A capital behind blanks, hyphens and opening brackets, small letters elsewhere.
Value title_filter(Interpreter&, const Slots& a) {
  constexpr std::u32string_view kBefore = U"-({[<";
  const auto is_before = [&](char32_t c) { return is_python_space(c) || kBefore.find(c) != kBefore.npos; };
  const std::u32string text = to_chars(to_text(a[0]));
  std::u32string made;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && is_before(text[end]) == is_before(text[at])) ++end;
    made += upper(text.substr(at, 1)) + lower(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return from_chars(made);
}

Value word_count(Interpreter&, const Slots& a) {
  int64_t count = 0;
  bool in_word = false;
  for (const char32_t c : to_chars(to_text(a[0]))) {
    const bool is_part = is_alnum(c) || c == '_';
    if (is_part && !in_word) ++count;
    in_word = is_part;
  }
  return count;
}

Value format_filter(Interpreter&, const Slots& a) {
  if (a.rest.named.empty()) return percent_formatted(softly(a[0]), Value::tuple(a.rest.positional));
  if (!a.rest.positional.empty()) fail("can't handle positional and keyword arguments at the same time");
  Pairs pairs;
  for (const auto& [name, value] : a.rest.named) set(&pairs, name, value);
  return percent_formatted(softly(a[0]), Value::mapping(std::move(pairs)));
}

Value indent(Interpreter& interpreter, const Slots& a) {
  const std::string text = need_text(a[0]);
  const bool is_markup = a[0].is_markup();
  const Value width = a.get(1, int64_t{4});
  if (width.integer() && *width.integer() > (1 << 20)) fail("out of memory");
  const std::string blanks = width.is_text()
                                 ? *width.text()
                                 : std::string(static_cast<size_t>(std::max<int64_t>(need_integer(width), 0)), ' ');
  const Value lines = call_method(interpreter, "splitlines", {text + "\n"});
  std::string made;
  for (size_t i = 0; i < lines.items()->size(); ++i) {
    const std::string& line = *(*lines.items())[i].text();
    const bool indents = i == 0 ? a.flag(2) : (a.flag(3) || !line.empty());
    made += (i > 0 ? "\n" : "") + (indents ? blanks : "") + line;
  }
  return Value(std::move(made), is_markup);
}

Value truncate(Interpreter& interpreter, const Slots& a) {
  const std::string end = a.has(3) ? need_text(a[3]) : "...";
  const int64_t most = a.integer(1, 255), leeway = a.is_given(4) ? need_integer(a[4]) : 5;
  const auto end_size = static_cast<int64_t>(char_count(end));
  if (most < end_size) fail("expected length >= " + std::to_string(end_size) + ", got " + std::to_string(most));
  if (leeway < 0) fail("expected leeway >= 0, got " + std::to_string(leeway));
  const auto size = length(a[0]);
  if (!size) fail("object of type '" + type_name(a[0]) + "' has no len()");
  if (*size - most <= leeway) return a[0];
  need_text(a[0]);
  Value kept = slice(a[0], {}, most - end_size, {});
  if (!a.flag(2)) kept = call_method(interpreter, "rsplit", {kept, " ", int64_t{1}}).items()->front();
  return binary("+", kept, end);
}

std::string percent_encoded(const std::string& text, bool for_query) {
  std::string made;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          one_of(c, "_.-~") || (c == '/' && !for_query);
    if (is_plain) {
      made += c;
    } else if (c == ' ' && for_query) {
      made += '+';
    } else {
      const auto byte = static_cast<unsigned char>(c);
      made += {'%', "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15]};
    }
  }
  return made;
}

Value url_encoded(Interpreter&, const Slots& a) {
  if (a[0].is_text() || !is_iterable(a[0])) return percent_encoded(to_text(a[0]), false);
  std::string made;
  const auto add = [&](const Value& key, const Value& value) {
    if (!made.empty()) made += '&';
    made += percent_encoded(to_text(key), true) + "=" + percent_encoded(to_text(value), true);
  };
  if (a[0].pairs()) {
    for (const Pair& pair : *a[0].pairs()) add(pair.key, pair.value);
    return made;
  }
  const Next next = iterate(a[0]);
  for (Value item; next(&item);) {
    const Items both = to_items(item);
    if (both.size() != 2) fail("urlencode needs pairs");
    add(both[0], both[1]);
  }
  return made;
}

constexpr Builtin kFilters[] = {
    {"upper", "s", upper_filter},
    {"lower", "s", lower_filter},
    {"capitalize", "s", capitalize_filter},
    {"title", "s", title_filter},
    {"trim", "value | chars", trim},
    {"center", "value | width", center},
    {"replace", "s old new | count", replace},
    {"string", "object", string},
    {"wordcount", "s", word_count},
    {"format", "/ value *", format_filter},
    {"indent", "s | width first blank", indent},
    {"truncate", "s | length killwords end leeway", truncate},
    {"urlencode", "value", url_encoded},
    {"tojson", "x | ensure_ascii indent separators sort_keys", to_json},
};

}  // namespace

std::span<const Builtin> text_filters() { return kFilters; }

}  // namespace pinion::jinja
