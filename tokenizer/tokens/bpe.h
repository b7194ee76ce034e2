// Byte-pair encoding of one word at a time: the model part of every kind of file but sentencepiece's.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/tokens/token_table.h"

namespace pinion {

struct BpeModel {
  TokenTable tokens;
  MergeTable merges;
  std::array<int32_t, 256> byte_ids;  // of <0x00> to <0xFF>, -1: none; all -1 without byte_fallback
  int32_t unknown_id = -1;            // -1: unknown characters are dropped
  bool fuse_unknown = false;          // neighbouring unknown characters are one token
  bool ignore_merges = false;         // a word in the vocabulary is taken whole
  bool cuts_before_marks = false;     // see find_cuts()

  BpeModel() { byte_ids.fill(-1); }
};

// Where no token has U+2581, the mark for a space, behind another character, nothing merges over that place: a whole
// text that comes as one word is encoded part by part, which takes a part's memory.
void find_cuts(BpeModel* model);

// A piece of the word between merges; the pieces are a linked list over an array.
struct BpeSymbol {
  int32_t id;
  int32_t previous, next;  // -1: none
  bool gone;               // merged into its left neighbour
};

struct BpeCandidate {
  int32_t rank;
  int32_t at;  // index of the left symbol
  int32_t id;  // of the joined token
};

// Working memory, kept from word to word.
struct BpeScratch {
  std::vector<BpeSymbol> symbols;
  std::vector<BpeCandidate> heap;
};

// Appends the ids of `word` (well-formed UTF-8, below 2^31 bytes) in O(n log n).
void encode_word(const BpeModel& model, std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids);

}  // namespace pinion
