// One value by Python's format specification, see format.h.
#include "tokenizer/templates/jinja/format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

constexpr int64_t kMostWidth = 1 << 20;

std::string digits_of(uint64_t value, unsigned base, bool is_upper_case) {
  const char* const known = is_upper_case ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits += known[value % base];
    value /= base;
  } while (value != 0);
  std::ranges::reverse(digits);
  return digits;
}

// Marks between groups of `size` digits, of the front part that is digits alone.
std::string grouped(std::string digits, char mark, size_t size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  for (size_t at = whole; at > size; at -= size) digits.insert(at - size, 1, mark);
  return digits;
}

std::string printed(const char* form, int precision, double value) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, form, precision, value)), '\0');
  std::snprintf(text.data(), text.size() + 1, form, precision, value);
  return text;
}

std::string float_digits(double value, const FormatSpec& spec) {
  const int precision = static_cast<int>(spec.precision.value_or(6));
  char type = spec.type == 'n' ? 'g' : spec.type;
  if (type == '%') return printed("%.*f", precision, value * 100) + "%";
  if (type == '\0' && !spec.precision) return repr(value);
  std::string form = "%";
  if (spec.is_alternate) form += '#';
  form += ".*";
  form += type == '\0' ? 'g' : type;
  std::string text = printed(form.c_str(), type == '\0' ? std::max(precision, 1) : precision, value);
  if (type == '\0' && text.find_first_not_of("0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string whole_digits(uint64_t size, const FormatSpec& spec, std::string* prefix) {
  const char type = spec.type;
  if (type == 'c') {
    std::string text;
    if (size > 0x10FFFF || !is_char(static_cast<int64_t>(size))) fail("no such character");
    append_utf8(static_cast<char32_t>(size), &text);
    return text;
  }
  const unsigned base = type == 'b' ? 2 : (type == 'o' ? 8 : (type == 'x' || type == 'X' ? 16 : 10));
  if (base != 10 && spec.is_alternate) *prefix += {'0', type};
  const std::string digits = digits_of(size, base, type == 'X');
  return spec.group == '\0' ? digits : grouped(digits, spec.group, base == 10 ? 3 : 4);
}

}  // namespace

int64_t read_count(std::string_view text, size_t* at) {
  int64_t count = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    count = count * 10 + (text[*at] - '0');
    if (count > kMostWidth) fail("a width or precision is too large");
  }
  return count;
}

FormatSpec read_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) { return i < text.size() && one_of(text[i], "<>^="); };
  const auto take = [&](std::string_view choices) {
    const bool found = at < text.size() && choices.find(text[at]) != std::string_view::npos;
    return found ? text[at++] : '\0';
  };
  if (size_t after = 0; !text.empty()) {
    const char32_t fill = next_char(text, &after);
    if (is_align(after)) {
      spec.fill = fill;
      at = after;
    }
  }
  if (is_align(at)) spec.align = text[at++];
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.is_alternate = take("#") != '\0';
  if (take("0") != '\0' && spec.align == '\0') {
    spec.fill = '0';
    spec.align = '=';
  }
  spec.width = read_count(text, &at);
  spec.group = take(",_");
  if (take(".") != '\0') {
    const size_t digits = at;
    spec.precision = read_count(text, &at);
    if (at == digits) fail("Format specifier missing precision");
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (at != text.size()) fail("Invalid format specifier '" + std::string(text) + "'");
  return spec;
}

std::string padded(const std::string& prefix, const std::string& body, FormatSpec spec, char default_align) {
  const auto size = static_cast<int64_t>(char_count(prefix) + char_count(body));
  const int64_t missing = std::max<int64_t>(spec.width - size, 0);
  if (spec.align == '\0') spec.align = default_align;
  int64_t before = missing;
  if (spec.align == '<' || spec.align == '=') before = 0;
  if (spec.align == '^') before = missing / 2;
  std::string text;
  const auto fill = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) append_utf8(spec.fill, &text);
  };
  fill(before);
  text += prefix;
  if (spec.align == '=') fill(missing);
  text += body;
  if (spec.align != '=') fill(missing - before);
  return text;
}

std::string format_number(const Value& value, const FormatSpec& spec) {
  const bool is_whole = value.integer() && (spec.type == '\0' || one_of(spec.type, "bcdnoxX"));
  if (!is_whole && spec.type != '\0' && one_of(spec.type, "bcdosxX")) {
    fail(std::string("Unknown format code '") + spec.type + "' for object of type '" + type_name(value) + "'");
  }
  if (is_whole && spec.precision) fail("Precision not allowed in integer format specifier");
  std::string prefix, body;
  const bool is_negative = is_whole ? *value.integer() < 0 : std::signbit(*value.number());
  if (is_negative) {
    prefix = "-";
  } else if (spec.sign != '-') {
    prefix = spec.sign;
  }
  if (is_whole) {
    const auto bits = static_cast<uint64_t>(*value.integer());
    body = whole_digits(is_negative ? 0 - bits : bits, spec, &prefix);
  } else {
    body = float_digits(std::fabs(*value.number()), spec);
    if (spec.group != '\0') body = grouped(body, spec.group, 3);
  }
  return padded(prefix, body, spec, '>');
}

std::string format_text(std::string_view text, const FormatSpec& spec) {
  std::u32string chars = to_chars(text);
  if (spec.precision) chars.resize(std::min(chars.size(), static_cast<size_t>(*spec.precision)));
  return padded({}, from_chars(chars), spec, '<');
}

std::string format_value(const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_text(value);
  if (value.number()) return format_number(value, read_spec(spec_text));
  if (!value.is_text()) fail("unsupported format string passed to " + type_name(value) + ".__format__");
  FormatSpec spec = read_spec(spec_text);
  if (spec.type != 's' && spec.type != '\0') {
    fail(std::string("Unknown format code '") + spec.type + "' for object of type 'str'");
  }
  if (spec.align == '=' && spec.fill != '0') fail("'=' alignment not allowed in string format specifier");
  if (spec.align == '=') spec.align = '<';
  if (spec.sign != '-') fail("Sign not allowed in string format specifier");
  return format_text(*value.text(), spec);
}

std::string fixed(double value, int digits) { return printed("%.*f", digits, value); }

}  // namespace pinion::jinja
