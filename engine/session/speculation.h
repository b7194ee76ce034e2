// Speculation: several tokens in one pass, of which the text keeps those that it would have drawn anyway. Each token is
// drawn from the same logits, with the same random number, as without it: the text is the same at any temperature.
// Only its speed depends on what is drafted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/session/continuation.h"
#include "engine/session/draft_depth.h"
#include "engine/session/draft_model.h"
#include "engine/session/ngram.h"

namespace pinion {

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
