// A low-rank product of what attention reads, with which its branch is averaged.
#pragma once

#include <cstdint>

#include "engine/forward/pass.h"

namespace pinion {

// After the projection of what is narrow, which shares attention's input: the other one, and its norm. x is not changed
// yet.
void finish_laurel(Worker& worker, const Pass& pass, const Layer& layer, int64_t index);

// x, to which attention has added its branch, becomes its sum with what Laurel made, over sqrt(2).
void average_with_laurel(Worker& worker, const Pass& pass);

}  // namespace pinion
