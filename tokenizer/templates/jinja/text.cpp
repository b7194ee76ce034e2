#include "tokenizer/templates/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>

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
  return std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; });
}

namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

struct CharRange {
  char32_t first, last;
};

// Numeric_Type=Digit: superscripts and enclosed digits.
constexpr CharRange kDigits[] = {{0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
                                 {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                 {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
                                 {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
                                 {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};

// Characters with several capitals (SpecialCasing.txt), Latin only.
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

bool is_cased(char32_t c) {
  return is_lower(c) || utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0 || category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_case_ignorable(char32_t c) {  // Case_Ignorable, restricted to characters that occur in words
  return category(c) == UTF8PROC_CATEGORY_MN || category(c) == UTF8PROC_CATEGORY_LM || c == '\'' || c == '.' ||
         c == ':' || c == 0x2019 || c == 0xAD || c == 0xB7;
}

// Final_Sigma: a cased character precedes in the same word, and none follows.
bool is_final(std::u32string_view text, size_t at) {
  const auto first_is_cased = [](auto begin, auto end) {
    const auto found = std::find_if_not(begin, end, is_case_ignorable);
    return found != end && is_cased(*found);
  };
  const std::u32string_view before = text.substr(0, at), after = text.substr(at + 1);
  return first_is_cased(before.rbegin(), before.rend()) && !first_is_cased(after.begin(), after.end());
}

void append_small(std::u32string_view text, size_t at, std::u32string* out) {
  constexpr char32_t kSigma = 0x3A3;
  if (text[at] == 0x130) {  // the only character with two lower-case characters: i and a dot above
    *out += U"i\u0307";
  } else if (text[at] == kSigma) {
    *out += is_final(text, at) ? U'\u03C2' : U'\u03C3';
  } else {
    *out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(text[at])));
  }
}

enum class Case { kUpper, kTitle, kLower };

// The text with each character in the case that case_at(index) returns.
std::u32string with_case(std::u32string_view text, auto case_at) {
  std::u32string result;
  for (size_t at = 0; at < text.size(); ++at) {
    const Case wanted = case_at(at);
    if (wanted == Case::kLower) {
      append_small(text, at, &result);
    } else {
      append_capital(text[at], wanted == Case::kTitle, &result);
    }
  }
  return result;
}

}  // namespace

bool is_alpha(char32_t c) { return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO; }
bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND ||
         std::ranges::any_of(kDigits, [&](const CharRange& range) { return c >= range.first && c <= range.last; });
}
bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }
bool is_alnum(char32_t c) {
  const bool is_number = category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO;
  return is_alpha(c) || is_number || is_digit(c);
}
bool is_printable(char32_t c) {
  return c == ' ' || !(category(c) == UTF8PROC_CATEGORY_CN || category(c) >= UTF8PROC_CATEGORY_ZS);
}
bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::u32string upper(std::u32string_view text) {
  return with_case(text, [](size_t) { return Case::kUpper; });
}

std::u32string lower(std::u32string_view text) {
  return with_case(text, [](size_t) { return Case::kLower; });
}

std::u32string title(std::u32string_view text) {
  return with_case(text, [&](size_t at) { return at > 0 && is_cased(text[at - 1]) ? Case::kLower : Case::kTitle; });
}

std::u32string capitalize(std::u32string_view text) {
  return with_case(text, [](size_t at) { return at > 0 ? Case::kLower : Case::kTitle; });
}

std::string html_escaped(std::string_view text) {
  static constexpr std::pair<char, std::string_view> kEscapes[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&#34;"}, {'\'', "&#39;"}};
  std::string result;
  for (const char c : text) {
    const auto* escape = std::ranges::find(kEscapes, c, [](const auto& pair) { return pair.first; });
    if (escape != std::end(kEscapes)) {
      result += escape->second;
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace pinion::jinja
