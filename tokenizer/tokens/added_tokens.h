// Added tokens: texts that are tokens of their own, found in the text before the model sees it.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

struct AddedToken {
  std::string content;  // what to seek
  int32_t id = -1;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space on its left along
  bool rstrip = false;       // ... on its right
  bool normalized = false;   // sought in the normalised text; `content` is normalised too
  bool special = false;
};

// The tokens to seek in one pass, sorted by content.
struct AddedTokenFinder {
  std::vector<AddedToken> tokens;
  std::bitset<256> first_bytes;
};

AddedTokenFinder make_finder(std::vector<AddedToken> tokens);

// The longest token that begins at `at`, or null.
const AddedToken* longest_at(const AddedTokenFinder& finder, std::string_view text, size_t at);

struct TextPart {
  std::string_view text;
  int32_t id;  // the added token it is; -1: text between
};

// Cuts `text` at the leftmost, longest added tokens. No part of plain text is empty. Special ones can be passed over.
std::vector<TextPart> split_added(const AddedTokenFinder& finder, std::string_view text, bool parse_special);

}  // namespace pinion
