// Byte-pair encoding of one word at a time: the model of all file formats but sentencepiece's. Vocabularies have some
// 100,000 tokens and as many merges, and a program's start waits for them. So the tables allocate nothing per entry and
// use open addressing (linear probing), where a miss usually touches one cache line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

// Token texts, 4 GiB at most, and their ids from 0.
class TokenTable {
 public:
  void reserve(size_t texts, size_t bytes);
  bool set(std::string_view text, int32_t id);  // overwrites the id of a known text; returns whether the text is new
  int32_t find(std::string_view text) const;    // the id, -1: none
  bool contains(std::string_view text) const { return find(text) >= 0; }
  size_t size() const { return entries_.size() - 1; }  // number of texts

  // Indexes the texts by id. Call it after the last set() and before the functions below.
  void index_by_id();
  // The text of an id (the greatest of several), empty if there is none. Valid until the table changes.
  std::string_view text(int32_t id) const;
  int32_t highest_id() const { return static_cast<int32_t>(by_id_.size()) - 1; }

 private:
  struct Entry {
    uint32_t begin;  // offset in texts_; the text ends where the next entry's begins
    int32_t id;
  };
  struct Slot {
    uint32_t hash;   // its lowest bits are the slot where a search begins
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
  Merge* insert(int32_t left, int32_t right, Merge merge);  // the stored merge: the old one if the pair had one
  const Merge* find(int32_t left, int32_t right) const;     // null: the two do not merge
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
  std::array<int32_t, 256> byte_ids;  // of <0x00> to <0xFF>, -1: none; all -1 without byte_fallback
  int32_t unknown_id = -1;            // -1: unknown characters are dropped
  bool fuse_unknown = false;          // adjacent unknown characters become one token
  bool ignore_merges = false;         // a word in the vocabulary is one token
  bool cuts_before_marks = false;     // see find_cuts()

  BpeModel() { byte_ids.fill(-1); }
};

// Sets cuts_before_marks if no token has U+2581, the mark for a space, after another character. Then no merge crosses
// the boundary before a mark, and a whole text that comes as one word is encoded in sections, which bounds the memory.
void find_cuts(BpeModel* model);

struct BpeSymbol {  // of the linked list of tokens that a word consists of
  int32_t id;
  int32_t previous, next;  // indices, -1: none
  bool is_merged;          // into its left neighbour
};

struct BpeCandidate {
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
