// UTF-8, and the Unicode properties that tokenizers need beyond regular expressions: normal forms, the classes used
// around added tokens, and the byte-to-character alphabet of byte-level BPE.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pinion {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Makes well-formed UTF-8: each maximal ill-formed part becomes U+FFFD, as in Rust's from_utf8_lossy.
std::string to_utf8(std::string_view bytes);

// Length of the well-formed character at the front of `text`; 0: there is none.
size_t utf8_length(std::string_view text);

// The character at `*at` of well-formed text; advances `*at`, which must be below the size.
char32_t next_char(std::string_view text, size_t* at);
void append_utf8(char32_t c, std::string* text);

constexpr bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }
size_t char_count(std::string_view text);  // of well-formed text
size_t last_char(std::string_view text);   // offset of the last character of well-formed text, which is not empty

bool is_white_space(char32_t c);   // property White_Space
bool is_python_space(char32_t c);  // White_Space, and U+001C to U+001F, which Python's strip() also removes
bool is_word(char32_t c);          // \w of Unicode regular expressions

// Without white space on the left, on the right, or both; by default as Python's str.strip().
std::string_view strip(std::string_view text, bool left = true, bool right = true,
                       bool (*is_space)(char32_t) = is_python_space);
inline std::string_view rstrip(std::string_view text) { return strip(text, false); }

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
std::string normalize(std::string_view text, NormalForm form);
std::string lowercase(std::string_view text);

// GPT-2's alphabet: each byte is one printable character. Nothing for characters outside of the alphabet.
std::string bytes_to_chars(std::string_view bytes);
std::optional<char> char_to_byte(char32_t c);

}  // namespace pinion
