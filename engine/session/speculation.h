// Speculation: several tokens in one pass, of which the text keeps those that it would have drawn anyway. Each token is
// drawn from the same logits, with the same random number, as without it: the text is the same at any temperature.
// Only its speed depends on what is drafted.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/session/ngram.h"

namespace pinion {

constexpr int64_t kMostDrafts = 15;  // in a pass, beside the token that was drawn

// How many drafts pay: from what was accepted and what passes of so many rows took on this machine.
struct DraftDepth {
  // Matches of a length: 1, 2 to 3, 4 to 7, 8 to 15, 16 and more.
  static constexpr int kBuckets = 5;
  std::array<double, kBuckets> accepted;               // the share of drafts that agreed, lately
  std::array<int64_t, kBuckets> untried{};             // matches in a row that were not worth a draft
  std::array<double, kMostDrafts + 2> pass_seconds{};  // by rows; 0: not measured yet

  int64_t always = 0;  // so many for every match, whatever they cost, for tests; 0: as many as pay

  DraftDepth();
};

// For a match of that many tokens: how many drafts to evaluate; 0 where a pass of one row is faster.
int64_t choose_depth(DraftDepth& depth, int64_t match_length);

void note_pass(DraftDepth& depth, int64_t rows, double seconds);

// Of a pass with drafts after such a match: how many agreed before the first that did not.
void note_acceptance(DraftDepth& depth, int64_t match_length, int64_t drafted, int64_t accepted);

// What drafts come from, and how many pay: kept from answer to answer of a chat.
struct Speculation {
  SuffixAutomaton text;
  DraftDepth depth;
};

// Up to `most` ids that may follow speculation.text, whose memory they are.
std::span<const int32_t> draft(Speculation& speculation, int64_t most);

}  // namespace pinion
