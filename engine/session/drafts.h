// Drafts from the text itself, and the choice of the number of drafts (the depth). A draft is a guess of a coming
// token, evaluated in the same pass as the tokens before it. It pays if it raises the expected tokens per second.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

// Suffix automaton (Blumer et al. 1985) of a growing text: finds the longest suffix that occurred before, in amortised
// constant time per token. The tokens after that occurrence are drafts: edited code, quotations and lists repeat text.
struct SuffixAutomaton {
  struct Edge {
    int32_t id, state;
  };
  // A set of substrings that end at the same positions. The longest one has `length` ids.
  struct State {
    int32_t link = -1;  // state of their longest suffix that occurs at more positions
    int32_t length = 0;
    int32_t end = 0;               // end position of the latest known occurrence
    std::vector<Edge> edges = {};  // ascending by id
  };

  std::vector<int32_t> text{};
  std::vector<State> states{State{}};
  int32_t last = 0;          // state of the whole text
  int64_t match_length = 0;  // length of the longest suffix that occurred before
  int64_t match_end = 0;     // end position of that occurrence: text[match_end] followed it
};

void append(SuffixAutomaton& automaton, int32_t id);

constexpr int64_t kMaxDrafts = 15;         // of one text in a pass, after the drawn token
constexpr int64_t kJumpForwardMatch = 16;  // match length assumed for TextRules::jump_forward()

// Duration of passes by number of rows.
struct PassSeconds {
  static constexpr int64_t kMaxRows = 64;      // larger passes have no drafts
  std::array<double, kMaxRows + 1> by_rows{};  // running means; 0: not measured
};

void note_pass(PassSeconds& seconds, int64_t rows, double newest);

// Duration of a pass of `rows` rows, estimated if it was not measured.
double expected_seconds(const PassSeconds& seconds, int64_t rows);

// Acceptance rates of a text's drafts, in buckets by the length of the match (1, 2-3, 4-7, 8-15, 16 or more tokens) or
// by the probability that a draft model gives the draft (up to 0.3, 0.5, 0.7, 0.9, 1).
struct Acceptance {
  static constexpr size_t kBuckets = 5;
  std::array<double, kBuckets> rates;       // running means of the fraction of accepted drafts
  std::array<int64_t, kBuckets> skipped{};  // times in a row that a possible draft was not expected to pay
  double overall_rate = 0.7;                // of the drafts of all buckets; used for a draft model

  Acceptance();
};

size_t bucket_of_match(int64_t length);
size_t bucket_of_probability(double probability);

// Records a pass's drafts, each in its bucket: `accepted` were accepted, the next one, if any, was not.
void note_acceptance(Acceptance& acceptance, std::span<const size_t> buckets, int64_t accepted);

// A text that may have drafts in the next pass.
struct Drafter {
  Acceptance* acceptance;
  int64_t match_length;  // see SuffixAutomaton
  int64_t max_drafts;
  int64_t drafts = 0;  // result of choose_depths()
};

// Chooses the number of drafts of each text. Without drafts the pass has `rows` rows, one per text. Adds the most
// likely drafts while they raise the expected tokens per second of all texts together. A row costs the same time in a
// pass of many texts as in a pass of one, but raises the rate less, so passes of many texts get few drafts. Limits:
// `max_rows` rows and `max_seconds`. A text whose drafts do not pay gets one now and then, to measure again.
void choose_depths(const PassSeconds& seconds, int64_t rows, int64_t max_rows, double max_seconds,
                   std::span<Drafter> drafters);

// Counts a possible draft that does not pay. True every 48th time, since the text may have become predictable.
bool is_retry_due(int64_t& skipped);

// Updates a running mean; 0: not measured. A value counts as twice the mean at most: other programs delay passes.
void note_seconds(double& mean, double newest);

}  // namespace pinion
