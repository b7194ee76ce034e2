// The two tables of byte-pair encoding: texts of tokens with their ids, and pairs of ids with what they merge into.
// Vocabularies have some hundred thousand of both, and a program that starts waits for them: so no allocation for each,
// and open addressing (linear probing), where looking up what is not there touches one cache line as a rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

// Texts, 4 GiB of them at most, and ids from 0.
class TokenTable {
 public:
  void reserve(size_t texts, size_t bytes);
  // Gives a text its id, a new one if it has one already; whether it had none.
  bool set(std::string_view text, int32_t id);
  int32_t find(std::string_view text) const;  // the id, -1: none
  bool contains(std::string_view text) const { return find(text) >= 0; }
  size_t size() const { return entries_.size() - 1; }  // texts

  // To be called behind the last set(), for what follows.
  void list_by_id();
  // The text of an id, empty where it has none; of several the greatest. It lives as long as the table is not changed.
  std::string_view text(int32_t id) const;
  int32_t highest_id() const { return static_cast<int32_t>(by_id_.size()) - 1; }

 private:
  struct Entry {
    uint32_t begin;  // of the text, in texts_; it ends where the next one begins
    int32_t id;
  };
  struct Slot {
    uint32_t hash;   // the lowest bits are the place where a search begins
    uint32_t entry;  // index + 1; 0: the slot is free
  };

  std::string_view text_of(size_t entry) const;
  size_t find_slot(std::string_view text, uint32_t hash) const;
  void grow(size_t slots);

  std::string texts_;
  std::vector<Entry> entries_{{0, -1}};  // one more than texts: the last is where the next text will begin
  std::vector<Slot> slots_;
  std::vector<int32_t> by_id_;  // index of the entry, -1: none
};

struct Merge {
  int32_t rank;  // lower merges first
  int32_t id;    // of the joined token
};

// By the ids, from 0, of the left and the right token.
class MergeTable {
 public:
  void reserve(size_t pairs);
  // Where the pair's merge now lies: `merge`, or what the pair had before. Until the next call.
  Merge* insert(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;  // nullptr: the two do not merge
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

}  // namespace pinion
