// Methods of Python's str that look at a text, or cut it.
#include <algorithm>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

std::u32string chars_of(const Value& value) { return to_chars(need_text(value)); }

struct Part {
  std::u32string_view chars;
  int64_t begin;
  bool is_none;  // it begins behind its end
};

// Of `text`, what the arguments number `at` and the next bound.
Part part(std::u32string_view text, const Slots& a, size_t at) {
  const auto size = static_cast<int64_t>(text.size());
  const auto bound = [&](size_t slot, int64_t absent) {
    const int64_t value = a.is_given(slot) ? need_integer(a[slot]) : absent;
    return value < 0 ? std::max<int64_t>(value + size, 0) : value;
  };
  const int64_t begin = bound(at, 0), end = std::min(bound(at + 1, size), size);
  if (begin > end) return {{}, begin, true};
  return {text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), begin, false};
}

template <bool from_back>
int64_t position(const Slots& a) {
  const std::u32string text = chars_of(a[0]), wanted = chars_of(a[1]);
  const Part where = part(text, a, 2);
  const size_t found = from_back ? where.chars.rfind(wanted) : where.chars.find(wanted);
  return where.is_none || found == std::u32string::npos ? -1 : static_cast<int64_t>(found) + where.begin;
}

template <bool from_back>
Value found_at(Interpreter&, const Slots& a) {
  return position<from_back>(a);
}

template <bool from_back>
Value index_of(Interpreter&, const Slots& a) {
  const int64_t found = position<from_back>(a);
  if (found < 0) fail("substring not found");
  return found;
}

Value counted(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]), wanted = chars_of(a[1]);
  const Part where = part(text, a, 2);
  if (where.is_none) return int64_t{0};
  if (wanted.empty()) return static_cast<int64_t>(where.chars.size()) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = where.chars.find(wanted, at)) != std::u32string::npos; at += wanted.size()) ++count;
  return count;
}

template <bool at_end>
Value begins(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]);
  const Part where = part(text, a, 2);
  const auto fits = [&](const Value& value) {
    const std::u32string wanted = chars_of(value);
    return !where.is_none && (at_end ? where.chars.ends_with(wanted) : where.chars.starts_with(wanted));
  };
  if (a[1].is<Tuple>()) return std::ranges::any_of(*a[1].items(), fits);
  if (a[1].is_undefined()) fail_undefined(a[1]);
  if (!a[1].is_text()) fail("first arg must be str or a tuple of str, not " + type_name(a[1]));
  return fits(a[1]);
}

Value piece(const Slots& a, std::u32string_view chars) { return Value(from_chars(chars), a[0].is_markup()); }

// Splits are looked for from the front, or in reversed texts.
std::vector<std::u32string> split_at_spaces(std::u32string_view text, int64_t most) {
  std::vector<std::u32string> parts;
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < text.size() && is_python_space(text[at]) == spaces) ++at;
  };
  for (skip(true); at < text.size(); skip(true)) {
    const size_t begin = at;
    if (static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(text.substr(begin));
      break;
    }
    skip(false);
    parts.emplace_back(text.substr(begin, at - begin));
  }
  return parts;
}

std::vector<std::u32string> split_at(std::u32string_view text, std::u32string_view separator, int64_t most) {
  if (separator.empty()) fail("empty separator");
  std::vector<std::u32string> parts;
  size_t at = 0;
  for (size_t found; static_cast<int64_t>(parts.size()) != most; at = found + separator.size()) {
    found = text.find(separator, at);
    if (found == std::u32string::npos) break;
    parts.emplace_back(text.substr(at, found - at));
  }
  parts.emplace_back(text.substr(at));
  return parts;
}

template <bool from_back>
Value split(Interpreter&, const Slots& a) {
  std::u32string text = chars_of(a[0]), separator = a.is_given(1) ? chars_of(a[1]) : std::u32string();
  if (from_back) {
    std::ranges::reverse(text);
    std::ranges::reverse(separator);
  }
  const int64_t most = a.integer(2, -1);
  auto parts = a.is_given(1) ? split_at(text, separator, most) : split_at_spaces(text, most);
  if (from_back) {
    std::ranges::reverse(parts);
    for (std::u32string& chars : parts) std::ranges::reverse(chars);
  }
  Items items;
  for (const std::u32string& chars : parts) items.push_back(piece(a, chars));
  return Value::list(std::move(items));
}

