// Methods of Python's strings, lists and mappings. Methods that change their object do not exist in the sandbox.
#include "tokenizer/templates/jinja/builtin.h"

namespace pinion::jinja {
namespace {

std::u32string chars_of(const Value& value) { return to_chars(require_text(value)); }

// The text of an argument. Methods of markup return markup, so their arguments are HTML-escaped.
std::u32string argument(const Value& self, const Value& value) {
  const std::string& text = require_text(value);
  return to_chars(self.is_markup() && !value.is_markup() ? html_escaped(text) : text);
}

Value text_like(const Value& self, std::u32string_view chars) { return Value(from_chars(chars), self.is_markup()); }

template <std::u32string (*change)(std::u32string_view)>
Value changed(const Slots& a) {
  return text_like(a[0], change(chars_of(a[0])));
}

template <bool at_front, bool at_back>
Value stripped(const Value& self, const Value& strip_chars) {
  const bool strips_spaces = strip_chars.is_none();
  const std::u32string text = chars_of(self), set = strips_spaces ? U"" : argument(self, strip_chars);
  const auto is_stripped = [&](char32_t c) { return strips_spaces ? is_python_space(c) : set.find(c) != set.npos; };
  size_t first = 0, last = text.size();
  while (at_front && first < last && is_stripped(text[first])) ++first;
  while (at_back && first < last && is_stripped(text[last - 1])) --last;
  return text_like(self, std::u32string_view(text).substr(first, last - first));
}

template <bool at_end>
Value without(const Slots& a) {
  const std::u32string text = chars_of(a[0]), part = argument(a[0], a[1]);
  if (!(at_end ? text.ends_with(part) : text.starts_with(part))) return text_like(a[0], text);
  return text_like(a[0], text.substr(at_end ? 0 : part.size(), text.size() - part.size()));
}

Value joined(const Slots& a) {
  const std::string& separator = require_text(a[0]);
  std::string result;
  int64_t count = 0;
  const Next next = iterate(a[1]);
  for (Value item; next(&item); ++count) {
    if (!item.is_text() && !a[0].is_markup()) {
      fail("sequence item " + std::to_string(count) + ": expected str instance, " + type_name(item) + " found");
    }
    if (count > 0) result += separator;
    result += a[0].is_markup() ? escaped(item) : *item.text();
  }
  return Value(std::move(result), a[0].is_markup());
}

template <bool from_back, bool is_required>
Value found_at(const Slots& a) {
  const std::string &text = require_text(a[0]), &wanted = require_text(a[1]);
  const size_t at = from_back ? text.rfind(wanted) : text.find(wanted);
  if (is_required && at == text.npos) fail("substring not found");
  return at == text.npos ? int64_t{-1} : int64_t(char_count(text.substr(0, at)));
}

Value occurrences(const Slots& a) {
  const std::string &text = require_text(a[0]), &wanted = require_text(a[1]);
  if (wanted.empty()) return int64_t(char_count(text)) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(wanted, at)) != text.npos; at += wanted.size()) ++count;
  return count;
}

template <bool at_end>
Value begins_or_ends(const Slots& a) {
  const std::string& text = require_text(a[0]);
  const auto matches = [&](const Value& value) {
    const std::string& wanted = require_text(value);
    return at_end ? text.ends_with(wanted) : text.starts_with(wanted);
  };
  return a[1].is<Tuple>() ? std::ranges::any_of(*a[1].items(), matches) : matches(a[1]);
}

std::vector<std::u32string> split_at_spaces(std::u32string_view text, int64_t max_splits) {
  std::vector<std::u32string> pieces;
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < text.size() && is_python_space(text[at]) == spaces) ++at;
  };
  for (skip(true); at < text.size(); skip(true)) {
    const size_t begin = at;
    if (std::ssize(pieces) == max_splits) {
      pieces.emplace_back(text.substr(begin));
      break;
    }
    skip(false);
    pieces.emplace_back(text.substr(begin, at - begin));
  }
  return pieces;
}

