// How many drafts pay: from what was accepted lately and what passes of so many rows took on this machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pinion {

constexpr int64_t kMostDrafts = 15;  // of a text in a pass, beside the token that was drawn
// What a text's rules foresee counts as a match of so many tokens.
constexpr int64_t kForeseenMatch = 16;

// What passes took, by their rows.
struct PassSeconds {
  static constexpr int64_t kMostRows = 64;      // passes of more rows hold no drafts
  std::array<double, kMostRows + 1> by_rows{};  // running means; 0: not measured yet
};

void note_pass(PassSeconds& seconds, int64_t rows, double newest);

// Of a pass of so many rows; a guess where those were not measured.
double seconds_of(const PassSeconds& seconds, int64_t rows);

// How often a text's drafts agreed with it.
struct Acceptance {
  // Of matches of 1, 2 to 3, 4 to 7, 8 to 15, 16 and more tokens; or of drafts that a model finds likely: to 0.3, 0.5,
  // 0.7, 0.9, 1.
  static constexpr size_t kBuckets = 5;
  std::array<double, kBuckets> accepted;    // the share of drafts that agreed, lately
  std::array<int64_t, kBuckets> untried{};  // in a row that were not worth a draft
  double agrees = 0.7;                      // of a draft model's drafts, whatever it found them

  Acceptance();
};

size_t bucket_of_match(int64_t length);
size_t bucket_of_likely(double likely);

// Of the drafts of a pass, by their buckets: how many agreed before the first that did not.
void note_acceptance(Acceptance& acceptance, std::span<const size_t> buckets, int64_t accepted);

// A text that may have drafts in the next pass.
struct Drafter {
  Acceptance* acceptance;
  int64_t match_length;  // of its end with what it said before
  int64_t most;          // drafts, at most
  int64_t drafts = 0;    // that pay
};

// How many drafts each text gets in a pass that has `rows` without them, each of which gives a token: so many, of the
// likeliest, that a second brings the most tokens of all texts together. So a pass of many texts holds few: a row more
// costs it as much as it costs one text, and brings less. No more than `most_rows` in all, and none that make the pass
// take `most_seconds`, but for one now and then to see whether it pays.
void choose_depths(const PassSeconds& seconds, int64_t rows, int64_t most_rows, double most_seconds,
                   std::span<Drafter> drafters);

// Of one text alone, whose drafts may come from a model.
struct DraftDepth : Acceptance {
  PassSeconds passes;
  double draft_seconds = 0;  // of a draft model's pass
  int64_t always = 0;        // so many for every match, whatever they cost, for tests; 0: as many as pay
};

// For a match of that many tokens: how many drafts to evaluate; 0 where a pass of one row is faster.
int64_t choose_depth(DraftDepth& depth, int64_t match_length);

// Whether what does not pay gets a chance all the same, now and then: the text may have changed.
bool try_again(int64_t& untried);

// A running mean of seconds, of which 0 were never measured. A pass that another program held up counts as one of twice
// the time: it says little about the next.
void note_seconds(double& mean, double newest);

}  // namespace pinion
