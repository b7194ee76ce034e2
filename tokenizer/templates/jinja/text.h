// Characters of Python's strings: classes and cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/tokens/unicode.h"

namespace pinion::jinja {

// A Unicode scalar value. Python's strings may contain surrogates; a prompt may not.
constexpr bool is_char(int64_t code) { return code >= 0 && code <= 0x10FFFF && !(code >= 0xD800 && code < 0xE000); }

std::u32string to_chars(std::string_view text);
std::string from_chars(std::u32string_view chars);
size_t char_count(std::string_view text);

// Character classes of str.isalpha(), str.isdigit(), ...
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_lower(char32_t c);
bool is_alnum(char32_t c);
bool is_printable(char32_t c);
bool is_line_end(char32_t c);

std::u32string upper(std::u32string_view text);
std::u32string lower(std::u32string_view text);
std::u32string title(std::u32string_view text);
std::u32string capitalize(std::u32string_view text);

// HTML's special characters as MarkupSafe writes them.
std::string html_escaped(std::string_view text);

}  // namespace pinion::jinja
