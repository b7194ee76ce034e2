#include "engine/forward/mamba.h"

#include <algorithm>

#include "engine/forward/convolution.h"
#include "engine/forward/state_heads.h"

namespace pinion {
namespace {

constexpr int64_t kRunChannels = 64;  // of a task

// Keys and queries are many heads': all channels are convolved before the heads begin.
void convolve_all(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  const int64_t width = p.model.config.recurrence.channels(), runs = (width + kRunChannels - 1) / kRunChannels;
  worker.for_each(p.rows * runs, [&](int64_t task) {
    const int64_t row = task / runs, first = task % runs * kRunChannels;
    const Segment& segment = p.segment_of(row);
    convolve(p, s, layer, segment, row - segment.row, first, std::min(kRunChannels, width - first),
             s.convolved.data() + row * width + first);
  });
  worker.barrier();
}

// See HeadRows.
void head_rows(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t head,
               int64_t first, int64_t count, const StateWrites& writes, float* state, StateRows* own) {
  const Recurrence& d = p.model.config.recurrence;
  const int64_t group = head / (d.value_heads / d.key_heads);
  const float* convolved = s.convolved.data() + (segment.row + first) * d.channels();
  for (int64_t r = 0; r < count; ++r) {
    const float* row = convolved + r * d.channels();
    const float* key = row + d.value_width() + group * d.key_dim;
    std::copy_n(row + head * d.value_dim, d.value_dim, writes.values + r * d.value_dim);
    std::copy_n(key, d.key_dim, writes.keys + r * d.key_dim);
    std::copy_n(key + d.key_width(), d.key_dim, own->q.data() + r * d.key_dim);
    const float a = s.a[static_cast<size_t>((segment.row + first + r) * d.value_heads + head)];
    const double step = softplus(a + layer.state.step[head]);
    writes.beta[r] = static_cast<float>(step);
    writes.decay[r] = decay_of(layer.state.rate[head], step);
  }
  p.kernels.advance_state({count, d.key_dim, d.value_dim, own->q.data(), writes.keys, writes.values, writes.decay,
                           writes.beta, own->v.data(), false},
                          state);
  for (int64_t r = 0; r < count; ++r) {
    const float* value = convolved + r * d.channels() + head * d.value_dim;
    float* out = own->v.data() + r * d.value_dim;
    float* gate = s.z.data() + (segment.row + first + r) * d.value_width() + head * d.value_dim;
    for (int64_t i = 0; i < d.value_dim; ++i) out[i] += layer.state.skip[head] * value[i];
    p.kernels.silu_mul(gate, out, d.value_dim, gate);
  }
}

}  // namespace

void mix_by_mamba(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  convolve_all(worker, p, s, layer);
  mix_heads(worker, p, s, layer, head_rows);
}

void norm_groups(const Pass& p, const Layer& layer, const float* x, float* out) {
  const Recurrence& d = p.model.config.recurrence;
  const int64_t width = d.value_width() / d.norm_groups;
  for (int64_t at = 0; at < d.value_width(); at += width) {
    p.kernels.rms_norm(x + at, layer.state.norm + at, width, p.model.config.norm_eps, out + at);
  }
}

}  // namespace pinion
