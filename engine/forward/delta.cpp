#include "engine/forward/delta.h"

#include "engine/forward/convolution.h"
#include "engine/forward/state_heads.h"
#include "kernels/base/math.h"

namespace pinion {
namespace {

constexpr float kUnitNormEps = 1e-6f;  // added to a sum of squares; no field of config.json says it

float sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + portable_exp(-static_cast<double>(x)))); }

// A segment's tokens [first, first + count) through a value head's state: the convolution, the norms of q and k, the
// rule and the output's norm. What they write goes through `writes`.
void head_rows(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t head,
               int64_t first, int64_t count, const StateWrites& writes, float* state, StateRows* own) {
  const ModelConfig& c = p.model.config;
  const Recurrence& d = c.recurrence;
  const int64_t key_head = head / (d.value_heads / d.key_heads);
  const float eps = kUnitNormEps / static_cast<float>(d.key_dim);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t token = first + r;
    float* q = own->q.data() + r * d.key_dim;
    float* k = writes.keys + r * d.key_dim;
    convolve(p, s, layer, segment, token, key_head * d.key_dim, d.key_dim, q);
    convolve(p, s, layer, segment, token, d.key_width() + key_head * d.key_dim, d.key_dim, k);
    convolve(p, s, layer, segment, token, 2 * d.key_width() + head * d.value_dim, d.value_dim,
             writes.values + r * d.value_dim);
    p.kernels.rms_norm(q, s.query_scale.data(), d.key_dim, eps, q);
    p.kernels.rms_norm(k, s.key_scale.data(), d.key_dim, eps, k);
    const auto gate = static_cast<size_t>((segment.row + token) * d.value_heads + head);
    writes.beta[r] = sigmoid(s.b[gate]);
    writes.decay[r] = decay_of(layer.state.rate[head], softplus(s.a[gate] + layer.state.step[head]));
  }
  p.kernels.advance_state({count, d.key_dim, d.value_dim, own->q.data(), writes.keys, writes.values, writes.decay,
                           writes.beta, own->v.data()},
                          state);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t at = (segment.row + first + r) * d.value_width() + head * d.value_dim;
    float* out = own->v.data() + r * d.value_dim;
    p.kernels.rms_norm(out, layer.state.norm, d.value_dim, c.norm_eps, out);
    p.kernels.silu_mul(s.z.data() + at, out, d.value_dim, s.z.data() + at);
  }
}

}  // namespace

void mix_by_delta(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  mix_heads(worker, p, s, layer, head_rows);
}

}  // namespace pinion
