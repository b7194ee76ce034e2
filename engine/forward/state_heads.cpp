#include "engine/forward/state_heads.h"

#include <algorithm>

#include "kernels/base/math.h"

namespace pinion {
namespace {

void mix_head(const Pass& p, RecurrentScratch& s, const Layer& layer, HeadRows rows, const Segment& segment,
              int64_t head, StateRows* own) {
  const int64_t slot = layer.state.slot;
  RecurrentState& state = *segment.state;
  float* sums = state.head(slot, head);
  write_drafts(p.kernels, state, slot, head, own->v.data());
  const StateWrites writes = {own->k.data(), own->v.data(), own->decay.data(), own->beta.data()};
  for (int64_t first = 0; first < segment.sure(); first += kStateTokens) {
    const int64_t count = std::min(kStateTokens, segment.sure() - first);
    rows(p, s, layer, segment, head, first, count, writes, sums, own);
  }
  if (segment.drafts == 0) return;
  std::copy_n(sums, state.head_floats(), own->trial.data());
  rows(p, s, layer, segment, head, segment.sure(), segment.drafts, state.draft_writes(slot, head), own->trial.data(),
       own);
}

}  // namespace

void mix_heads(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer, HeadRows rows) {
  const int64_t heads = p.model.config.recurrence.value_heads;
  worker.for_each(std::ssize(p.segments) * heads, [&](int64_t task) {
    StateRows* own = &s.workers[static_cast<size_t>(worker.index)];
    mix_head(p, s, layer, rows, p.segments[static_cast<size_t>(task / heads)], task % heads, own);
  });
}

// Beyond 20 it is x to within a float.
double softplus(double x) { return x <= 20.0 ? portable_log(1.0 + portable_exp(x)) : x; }  // of NaN: NaN

float decay_of(float rate, double step) { return static_cast<float>(portable_exp(-static_cast<double>(rate) * step)); }

}  // namespace pinion
