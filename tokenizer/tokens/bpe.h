// Byte-pair encoding of one word at a time: the model of all file formats but sentencepiece's. Vocabularies have some
// 100,000 tokens and as many merges, and building the tables delays the start of the program. So they allocate nothing
// per entry and use open addressing (linear probing), where a miss usually touches one cache line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

// Map of token texts (4 GiB together at most) to ids (0 or greater), and back.
class TokenTable {
 public:
  void reserve(size_t texts, size_t bytes);
  bool set(std::string_view text, int32_t id);  // overwrites the id of a known text; returns whether the text is new
  int32_t find(std::string_view text) const;    // the id, -1: none
  bool contains(std::string_view text) const { return find(text) >= 0; }
  size_t size() const { return entries_.size() - 1; }  // number of texts

  // Indexes the texts by id. Call it after the last set() and before the functions below.
  void index_by_id();
  // The text of an id, the greatest in byte order of several; empty: none. Valid until the table changes.
  std::string_view text(int32_t id) const;
  int32_t highest_id() const { return static_cast<int32_t>(by_id_.size()) - 1; }

 private:
  struct Entry {
    uint32_t begin;  // offset in texts_; the text ends where the next entry's begins
    int32_t id;
  };
  struct Slot {
    uint32_t hash;   // its lowest bits are the index of the slot where a search begins
    uint32_t entry;  // index + 1; 0: the slot is free
  };

  std::string_view text_of(size_t entry) const;
  size_t find_slot(std::string_view text, uint32_t hash) const;
  void grow(size_t slots);

  std::string texts_;
  std::vector<Entry> entries_{{0, -1}};  // the last one marks the end of texts_
  std::vector<Slot> slots_;
  std::vector<int32_t> by_id_;  // index of the entry, -1: none
};

struct Merge {
  int32_t rank;  // lower ranks merge first
  int32_t id;    // of the merged token
};

// Merges by the ids of the left and the right token.
class MergeTable {
 public:
  void reserve(size_t pairs);
  // Returns the stored merge; a pair that has one keeps it.
  Merge* insert(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;  // null: the two do not merge
  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };

  size_t find_slot(uint64_t pair) const;
  void grow(size_t slots);

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

struct BpeModel {
  TokenTable tokens;
  MergeTable merges;
  std::array<int32_t, 256> byte_ids;  // ids of <0x00> to <0xFF>; -1: none, or no byte_fallback
  int32_t unknown_id = -1;            // -1: unknown characters are dropped
  bool fuse_unknown = false;          // adjacent unknown characters become one token
  bool ignore_merges = false;         // a word in the vocabulary is one token
  bool cuts_before_marks = false;     // see find_cuts()

  BpeModel() { byte_ids.fill(-1); }
};

// Sets cuts_before_marks if no token has U+2581, a space, after another character: no merge crosses the boundary before
// it. A whole text without pre-tokenizers is then encoded in sections, which bounds the memory.
void find_cuts(BpeModel* model);

struct BpeSymbol {  // one token of the word, in a linked list
  int32_t id;
  int32_t previous, next;  // indices, -1: none
  bool is_merged;          // into its left neighbour, so no longer in the list
};

struct BpeCandidate {  // a merge of two neighbours; may be outdated when it is reached
  int32_t rank;
  int32_t left;  // index of the left symbol
  int32_t id;    // of the merged token
};

// Working memory, reused for each word.
struct BpeScratch {
  std::vector<BpeSymbol> symbols;
  std::vector<BpeCandidate> heap;
};

// Appends the ids of `word` (well-formed UTF-8, below 2^31 bytes) in O(n log n).
void encode_word(const BpeModel& model, std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids);

}  // namespace pinion
