// What boards that share a model have computed of the same rows, each its columns, put together. Nothing happens, and
// nothing is waited for, where a model is on one board.
#pragma once

#include <cstdint>

#include "engine/boards/shares.h"
#include "engine/forward/pass.h"
#include "engine/forward/scratch_sizer.h"
#include "engine/team/team.h"

namespace pinion {

// rows: [count][columns.count] floats, whole on all boards afterwards. All workers call it once what they wrote is
// visible to all; it ends with a barrier.
void gather(Worker& worker, const Pass& pass, float* rows, int64_t count, const Division& columns);

// Likewise the logits of `count` rows and their panels' likeliest ids, on the first board alone. No barrier: they are
// for who started the pass. Of rows whose segments want candidates, only so many of the other boards' likeliest travel,
// in one exchange for all these rows: what else these boards computed is minus infinity then. A draw gives the same
// token, since the likeliest of all are among those of each board.
void gather_logits(const Worker& worker, const Pass& pass, int64_t count);

// What gather() works in, of a pass's tokens or of all their experts: the columns of one board behind another's. 0 on
// one board.
int64_t gather_floats(const Model& model, int64_t tokens);

// What gather_logits() works in.
void make_candidate_buffers(const Model& model, int64_t tokens, ScratchSizer* sizer, CandidateBuffers* out);

}  // namespace pinion