Value lines(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]);
  const bool keeps_ends = a.integer(1, 0) != 0;
  Items items;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !is_line_end(text[end])) ++end;
    size_t next = std::min(end + 1, text.size());
    if (end + 1 < text.size() && text[end] == '\r' && text[end + 1] == '\n') ++next;
    items.push_back(piece(a, std::u32string_view(text).substr(at, (keeps_ends ? next : end) - at)));
    at = next;
  }
  return Value::list(std::move(items));
}

template <bool from_back>
Value partitioned(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]), separator = chars_of(a[1]);
  if (separator.empty()) fail("empty separator");
  const size_t found = from_back ? text.rfind(separator) : text.find(separator);
  const std::u32string_view all = text;
  if (found == std::u32string::npos) {
    return Value::tuple({piece(a, from_back ? U"" : all), piece(a, U""), piece(a, from_back ? all : U"")});
  }
  return Value::tuple(
      {piece(a, all.substr(0, found)), piece(a, separator), piece(a, all.substr(found + separator.size()))});
}

// Whether there are characters, and all are of the class.
template <bool (*is)(char32_t)>
Value all_are(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]);
  return !text.empty() && std::ranges::all_of(text, is);
}

Value all_ascii(Interpreter&, const Slots& a) {
  return std::ranges::all_of(chars_of(a[0]), [](char32_t c) { return c < 0x80; });
}

Value all_printable(Interpreter&, const Slots& a) { return std::ranges::all_of(chars_of(a[0]), is_printable); }

// Some character has this case, and none another.
template <bool (*is)(char32_t), bool (*is_other)(char32_t)>
Value has_case(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]);
  const auto other = [](char32_t c) { return is_other(c) || is_title(c); };
  return std::ranges::any_of(text, is) && std::ranges::none_of(text, other);
}

Value has_title_case(Interpreter&, const Slots& a) {
  bool in_word = false, found = false;
  for (const char32_t c : chars_of(a[0])) {
    const bool is_capital = is_upper(c) || is_title(c);
    if (is_capital ? in_word : is_lower(c) && !in_word) return false;
    in_word = is_capital || is_lower(c);
    found |= in_word;
  }
  return found;
}

Value is_identifier(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]);
  return !text.empty() && (text[0] == '_' || is_alpha(text[0])) && std::ranges::all_of(text, is_word);
}

constexpr Builtin kSearches[] = {
    {"find", "/ self sub | start end", found_at<false>},
    {"rfind", "/ self sub | start end", found_at<true>},
    {"index", "/ self sub | start end", index_of<false>},
    {"rindex", "/ self sub | start end", index_of<true>},
    {"count", "/ self sub | start end", counted},
    {"startswith", "/ self prefix | start end", begins<false>},
    {"endswith", "/ self suffix | start end", begins<true>},
    {"split", "self | sep maxsplit", split<false>},
    {"rsplit", "self | sep maxsplit", split<true>},
    {"splitlines", "self | keepends", lines},
    {"partition", "/ self sep", partitioned<false>},
    {"rpartition", "/ self sep", partitioned<true>},
};

constexpr Builtin kTests[] = {
    {"isalpha", "/ self", all_are<is_alpha>},
    {"isdigit", "/ self", all_are<is_digit>},
    {"isdecimal", "/ self", all_are<is_decimal>},
    {"isnumeric", "/ self", all_are<is_numeric>},
    {"isalnum", "/ self", all_are<is_alnum>},
    {"isspace", "/ self", all_are<is_python_space>},
    {"isascii", "/ self", all_ascii},
    {"isprintable", "/ self", all_printable},
    {"islower", "/ self", has_case<is_lower, is_upper>},
    {"isupper", "/ self", has_case<is_upper, is_lower>},
    {"istitle", "/ self", has_title_case},
    {"isidentifier", "/ self", is_identifier},
};

}  // namespace

std::span<const Builtin> text_searches() { return kSearches; }
std::span<const Builtin> text_tests() { return kTests; }

}  // namespace pinion::jinja
