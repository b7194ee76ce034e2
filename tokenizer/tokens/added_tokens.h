// Added tokens: texts that are one token each, split off before BPE. Escapes hide special tokens that users type.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;  // matches only if no word character stands directly before or behind it
  bool lstrip = false;       // the match includes white space on its left
  bool rstrip = false;       // ... on its right
  bool normalized = false;   // matches in the normalised text; `content` is normalised too
  bool special = false;
};

// Tokens to find in one pass, sorted by content.
struct AddedTokenFinder {
  std::vector<AddedToken> tokens;
  std::bitset<256> first_bytes;
};

AddedTokenFinder make_finder(std::vector<AddedToken> tokens);

// The longest token that begins at `at`, or null.
const AddedToken* longest_at(const AddedTokenFinder& finder, std::string_view text, size_t at);

struct TextRun {
  std::string_view text;
  int32_t id;  // of the added token; -1: plain text
};

// Splits `text` at the leftmost, longest added tokens, without empty runs. parse_special false: special ones are text.
std::vector<TextRun> split_added(const AddedTokenFinder& finder, std::string_view text, bool parse_special);

// A private-use character in place of the first character of a special token (templates/special_token_escape.cpp).
struct Escape {
  std::string escaped, original;  // one character each
};

// Replaces escapes by the original characters; `restored` receives the offsets of these in the result.
std::string unescaped(std::string_view text, const std::vector<Escape>& escapes,
                      std::vector<size_t>* restored = nullptr);

}  // namespace pinion
