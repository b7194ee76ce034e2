#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>

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

bool is_cased(char32_t c) {
  return is_lower(c) || utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0 || category(c) == UTF8PROC_CATEGORY_LT;
}

// A character with several capitals (SpecialCasing.txt) has a case folding of several characters.
void append_capital(char32_t c, bool as_title, std::u32string* out) {
  const auto code = static_cast<utf8proc_int32_t>(c), title = utf8proc_totitle(code);
  std::array<utf8proc_int32_t, 4> folded{};
  int boundary = 0;
  const auto count = utf8proc_decompose_char(code, folded.data(), folded.size(), UTF8PROC_CASEFOLD, &boundary);
  if (count < 2 || utf8proc_isupper(code) != 0 || (as_title && utf8proc_category(title) == UTF8PROC_CATEGORY_LT)) {
    *out += static_cast<char32_t>(as_title ? title : utf8proc_toupper(code));
    return;
  }
  bool is_capital = true;
  for (const utf8proc_int32_t part : std::span(folded).first(static_cast<size_t>(count))) {
    *out += static_cast<char32_t>(is_capital ? utf8proc_toupper(part) : part);
    is_capital = is_capital && !(as_title && is_cased(static_cast<char32_t>(part)));
  }
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

// The first character in one case, those behind it in another. by_word: the first character of each word.
std::u32string with_cases(std::u32string_view text, Case first, Case rest, bool by_word = false) {
  std::u32string result;
  for (size_t at = 0; at < text.size(); ++at) {
    const Case wanted = at == 0 || (by_word && !is_cased(text[at - 1])) ? first : rest;
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

std::u32string upper(std::u32string_view text) { return with_cases(text, Case::kUpper, Case::kUpper); }
std::u32string lower(std::u32string_view text) { return with_cases(text, Case::kLower, Case::kLower); }
std::u32string title(std::u32string_view text) { return with_cases(text, Case::kTitle, Case::kLower, true); }
std::u32string capitalize(std::u32string_view text) { return with_cases(text, Case::kTitle, Case::kLower); }

std::string html_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    constexpr std::string_view kSpecial = "&<>\"'";
    constexpr std::string_view kEscapes[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    const size_t special = kSpecial.find(c);
    result += special == kSpecial.npos ? std::string_view(&c, 1) : kEscapes[special];
  }
  return result;
}

}  // namespace pinion::jinja