std::vector<std::u32string> split_at(std::u32string_view text, std::u32string_view separator, int64_t max_splits) {
  if (separator.empty()) fail("empty separator");
  std::vector<std::u32string> pieces;
  size_t at = 0;
  for (size_t found; std::ssize(pieces) != max_splits; at = found + separator.size()) {
    found = text.find(separator, at);
    if (found == text.npos) break;
    pieces.emplace_back(text.substr(at, found - at));
  }
  pieces.emplace_back(text.substr(at));
  return pieces;
}

// rsplit() splits the reversed text.
template <bool from_back>
Value split(const Slots& a) {
  std::u32string text = chars_of(a[0]), separator = a.is_given(1) ? chars_of(a[1]) : U"";
  if (from_back) {
    std::ranges::reverse(text);
    std::ranges::reverse(separator);
  }
  const int64_t max_splits = a.integer(2, -1);
  auto pieces = a.is_given(1) ? split_at(text, separator, max_splits) : split_at_spaces(text, max_splits);
  if (from_back) {
    std::ranges::reverse(pieces);
    for (std::u32string& chars : pieces) std::ranges::reverse(chars);
  }
  Items items;
  for (const std::u32string& chars : pieces) items.push_back(text_like(a[0], chars));
  return Value::list(std::move(items));
}

Value lines(const Slots& a) {
  Items items;
  for (std::string& line : split_lines(require_text(a[0]), a.integer(1, 0) != 0)) {
    items.emplace_back(std::move(line), a[0].is_markup());
  }
  return Value::list(std::move(items));
}

template <bool from_back>
Value partitioned(const Slots& a) {
  const std::u32string text = chars_of(a[0]), separator = chars_of(a[1]);
  if (separator.empty()) fail("empty separator");
  const size_t found = from_back ? text.rfind(separator) : text.find(separator);
  const std::u32string_view all = text;
  const auto tuple = [&](std::u32string_view before, std::u32string_view between, std::u32string_view after) {
    return Value::tuple({text_like(a[0], before), text_like(a[0], between), text_like(a[0], after)});
  };
  if (found == text.npos) return from_back ? tuple(U"", U"", all) : tuple(all, U"", U"");
  return tuple(all.substr(0, found), separator, all.substr(found + separator.size()));
}

// True for a string that is not empty and has only characters of the class.
template <bool (*is)(char32_t)>
Value all_are(const Slots& a) {
  const std::u32string text = chars_of(a[0]);
  return !text.empty() && std::ranges::all_of(text, is);
}

constexpr Builtin kTextMethods[] = {
    {"upper", "/ self", changed<upper>},
    {"lower", "/ self", changed<lower>},
    {"title", "/ self", changed<title>},
    {"capitalize", "/ self", changed<capitalize>},
    {"strip", "/ self | chars", [](const Slots& a) { return strip(a[0], a.get(1, {})); }},
    {"lstrip", "/ self | chars", [](const Slots& a) { return stripped<true, false>(a[0], a.get(1, {})); }},
    {"rstrip", "/ self | chars", [](const Slots& a) { return stripped<false, true>(a[0], a.get(1, {})); }},
    {"removeprefix", "/ self prefix", without<false>},
    {"removesuffix", "/ self suffix", without<true>},
    {"replace", "/ self old new | count", [](const Slots& a) { return replace(a[0], a[1], a[2], a.integer(3, -1)); }},
    {"join", "/ self iterable", joined},
    {"format", "/ self *", [](const Slots& a) { return brace_format(a[0], a.rest); }},
    {"find", "/ self sub", found_at<false, false>},
    {"rfind", "/ self sub", found_at<true, false>},
    {"index", "/ self sub", found_at<false, true>},
    {"rindex", "/ self sub", found_at<true, true>},
    {"count", "/ self sub", occurrences},
    {"startswith", "/ self prefix", begins_or_ends<false>},
    {"endswith", "/ self suffix", begins_or_ends<true>},
    {"split", "self | sep maxsplit", split<false>},
    {"rsplit", "self | sep maxsplit", split<true>},
    {"splitlines", "self | keepends", lines},
    {"partition", "/ self sep", partitioned<false>},
    {"rpartition", "/ self sep", partitioned<true>},
    {"isalpha", "/ self", all_are<is_alpha>},
    {"isdigit", "/ self", all_are<is_digit>},
    {"isalnum", "/ self", all_are<is_alnum>},
    {"isspace", "/ self", all_are<is_python_space>},
};

