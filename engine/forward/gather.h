// Exchanges between boards, each of which has computed its columns of some rows. On one board they return at once.
#pragma once

#include <cstdint>

#include "engine/boards/exchange.h"
#include "engine/forward/pass.h"
#include "engine/team/team.h"

namespace pinion {

// Completes rows [count][columns.count] on all boards. All workers call it after a barrier. Ends with a barrier.
void gather(Worker& worker, const Pass& pass, float* rows, int64_t count, const Division& columns);

// Completes the logits of `count` rows and their panel_best, on board 0 only. No barrier: only the caller of the pass
// reads them. If Segment::candidates is k > 0, the other boards send their k largest logits of such rows in one
// exchange, and board 0 sets their other logits to -inf: the top k of all logits are among the boards' top k.
void gather_logits(const Worker& worker, const Pass& pass, int64_t count);

// Size of Activations::gathered, the buffer of gather(), for passes of `tokens`. 0 on one board.
int64_t gather_floats(const Model& model, int64_t tokens);

void make_candidate_buffers(const Model& model, int64_t tokens, ScratchSizer* sizer, CandidateBuffers* out);

}  // namespace pinion
