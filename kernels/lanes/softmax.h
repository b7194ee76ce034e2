// What attention over floats and over codes have in common: which positions a chunk's rows see, and their largest
// score.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/lanes/math.h"

namespace pinion {
namespace {

// The positions that any of the rows sees, in whole blocks.
inline AttentionSpan seen_by_any(const AttentionSpan* spans, int64_t rows) {
  AttentionSpan seen = spans[0];
  for (int64_t r = 1; r < rows; ++r) {
    seen.begin = spans[r].begin < seen.begin ? spans[r].begin : seen.begin;
    seen.end = spans[r].end > seen.end ? spans[r].end : seen.end;
  }
  return {seen.begin / kKeyBlock * kKeyBlock, static_cast<int32_t>(round_up(seen.end, kKeyBlock))};
}

// The largest of a row's scores, which are capped and, outside the span, minus infinity from now on. [from, to) are
// whole blocks around the span.
inline float mask_row(float* scores, AttentionSpan span, int64_t from, int64_t to, float cap) {
  if (cap != 0.0f) {
    for (int64_t i = from; i < to; i += kLanes) soft_cap(Lanes::load(scores + i), cap).store(scores + i);
  }
  for (int64_t i = from; i < span.begin; ++i) scores[i] = -__builtin_inff();
  for (int64_t i = span.end; i < to; ++i) scores[i] = -__builtin_inff();
  Lanes largest = Lanes::broadcast(-__builtin_inff());
  for (int64_t i = from; i < to; i += kLanes) largest = Lanes::max(Lanes::load(scores + i), largest);
  return fold(largest, Lanes::max);
}

}  // namespace
}  // namespace pinion
