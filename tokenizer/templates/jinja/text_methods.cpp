// Methods of Python's str that make another text.
#include <algorithm>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/format.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

std::u32string chars_of(const Value& value) { return to_chars(need_text(value)); }

// What is given to a method of markup is escaped, as what comes of it is markup again.
std::u32string argument(const Slots& a, size_t at) {
  const Value& value = a[at];
  const std::string& text = need_text(value);
  return to_chars(a[0].is_markup() && !value.is_markup() ? html_escaped(text) : text);
}

Value result(const Slots& a, std::u32string_view chars) { return Value(from_chars(chars), a[0].is_markup()); }

template <std::u32string (*change)(std::u32string_view)>
Value changed(Interpreter&, const Slots& a) {
  return result(a, change(chars_of(a[0])));
}

Value casefolded(Interpreter&, const Slots& a) { return Value(casefold(need_text(a[0])), a[0].is_markup()); }

template <bool at_front, bool at_back>
Value stripped(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]), set = a.is_given(1) ? argument(a, 1) : std::u32string();
  const auto goes = [&](char32_t c) {
    return a.is_given(1) ? set.find(c) != std::u32string::npos : is_python_space(c);
  };
  size_t first = 0, last = text.size();
  while (at_front && first < last && goes(text[first])) ++first;
  while (at_back && first < last && goes(text[last - 1])) --last;
  return result(a, std::u32string_view(text).substr(first, last - first));
}

Value without_prefix(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]), prefix = argument(a, 1);
  return result(a, text.starts_with(prefix) ? text.substr(prefix.size()) : text);
}

Value without_suffix(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]), suffix = argument(a, 1);
  return result(a, text.ends_with(suffix) ? text.substr(0, text.size() - suffix.size()) : text);
}

Value replaced(Interpreter&, const Slots& a) {
  const std::u32string text = chars_of(a[0]), old_part = argument(a, 1),
                       new_part = a[0].is_markup() && !a[2].is_text() ? to_chars(to_text(a[2])) : argument(a, 2);
  int64_t left = a.integer(3, -1);
  std::u32string made;
  size_t at = 0;
  for (; left != 0; --left) {
    const size_t found = text.find(old_part, at);
    if (found == std::u32string::npos) break;
    made.append(text, at, found - at);
    made += new_part;
    at = found + old_part.size();
    if (!old_part.empty()) continue;
    if (at == text.size()) break;  // nothing is between any two characters, and at both ends
    made += text[at++];
    if (left == 1) break;
  }
  return result(a, made.append(text, std::min(at, text.size())));
}

// Fills up to a width. Where the middle is not one, the odd place of an odd width goes to the left.
Value filled(const Slots& a, bool left, bool right) {
  const std::u32string text = chars_of(a[0]), fill = a.has(2) ? argument(a, 2) : U" ";
  if (fill.size() != 1) fail("The fill character must be exactly one character long");
  const int64_t width = need_integer(a[1]), size = static_cast<int64_t>(text.size());
  if (width <= size) return a[0];
  if (width > (int64_t{1} << 32)) fail("out of memory");
  const int64_t missing = width - size;
  int64_t before = left ? missing : 0;
  if (left && right) before = missing / 2 + (missing & width & 1);
  const auto times = [&](int64_t count) { return std::u32string(static_cast<size_t>(count), fill[0]); };
  return result(a, times(before) + text + times(missing - before));
}

Value centered(Interpreter&, const Slots& a) { return filled(a, true, true); }
Value right_justified(Interpreter&, const Slots& a) { return filled(a, true, false); }
Value left_justified(Interpreter&, const Slots& a) { return filled(a, false, true); }

Value zero_filled(Interpreter&, const Slots& a) {
  std::u32string text = chars_of(a[0]);
  const int64_t width = need_integer(a[1]), size = static_cast<int64_t>(text.size());
  if (width > (int64_t{1} << 32)) fail("out of memory");
  const bool has_sign = !text.empty() && (text[0] == '+' || text[0] == '-');
  if (width > size) text.insert(has_sign ? 1 : 0, static_cast<size_t>(width - size), U'0');
  return result(a, text);
}

Value tabs_expanded(Interpreter&, const Slots& a) {
  const int64_t size = a.integer(1, 8);
  if (size > (int64_t{1} << 20)) fail("out of memory");
  std::u32string made;
  int64_t column = 0;
  for (const char32_t c : chars_of(a[0])) {
    if (c == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      made.append(static_cast<size_t>(blanks), U' ');
      column += blanks;
    } else {
      made += c;
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return result(a, made);
}

Value joined(Interpreter&, const Slots& a) {
  const std::string& separator = need_text(a[0]);
  std::string made;
  int64_t count = 0;
  const Next next = iterate(a[1]);
  for (Value item; next(&item); ++count) {
    const std::string text = to_text(item);
    if (!item.is_text() && !a[0].is_markup()) {
      fail("sequence item " + std::to_string(count) + ": expected str instance, " + type_name(item) + " found");
    }
    if (count > 0) made += separator;
    made += a[0].is_markup() && !item.is_markup() ? html_escaped(text) : text;
  }
  return Value(std::move(made), a[0].is_markup());
}

// A mapping from codes of characters to what stands for them.
Value translated(Interpreter&, const Slots& a) {
  if (a[1].is_undefined()) fail_undefined(a[1]);
  std::string made;
  for (const char32_t c : chars_of(a[0])) {
    const Value* found = a[1].pairs() ? find(*a[1].pairs(), static_cast<int64_t>(c)) : nullptr;
    if (found == nullptr) {
      append_utf8(c, &made);
    } else if (found->integer()) {
      if (!is_char(*found->integer())) fail("no such character");
      append_utf8(static_cast<char32_t>(*found->integer()), &made);
    } else if (!found->is_none()) {
      made += need_text(*found);
    }
  }
  return Value(std::move(made), a[0].is_markup());
}

Value formatted(Interpreter& interpreter, const Slots& a) { return brace_formatted(interpreter, a[0], a.rest); }

Value formatted_with_mapping(Interpreter& interpreter, const Slots& a) {
  Arguments arguments;
  if (a[1].pairs() == nullptr) fail("format_map() needs a mapping");
  for (const Pair& pair : *a[1].pairs()) arguments.named.emplace_back(to_text(pair.key), pair.value);
  return brace_formatted(interpreter, a[0], arguments);
}

constexpr Builtin kMethods[] = {
    {"upper", "/ self", changed<upper>},
    {"lower", "/ self", changed<lower>},
    {"title", "/ self", changed<title>},
    {"capitalize", "/ self", changed<capitalize>},
    {"swapcase", "/ self", changed<swapcase>},
    {"casefold", "/ self", casefolded},
    {"strip", "/ self | chars", stripped<true, true>},
    {"lstrip", "/ self | chars", stripped<true, false>},
    {"rstrip", "/ self | chars", stripped<false, true>},
    {"removeprefix", "/ self prefix", without_prefix},
    {"removesuffix", "/ self suffix", without_suffix},
    {"replace", "/ self old new | count", replaced},
    {"center", "/ self width | fill", centered},
    {"ljust", "/ self width | fill", left_justified},
    {"rjust", "/ self width | fill", right_justified},
    {"zfill", "/ self width", zero_filled},
    {"expandtabs", "self | tabsize", tabs_expanded},
    {"join", "/ self iterable", joined},
    {"translate", "/ self table", translated},
    {"format", "/ self *", formatted},
    {"format_map", "/ self mapping", formatted_with_mapping},
};

}  // namespace

std::span<const Builtin> text_methods() { return kMethods; }

}  // namespace pinion::jinja