Value key_of(const Pair& pair) { return pair.key; }
Value value_of(const Pair& pair) { return pair.value; }
Value item_of(const Pair& pair) { return Value::tuple({pair.key, pair.value}); }

// A view of a mapping. Python's follow its changes, but no template can change one.
template <Value (*content)(const Pair&)>
Value view(const Slots& a) {
  Items items;
  std::ranges::transform(*a[0].pairs(), std::back_inserter(items), content);
  const char* type = content == key_of ? "dict_keys" : content == value_of ? "dict_values" : "dict_items";
  return Object{.type_name = type, .items = Value::list(std::move(items))};
}

Value get_item(const Slots& a) {
  require_hashable(a[1]);
  const Value* found = find(*a[0].pairs(), a[1]);
  return found ? *found : a.get(2, Value());
}

constexpr Builtin kMappingMethods[] = {
    {"get", "/ self key | default", get_item},
    {"items", "/ self", view<item_of>},
    {"keys", "/ self", view<key_of>},
    {"values", "/ self", view<value_of>},
};

Value index_of(const Slots& a) {
  const Items& items = *a[0].items();
  const auto found = std::ranges::find_if(items, [&](const Value& item) { return equal(item, a[1]); });
  if (found == items.end()) fail(repr(a[1]) + " is not in " + type_name(a[0]));
  return int64_t{found - items.begin()};
}

Value count_of(const Slots& a) {
  return int64_t{std::ranges::count_if(*a[0].items(), [&](const Value& item) { return equal(item, a[1]); })};
}

constexpr Builtin kSequenceMethods[] = {{"index", "/ self value", index_of}, {"count", "/ self value", count_of}};

}  // namespace

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> result;
  for (size_t begin = 0, end = 0, next = 0; begin < text.size(); begin = end = next) {
    for (next = begin; next < text.size() && !is_line_end(next_char(text, &next)); end = next) continue;
    const bool is_last = next == text.size() && end == next;
    if (!is_last && text.substr(end, 2) == "\r\n") next = end + 2;
    result.emplace_back(text.substr(begin, (keep_ends ? next : end) - begin));
  }
  return result;
}

Value strip(const Value& text, const Value& chars) { return stripped<true, true>(text, chars); }

Value replace(const Value& text, const Value& from, const Value& to, int64_t count) {
  const std::u32string chars = chars_of(text), old_chars = argument(text, from),
                       new_chars = text.is_markup() && !to.is_text() ? to_chars(to_text(to)) : argument(text, to);
  std::u32string result;
  size_t at = 0;
  for (int64_t left = count; left != 0; --left) {
    const size_t found = chars.find(old_chars, at);
    if (found == chars.npos) break;
    result.append(chars, at, found - at);
    result += new_chars;
    at = found + old_chars.size();
    if (!old_chars.empty()) continue;
    if (at == chars.size()) break;  // the empty string occurs between all characters and at both ends
    result += chars[at++];
    if (left == 1) break;
  }
  return text_like(text, result.append(chars, std::min(at, chars.size())));
}

std::span<const Builtin> methods(const Value& object) {
  if (object.is_text()) return kTextMethods;
  if (object.pairs()) return kMappingMethods;
  if (object.items()) return kSequenceMethods;
  return {};
}

}  // namespace pinion::jinja
