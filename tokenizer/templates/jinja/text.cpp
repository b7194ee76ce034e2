// See text.h.
#include "tokenizer/templates/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

std::u32string to_chars(std::string_view text) {
  std::u32string chars;
  chars.reserve(text.size());
  for (size_t at = 0; at < text.size();) chars += next_char(text, &at);
  return chars;
}

std::string from_chars(std::u32string_view chars) {
  std::string text;
  text.reserve(chars.size());
  for (const char32_t c : chars) append_utf8(c, &text);
  return text;
}

size_t char_count(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

struct Range {
  char32_t first, last;
};

// Numeric_Type=Digit: superscripts, and digits in circles and the like.
constexpr Range kDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                             {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                             {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                             {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                             {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

}  // namespace

bool is_alpha(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  return is_decimal(c) ||
         std::ranges::any_of(kDigits, [&](const Range& range) { return c >= range.first && c <= range.last; });
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_printable(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return c == ' ' || !(kind == UTF8PROC_CATEGORY_CN || kind >= UTF8PROC_CATEGORY_ZS);
}

bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c) || is_digit(c); }

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

namespace {

// Characters whose capitals are several (SpecialCasing.txt): those of the Latin alphabet.
struct Capitals {
  char32_t c;
  const char32_t *upper, *title;
};
constexpr Capitals kSpecial[] = {
    {0xDF, U"SS", U"Ss"},   {0x149, U"\u02BCN", U"\u02BCN"}, {0x1F0, U"J\u030C", U"J\u030C"}, {0xFB00, U"FF", U"Ff"},
    {0xFB01, U"FI", U"Fi"}, {0xFB02, U"FL", U"Fl"},          {0xFB03, U"FFI", U"Ffi"},        {0xFB04, U"FFL", U"Ffl"},
    {0xFB05, U"ST", U"St"}, {0xFB06, U"ST", U"St"}};

void append_capital(char32_t c, bool as_title, std::u32string* out) {
  const auto special = std::ranges::find(kSpecial, c, &Capitals::c);
  if (special != std::end(kSpecial)) {
    *out += as_title ? special->title : special->upper;
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  *out += static_cast<char32_t>(as_title ? utf8proc_totitle(code) : utf8proc_toupper(code));
}

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_passed_over(char32_t c) {  // Case_Ignorable, of what stands in words
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_LM || c == '\'' || c == '.' || c == ':' ||
         c == 0x2019 || c == 0xAD || c == 0xB7;
}

// A sigma at the end of a word is written another way.
bool is_final(std::u32string_view text, size_t at) {
  const auto first_that_counts = [](auto begin, auto end) {
    const auto found = std::find_if_not(begin, end, is_passed_over);
    return found != end && is_cased(*found);
  };
  const std::u32string_view before = text.substr(0, at), after = text.substr(at + 1);
  return first_that_counts(before.rbegin(), before.rend()) && !first_that_counts(after.begin(), after.end());
}

void append_small(std::u32string_view text, size_t at, std::u32string* out) {
  constexpr char32_t kSigma = 0x3A3;
  if (text[at] == 0x130) {  // the only character whose lower case is two: i and a dot above
    *out += U"i\u0307";
  } else if (text[at] == kSigma) {
    *out += is_final(text, at) ? U'\u03C2' : U'\u03C3';
  } else {
    *out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[at])));
  }
}

}  // namespace

std::u32string upper(std::u32string_view text) {
  std::u32string result;
  for (const char32_t c : text) append_capital(c, false, &result);
  return result;
}

std::u32string lower(std::u32string_view text) {
  std::u32string result;
  for (size_t at = 0; at < text.size(); ++at) append_small(text, at, &result);
  return result;
}

std::u32string title(std::u32string_view text) {
  std::u32string result;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (in_word) {
      append_small(text, at, &result);
    } else {
      append_capital(text[at], true, &result);
    }
    in_word = is_cased(text[at]);
  }
  return result;
}

std::u32string capitalize(std::u32string_view text) {
  std::u32string result;
  for (size_t at = 0; at < text.size(); ++at) {
    if (at == 0) {
      append_capital(text[at], true, &result);
    } else {
      append_small(text, at, &result);
    }
  }
  return result;
}

std::u32string swapcase(std::u32string_view text) {
  std::u32string result;
  for (size_t at = 0; at < text.size(); ++at) {
    if (is_upper(text[at])) {
      append_small(text, at, &result);
    } else if (is_lower(text[at])) {
      append_capital(text[at], false, &result);
    } else {
      result += text[at];
    }
  }
  return result;
}

std::string casefold(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const auto bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                  static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(folded, &std::free);
  if (bytes < 0) fail("casefold: " + std::string(utf8proc_errmsg(bytes)));
  return {reinterpret_cast<const char*>(folded), static_cast<size_t>(bytes)};
}

std::string html_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&#34;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// Python's repr of a string.
std::string in_quotes(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (const char32_t c : to_chars(text)) {
    std::array<char, 12> code{};
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += c == '\n' ? "\\n" : (c == '\r' ? "\\r" : "\\t");
    } else if (is_printable(c)) {
      append_utf8(c, &result);
    } else {
      const char* form = c < 0x100 ? "\\x%02x" : (c < 0x10000 ? "\\u%04x" : "\\U%08x");
      std::snprintf(code.data(), code.size(), form, static_cast<unsigned>(c));
      result += code.data();
    }
  }
  return result + quote;
}

// The fewest digits that give the number again, as Python writes them.
std::string repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> digits{};
  const double size = std::fabs(value);
  const bool with_exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto form = with_exponent ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, form).ptr;
  std::string text(digits.data(), end);
  if (!with_exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace pinion::jinja
