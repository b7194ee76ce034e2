// Well-formed UTF-8 (Unicode 16, table 3-7).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pinion {

// A lead byte. The range of the second byte excludes overlong forms, surrogates and characters above U+10FFFF.
struct Utf8Lead {
  size_t length;  // of the character; 0: no lead byte
  unsigned char min_second, max_second;
};

inline Utf8Lead utf8_lead(unsigned char c) {
  if (c < 0x80) return {1, 0, 0};
  if (c < 0xC2) return {0, 0, 0};
  if (c < 0xE0) return {2, 0x80, 0xBF};
  if (c < 0xF0) return {3, c == 0xE0 ? uint8_t{0xA0} : uint8_t{0x80}, c == 0xED ? uint8_t{0x9F} : uint8_t{0xBF}};
  if (c < 0xF5) return {4, c == 0xF0 ? uint8_t{0x90} : uint8_t{0x80}, c == 0xF4 ? uint8_t{0x8F} : uint8_t{0xBF}};
  return {0, 0, 0};
}

// Length of the character at the front if `*whole`, else of the maximal ill-formed part (at least 1).
inline size_t utf8_unit(std::string_view text, bool* whole) {
  const Utf8Lead lead = utf8_lead(static_cast<unsigned char>(text[0]));
  size_t have = 1;
  while (have < std::min(lead.length, text.size())) {
    const auto c = static_cast<unsigned char>(text[have]);
    const bool fits = have == 1 ? c >= lead.min_second && c <= lead.max_second : (c & 0xC0) == 0x80;
    if (!fits) break;
    ++have;
  }
  *whole = have == lead.length;
  return have;
}

inline bool is_utf8(std::string_view text) {
  bool whole = true;
  for (size_t at = 0; whole && at < text.size();) {
    at += static_cast<unsigned char>(text[at]) < 0x80 ? 1 : utf8_unit(text.substr(at), &whole);
  }
  return whole;
}

}  // namespace pinion
