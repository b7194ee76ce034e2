// Whose blocks of the cache are whose: streams take them, share those of a common beginning, lose them to others and
// leave them behind.
#pragma once

#include <cstdint>
#include <span>

#include "engine/session/streams.h"

namespace pinion {

// Forgets what the model holds of a text.
void empty(Sequence& sequence);

// The stream that came last waits again; its memory is free.
void take_back_last(Scheduler& scheduler);

// Blocks for the stream's first `positions`. Streams behind it may lose theirs. False: there are none without taking
// them from those before it.
bool make_room(Scheduler& scheduler, const Stream& stream, int64_t positions);

struct Donor {
  const KvCache* cache = nullptr;  // of one that runs
  int64_t tokens = 0;
  int64_t ended = -1;  // its place among the ended texts; -1: it runs
  int64_t coming = 0;  // tokens that some stream holds or is about to read

  int64_t whole_blocks() const { return tokens / kAttentionChunk; }
};

// What holds most of the stream's text, but for its last token, which is evaluated in any case.
Donor find_donor(const Scheduler& scheduler, const Stream& stream, bool long_factors);

// If the stream begins with all of an ended text, it takes that text's blocks over. Else the donor's whole blocks are
// held by both, and the last, partial block is copied, for which other ended texts may be forgotten.
void share(Scheduler& scheduler, const Donor& donor, Sequence* sequence, std::span<const int32_t> text);

// Whether there are blocks for all of a stream's text without taking any from those that run.
bool has_room(const Scheduler& scheduler, const Stream& stream, const Donor& donor);

// A stream has ended. If what the model holds of it is sound, others may begin with it.
void leave(Scheduler& scheduler, Stream& stream, bool is_sound);

}  // namespace pinion
