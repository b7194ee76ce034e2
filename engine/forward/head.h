// The output head in int8 by halves (Format::w8h): a token that is drawn among a few costs half of the head's bytes.
#pragma once

#include "engine/forward/pass.h"

namespace pinion {

// Rows of a pass that are ranked at most; the others are computed whole.
constexpr int64_t kMaxRankedRows = 64;

// The logits of the rows with logits, and their panel_best, with the bits of a head that is read whole. If
// Segment::candidates of a row is k > 0, only the largest are computed, at least k of them; the others are -inf. Ends
// with a barrier.
void project_head(const Multiplier& m, const Pass& pass, const Input& in, const Epilogue& after);

}  // namespace pinion
