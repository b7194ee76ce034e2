// See token_table.h. The number of slots is a power of two, and at least a quarter of them are free.
#include "tokenizer/tokens/token_table.h"

#define XXH_INLINE_ALL  // most texts are shorter than a call takes
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace pinion {
namespace {

constexpr size_t kFewestSlots = 16;
constexpr uint64_t kNoPair = ~uint64_t{0};  // ids are not negative

size_t slots_for(size_t entries) { return std::max(kFewestSlots, std::bit_ceil(entries + entries / 3 + 1)); }
bool is_full(size_t entries, size_t slots) { return entries >= slots - slots / 4; }

uint32_t hash_of(std::string_view text) { return static_cast<uint32_t>(XXH3_64bits(text.data(), text.size())); }

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, 6.4), whose high bits depend on all.
size_t hash_of(uint64_t pair) {
  const uint64_t product = pair * 0x9E3779B97F4A7C15;
  return product ^ product >> 32;
}

}  // namespace

inline std::string_view TokenTable::text_of(size_t entry) const {
  const uint32_t begin = entries_[entry].begin;
  return {texts_.data() + begin, entries_[entry + 1].begin - begin};
}

// The text's slot, or the free one where it would be put.
inline size_t TokenTable::find_slot(std::string_view text, uint32_t hash) const {
  const Slot* const slots = slots_.data();
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  while (slots[at].entry != 0 && (slots[at].hash != hash || text_of(slots[at].entry - 1) != text)) at = (at + 1) & mask;
  return at;
}

void TokenTable::grow(size_t slots) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
  for (const Slot& slot : old) {
    if (slot.entry == 0) continue;
    size_t at = slot.hash & (slots - 1);
    while (slots_[at].entry != 0) at = (at + 1) & (slots - 1);
    slots_[at] = slot;
  }
}

void TokenTable::reserve(size_t texts, size_t bytes) {
  texts_.reserve(bytes);
  entries_.reserve(texts + 1);
  if (slots_for(texts) > slots_.size()) grow(slots_for(texts));
}

bool TokenTable::set(std::string_view text, int32_t id) {
  if (is_full(size(), slots_.size())) grow(std::max(kFewestSlots, 2 * slots_.size()));
  const uint32_t hash = hash_of(text);
  Slot& slot = slots_[find_slot(text, hash)];
  if (slot.entry != 0) {
    entries_[slot.entry - 1].id = id;
    return false;
  }
  texts_.append(text);
  entries_.back().id = id;
  entries_.push_back({static_cast<uint32_t>(texts_.size()), -1});
  slot = {hash, static_cast<uint32_t>(size())};
  return true;
}

int32_t TokenTable::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const Slot& slot = slots_[find_slot(text, hash_of(text))];
  return slot.entry == 0 ? -1 : entries_[slot.entry - 1].id;
}

void TokenTable::list_by_id() {
  const int32_t highest = std::ranges::max_element(entries_, {}, &Entry::id)->id;
  by_id_.assign(static_cast<size_t>(highest + 1), -1);
  for (size_t entry = 0; entry < size(); ++entry) {
    int32_t& listed = by_id_[static_cast<size_t>(entries_[entry].id)];
    if (listed < 0 || text_of(static_cast<size_t>(listed)) < text_of(entry)) listed = static_cast<int32_t>(entry);
  }
}

std::string_view TokenTable::text(int32_t id) const {
  if (id < 0 || id > highest_id() || by_id_[static_cast<size_t>(id)] < 0) return {};
  return text_of(static_cast<size_t>(by_id_[static_cast<size_t>(id)]));
}

// The pair's slot, or the free one where it would be put.
inline size_t MergeTable::find_slot(uint64_t pair) const {
  const Slot* const slots = slots_.data();
  const size_t mask = slots_.size() - 1;
  size_t at = hash_of(pair) & mask;
  while (slots[at].pair != kNoPair && slots[at].pair != pair) at = (at + 1) & mask;
  return at;
}

void MergeTable::grow(size_t slots) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots, {kNoPair, {}}));
  for (const Slot& slot : old) {
    if (slot.pair != kNoPair) slots_[find_slot(slot.pair)] = slot;
  }
}

void MergeTable::reserve(size_t pairs) {
  if (slots_for(pairs) > slots_.size()) grow(slots_for(pairs));
}

Merge* MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  if (is_full(size_, slots_.size())) grow(std::max(kFewestSlots, 2 * slots_.size()));
  const uint64_t pair = pair_of(left, right);
  Slot& slot = slots_[find_slot(pair)];
  if (slot.pair == kNoPair) {
    slot = {pair, merge};
    ++size_;
  }
  return &slot.merge;
}

const Merge* MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return nullptr;
  const Slot& slot = slots_[find_slot(pair_of(left, right))];
  return slot.pair == kNoPair ? nullptr : &slot.merge;
}

}  // namespace pinion
