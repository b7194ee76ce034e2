// Drafts from the text itself, and the number of drafts that pays. A draft is a guess of a coming token, evaluated in
// the same pass as the tokens before it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pinion {

// Suffix automaton (Blumer et al. 1985) of a growing text: finds the longest suffix that occurred before, in amortised
// constant time per token. Edited code, quotations and lists repeat earlier text.
struct SuffixAutomaton {
  struct Edge {
    int32_t id, state;
  };
  // All substrings that end at the same positions; the longest has `length` ids.
  struct State {
    int32_t link = -1;  // state of the longest suffix of these that has more occurrences
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

// Makes the automaton that of `text`; appends only if `text` extends the current one.
void set_text(SuffixAutomaton& automaton, std::span<const int32_t> text);

constexpr int64_t kMaxDrafts = 15;         // of a text in a pass, in addition to the drawn token
constexpr int64_t kJumpForwardMatch = 16;  // match length assumed for TextRules::jump_forward()

// Duration of passes by number of rows.
struct PassSeconds {
  static constexpr int64_t kMaxRows = 64;      // larger passes hold no drafts
  std::array<double, kMaxRows + 1> by_rows{};  // running means; 0: not measured
};

void note_pass(PassSeconds& seconds, int64_t rows, double newest);

// Duration of a pass of `rows` rows, estimated if it was not measured.
double expected_seconds(const PassSeconds& seconds, int64_t rows);

// Acceptance of a text's drafts, in buckets: matches of 1, 2-3, 4-7, 8-15 and 16 or more tokens, or drafts to which a
// model gives a probability up to 0.3, 0.5, 0.7, 0.9 and 1.
struct Acceptance {
  static constexpr size_t kBuckets = 5;
  std::array<double, kBuckets> rates;       // running means of the fraction that agreed
  std::array<int64_t, kBuckets> skipped{};  // consecutive chances that did not pay
  double overall_rate = 0.7;                // of a draft model's drafts in all buckets

  Acceptance();
};

size_t bucket_of_match(int64_t length);
size_t bucket_of_probability(double probability);

// Records the drafts of a pass by their buckets; the first `accepted` agreed, the next one, if any, did not.
void note_acceptance(Acceptance& acceptance, std::span<const size_t> buckets, int64_t accepted);

// A text that may have drafts in the next pass.
struct Drafter {
  Acceptance* acceptance;
  int64_t match_length;  // of its suffix with an earlier occurrence
  int64_t max_drafts;
  int64_t drafts = 0;  // the choice
};

// Chooses the number of drafts of each text in a pass that has `rows` rows without drafts, one token each. Adds the
// most likely drafts while they raise the expected tokens per second of all texts together: a row costs the pass of
// many texts the same as that of one and gains less, so such passes get few. Limits: `max_rows` rows in all, and a
// duration below `max_seconds`. A text without a draft that pays gets one now and then, to measure again.
void choose_depths(const PassSeconds& seconds, int64_t rows, int64_t max_rows, double max_seconds,
                   std::span<Drafter> drafters);

// State of a single text, with drafts from itself or from a model.
struct DraftDepth : Acceptance {
  PassSeconds passes;
  double draft_seconds = 0;  // running mean of a draft model's pass
  int64_t fixed_drafts = 0;  // for tests: that many drafts for every match; 0: as many as pay
};

// Number of drafts for a match of that length; 0: a pass of one row is faster.
int64_t choose_depth(DraftDepth& depth, int64_t match_length);

// Counts a chance that does not pay; true every 48th time, because the text may have changed.
bool is_retry_due(int64_t& skipped);

// Updates a running mean; 0: not measured. A new value counts at most as twice the mean: a pass delayed by another
// program predicts little.
void note_seconds(double& mean, double newest);

}  // namespace pinion
