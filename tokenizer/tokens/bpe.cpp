// See bpe.h.
#include "tokenizer/tokens/bpe.h"

#include <algorithm>

#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr std::string_view kMark = "\u2581";

// Where the first mark begins that stands behind something else; the text's end if none does.
size_t next_mark(std::string_view text) {
  for (size_t at = text.find(kMark, 1); at != std::string_view::npos; at = text.find(kMark, at + 1)) {
    if (!text.substr(0, at).ends_with(kMark)) return at;
  }
  return text.size();
}

void add_symbol(int32_t id, std::vector<BpeSymbol>* symbols) {
  const auto index = static_cast<int32_t>(symbols->size());
  if (index > 0) symbols->back().next = index;
  symbols->push_back({id, index - 1, -1, false});
}

// <0xXX> for each byte of `text`, or nothing and false when the vocabulary lacks one of them.
bool add_bytes(const BpeModel& model, std::string_view text, std::vector<BpeSymbol>* symbols) {
  const auto id = [&](char c) { return model.byte_ids[static_cast<unsigned char>(c)]; };
  if (std::any_of(text.begin(), text.end(), [&](char c) { return id(c) < 0; })) return false;
  for (const char c : text) add_symbol(id(c), symbols);
  return true;
}

// One symbol per character; unknown ones as bytes if the model can, else as the unknown token. An unknown token waits
// for the next known character, bytes pass it by: odd, but so the reference orders them.
void split_characters(const BpeModel& model, std::string_view word, std::vector<BpeSymbol>* symbols) {
  bool unknown_waits = false;
  for (size_t at = 0; at < word.size();) {
    const std::string_view c = word.substr(at, utf8_length(word.substr(at)));
    at += c.size();
    const int32_t id = model.tokens.find(c);
    if (id >= 0) {
      if (unknown_waits) add_symbol(model.unknown_id, symbols);
      unknown_waits = false;
      add_symbol(id, symbols);
    } else if (!add_bytes(model, c, symbols) && model.unknown_id >= 0) {
      if (unknown_waits && !model.fuse_unknown) add_symbol(model.unknown_id, symbols);
      unknown_waits = true;
    }
  }
  if (unknown_waits) add_symbol(model.unknown_id, symbols);
}

// For the standard heap functions, which keep the greatest first: lowest rank, then leftmost.
bool merges_later(const BpeCandidate& a, const BpeCandidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
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
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
    if (const Merge* merge = find_merge(model, symbols, i)) heap.push_back({merge->rank, i, merge->id});
  }
  std::make_heap(heap.begin(), heap.end(), merges_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), merges_later);
    const BpeCandidate best = heap.back();
    heap.pop_back();
    BpeSymbol& left = symbols[best.at];
    const Merge* merge = left.gone ? nullptr : find_merge(model, symbols, best.at);
    if (merge == nullptr || merge->id != best.id) continue;  // a neighbour changed since this was queued
    BpeSymbol& right = symbols[left.next];
    right.gone = true;
    left.id = best.id;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = best.at;
    push_candidate(model, left.previous, scratch);
    push_candidate(model, best.at, scratch);
  }
}

}  // namespace

void find_cuts(BpeModel* model) {
  model->cuts_before_marks = !model->ignore_merges && model->tokens.contains(kMark);
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
      if (!symbol.gone) ids->push_back(symbol.id);
    }
    word.remove_prefix(length);
  }
}

}  // namespace pinion
