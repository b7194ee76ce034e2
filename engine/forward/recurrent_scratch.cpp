#include "engine/forward/recurrent_scratch.h"

#include <cmath>

#include "engine/forward/recurrent_state.h"

namespace pinion {

void make_recurrent_scratch(const ModelConfig& config, int64_t tokens, int32_t workers, ScratchSizer* sizer,
                            RecurrentScratch* out) {
  const Recurrence& d = config.recurrence;
  if (recurrent_layers(config) == 0) return;
  RecurrentScratch& s = *out;
  sizer->make(&s.qkv, tokens * d.channels());
  sizer->make(&s.z, tokens * d.value_width());
  sizer->make(&s.b, tokens * d.writes());
  if (d.kind == RecurrenceKind::mamba2) sizer->make(&s.convolved, tokens * d.channels());
  if (!d.has_heads()) return;
  sizer->make(&s.a, tokens * d.value_heads);
  // x / |x| is RMSNorm(x) / sqrt(n); queries are scaled by that once more.
  const float root = std::sqrt(static_cast<float>(d.key_dim));
  s.key_scale.assign(static_cast<size_t>(d.key_dim), 1.0f / root);
  s.query_scale.assign(static_cast<size_t>(d.key_dim), 1.0f / static_cast<float>(d.key_dim));
  s.workers.resize(static_cast<size_t>(workers));
  for (StateRows& own : s.workers) {
    sizer->make(&own.q, kStateTokens * d.key_dim);
    sizer->make(&own.k, kStateTokens * d.key_dim);
    sizer->make(&own.v, kStateTokens * d.value_dim);
    sizer->make(&own.decay, kStateTokens);
    sizer->make(&own.beta, kStateTokens);
    sizer->make(&own.trial, recurrent_state_of(config).head_floats());
  }
}

}  // namespace pinion
