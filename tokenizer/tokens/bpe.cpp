#include "tokenizer/tokens/bpe.h"

#define XXH_INLINE_ALL  // a call would take longer than hashing most token texts
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr size_t kMinSlots = 16;            // all slot counts are powers of two; a quarter stays free
constexpr uint64_t kNoPair = ~uint64_t{0};  // a free slot; no pair of ids, which are not negative

size_t slots_for(size_t entries) { return std::max(kMinSlots, std::bit_ceil(entries + entries / 3 + 1)); }
bool is_full(size_t entries, size_t slots) { return entries >= slots - slots / 4; }

uint32_t hash_of(std::string_view text) { return static_cast<uint32_t>(XXH3_64bits(text.data(), text.size())); }

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, 6.4): the high bits depend on all bits.
size_t hash_of(uint64_t pair) {
  const uint64_t product = pair * 0x9E3779B97F4A7C15;
  return product ^ product >> 32;
}

constexpr std::string_view kSpaceMark = "\u2581";

// Offset of the first U+2581 that follows another character; the size of the text if there is none.
size_t next_mark(std::string_view text) {
  for (size_t at = text.find(kSpaceMark, 1); at != std::string_view::npos; at = text.find(kSpaceMark, at + 1)) {
    if (!text.substr(0, at).ends_with(kSpaceMark)) return at;
  }
  return text.size();
}

void add_symbol(int32_t id, std::vector<BpeSymbol>* symbols) {
  const auto index = static_cast<int32_t>(symbols->size());
  if (index > 0) symbols->back().next = index;
  symbols->push_back({id, index - 1, -1, false});
}

// Adds <0xXX> for each byte of `text`; returns false, and adds nothing, if the vocabulary lacks one of them.
bool add_bytes(const BpeModel& model, std::string_view text, std::vector<BpeSymbol>* symbols) {
  const auto id = [&](char c) { return model.byte_ids[static_cast<unsigned char>(c)]; };
  if (std::any_of(text.begin(), text.end(), [&](char c) { return id(c) < 0; })) return false;
  for (const char c : text) add_symbol(id(c), symbols);
  return true;
}

// Adds one symbol per character; an unknown character becomes <0xXX> tokens, or else the unknown token, which is added
// as late as in Hugging Face's library: before the next known character, so behind later <0xXX> tokens.
void split_characters(const BpeModel& model, std::string_view word, std::vector<BpeSymbol>* symbols) {
  bool has_pending_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const std::string_view c = word.substr(at, utf8_length(word.substr(at)));
    at += c.size();
    const int32_t id = model.tokens.find(c);
    if (id >= 0) {
      if (has_pending_unknown) add_symbol(model.unknown_id, symbols);
      has_pending_unknown = false;
      add_symbol(id, symbols);
    } else if (!add_bytes(model, c, symbols) && model.unknown_id >= 0) {
      if (has_pending_unknown && !model.fuse_unknown) add_symbol(model.unknown_id, symbols);
      has_pending_unknown = true;
    }
  }
  if (has_pending_unknown) add_symbol(model.unknown_id, symbols);
}

// Heap order: the lowest rank comes first, then the leftmost.
bool merges_later(const BpeCandidate& a, const BpeCandidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
}

const Merge* find_merge(const BpeModel& model, const std::vector<BpeSymbol>& symbols, int32_t left) {
  if (left < 0 || symbols[left].next < 0) return nullptr;
  return model.merges.find(symbols[left].id, symbols[symbols[left].next].id);
}

void push_candidate(const BpeModel& model, int32_t left, BpeScratch* scratch) {
  const Merge* merge = find_merge(model, scratch->symbols, left);
  if (merge == nullptr) return;
  scratch->heap.push_back({merge->rank, left, merge->id});
  std::push_heap(scratch->heap.begin(), scratch->heap.end(), merges_later);
}

void merge_all(const BpeModel& model, BpeScratch* scratch) {
  std::vector<BpeSymbol>& symbols = scratch->symbols;
  std::vector<BpeCandidate>& heap = scratch->heap;
  heap.clear();
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) push_candidate(model, i, scratch);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), merges_later);
    const BpeCandidate best = heap.back();
    heap.pop_back();
    BpeSymbol& left = symbols[best.left];
    const Merge* merge = left.is_merged ? nullptr : find_merge(model, symbols, best.left);
    if (merge == nullptr || merge->id != best.id) continue;  // a neighbour changed since this was queued
    BpeSymbol& right = symbols[left.next];
    right.is_merged = true;
    left.id = best.id;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    push_candidate(model, left.previous, scratch);
    push_candidate(model, best.left, scratch);
  }
}

}  // namespace

inline std::string_view TokenTable::text_of(size_t entry) const {
  const uint32_t begin = entries_[entry].begin;
  return {texts_.data() + begin, entries_[entry + 1].begin - begin};
}

// The slot of the text, or the free slot for it.
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
  if (is_full(size(), slots_.size())) grow(std::max(kMinSlots, 2 * slots_.size()));
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

void TokenTable::index_by_id() {
  const int32_t highest = std::ranges::max_element(entries_, {}, &Entry::id)->id;
  by_id_.assign(highest + 1, -1);
  for (size_t entry = 0; entry < size(); ++entry) {
    int32_t& indexed = by_id_[entries_[entry].id];
    if (indexed < 0 || text_of(indexed) < text_of(entry)) indexed = static_cast<int32_t>(entry);
  }
}

std::string_view TokenTable::text(int32_t id) const {
  return id < 0 || id > highest_id() || by_id_[id] < 0 ? std::string_view() : text_of(by_id_[id]);
}

// The slot of the pair, or the free slot for it.
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
  if (is_full(size_, slots_.size())) grow(std::max(kMinSlots, 2 * slots_.size()));
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

void find_cuts(BpeModel* model) {
  model->cuts_before_marks = !model->ignore_merges && model->tokens.contains(kSpaceMark);
  for (int32_t id = 0; id <= model->tokens.highest_id() && model->cuts_before_marks; ++id) {
    const std::string_view token = model->tokens.text(id);
    model->cuts_before_marks = next_mark(token) == token.size();
  }
}

void encode_word(const BpeModel& model, std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) {
  if (model.ignore_merges) {
    if (const int32_t id = model.tokens.find(word); id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  while (!word.empty()) {
    const size_t length = model.cuts_before_marks ? next_mark(word) : word.size();
    scratch->symbols.clear();
    split_characters(model, word.substr(0, length), &scratch->symbols);
    merge_all(model, scratch);
    for (const BpeSymbol& symbol : scratch->symbols) {
      if (!symbol.is_merged) ids->push_back(symbol.id);
    }
    word.remove_prefix(length);
  }
}

}  // namespace pinion
