// Speculation: several tokens in one pass, of which the text keeps those that it would have drawn anyway. Each token is
// drawn from the same logits, with the same random number, as without it: the text is the same at any temperature.
// Only its speed depends on what is drafted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/session/continuation.h"
#include "engine/session/draft_model.h"
#include "engine/session/ngram.h"

namespace pinion {

// How many drafts pay: from what was accepted and what passes of so many rows took on this machine.
struct DraftDepth {
  // Of matches of 1, 2 to 3, 4 to 7, 8 to 15, 16 and more tokens; or of drafts that a model finds likely: to 0.3, 0.5,
  // 0.7, 0.9, 1.
  static constexpr size_t kBuckets = 5;
  std::array<double, kBuckets> accepted;               // the share of drafts that agreed, lately
  std::array<int64_t, kBuckets> untried{};             // in a row that were not worth a draft
  std::array<double, kMostDrafts + 2> pass_seconds{};  // by rows; 0: not measured yet
  double draft_seconds = 0;                            // of a draft model's pass
  double agrees = 0.7;                                 // of a draft model's drafts, whatever it found them

  int64_t always = 0;  // so many for every match, whatever they cost, for tests; 0: as many as pay

  DraftDepth();
};

// For a match of that many tokens: how many drafts to evaluate; 0 where a pass of one row is faster.
int64_t choose_depth(DraftDepth& depth, int64_t match_length);

size_t bucket_of_match(int64_t length);
size_t bucket_of_likely(double likely);

void note_pass(DraftDepth& depth, int64_t rows, double seconds);

// Of the drafts of a pass, by their buckets: how many agreed before the first that did not.
void note_acceptance(DraftDepth& depth, std::span<const size_t> buckets, int64_t accepted);

// A pass's drafts, and how likely each was thought to agree.
struct Drafts {
  std::vector<int32_t> ids;
  std::vector<size_t> buckets;
};

// What drafts come from, and how many pay: kept from answer to answer of a chat.
struct Speculation {
  SuffixAutomaton text;                    // all that was said, where there is no draft model
  std::unique_ptr<DraftModel> model = {};  // null: the text itself
  DraftDepth depth = {};
  Drafts drafts = {};  // for the next pass
  Error failure = {};  // of the draft model: nothing is drafted any more
};

// From now on the session's texts are drafted for; an MTP layer reads along. Null: no longer.
void use_speculation(Speculation* speculation, Session* session);

// Before a text goes on from its prompt, in a session that speculates.
void begin_text(Speculation& speculation, const Session& session, std::span<const int32_t> history);

// Another token was drawn.
void add_token(Speculation& speculation, int32_t id);

// Finds at most `most` ids that may follow the text, which has ended with a token that was drawn. Where that fails
// there are none, then and later: the text needs them no more than before.
void find_drafts(Speculation& speculation, const Continuation& text, int64_t most);

}  // namespace pinion
