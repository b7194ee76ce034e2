#include "engine/forward/delta.h"

#include <algorithm>
#include <cmath>

#include "engine/forward/gather.h"
#include "kernels/math.h"

namespace pinion {
namespace {

constexpr float kUnitNormEps = 1e-6f;  // added to a sum of squares; no field of config.json says it

// The convolution's input of a segment's token, or of one of the taps - 1 before it. A single row's is projected to
// where the state keeps it.
float* conv_input(const Pass& p, DeltaScratch& s, const Layer& layer, const Segment& segment, int64_t token) {
  if (token < 0 || p.rows == 1) return segment.state->input(layer.slot, segment.position + token);
  return s.qkv.data() + (segment.row + token) * p.model.config.delta.channels();
}

// Channels [first, first + count) of a token after the convolution.
void convolve(const Pass& p, DeltaScratch& s, const Layer& layer, const Segment& segment, int64_t token, int64_t first,
              int64_t count, float* out) {
  const GatedDelta& d = p.model.config.delta;
  const float* inputs[kMaxConvTaps];
  for (int64_t t = 0; t < d.taps; ++t) inputs[t] = conv_input(p, s, layer, segment, token - d.taps + 1 + t) + first;
  p.kernels.conv_silu(inputs, layer.delta.conv + first, d.channels(), d.taps, count, out);
}

float sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + portable_exp(-static_cast<double>(x)))); }

// exp(-rate * log(1 + exp(x))). Beyond 20 the logarithm is x to within a float.
float decay_of(float rate, float x) {
  const double wide = x;
  const double step = wide <= 20.0 ? portable_log(1.0 + portable_exp(wide)) : wide;  // of NaN: NaN
  return static_cast<float>(portable_exp(-static_cast<double>(rate) * step));
}

// A segment's tokens [first, first + count) through a value head's state: the convolution, the norms of q and k, the
// rule and the output's norm. What they write goes through `writes`.
void head_rows(const Pass& p, DeltaScratch& s, const Layer& layer, const Segment& segment, int64_t head, int64_t first,
               int64_t count, const DeltaWrites& writes, float* state, DeltaRows* own) {
  const ModelConfig& c = p.model.config;
  const GatedDelta& d = c.delta;
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
    writes.decay[r] = decay_of(layer.delta.rate[head], s.a[gate] + layer.delta.step[head]);
  }
  p.kernels.delta_rule({count, d.key_dim, d.value_dim, own->q.data(), writes.keys, writes.values, writes.decay,
                        writes.beta, own->v.data()},
                       state);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t at = (segment.row + first + r) * d.value_width() + head * d.value_dim;
    float* out = own->v.data() + r * d.value_dim;
    p.kernels.rms_norm(out, layer.delta.norm, d.value_dim, c.norm_eps, out);
    p.kernels.silu_mul(s.z.data() + at, out, d.value_dim, p.activations.attended.data() + at);
  }
}

// All of a segment's tokens through a value head. The last pass's drafts that were accepted come first; this pass's go
// through a copy of the state.
void head_segment(const Pass& p, DeltaScratch& s, const Layer& layer, const Segment& segment, int64_t head,
                  DeltaRows* own) {
  DeltaState& state = *segment.state;
  float* sums = state.head(layer.slot, head);
  write_drafts(p.kernels, state, layer.slot, head, own->v.data());
  const DeltaWrites writes = {own->k.data(), own->v.data(), own->decay.data(), own->beta.data()};
  for (int64_t first = 0; first < segment.sure(); first += kDeltaTokens) {
    const int64_t count = std::min(kDeltaTokens, segment.sure() - first);
    head_rows(p, s, layer, segment, head, first, count, writes, sums, own);
  }
  if (segment.drafts == 0) return;
  std::copy_n(sums, state.head_floats(), own->trial.data());
  head_rows(p, s, layer, segment, head, segment.sure(), segment.drafts, state.draft_writes(layer.slot, head),
            own->trial.data(), own);
}

// The inputs of the last pass's accepted drafts, to where convolutions look for them.
void take_draft_inputs(Worker& worker, const Pass& p, const Layer& layer) {
  const int64_t before = p.model.config.delta.taps - 1;
  if (std::ranges::all_of(p.segments, [](const Segment& one) { return one.state->drafts.held == 0; })) return;
  worker.for_each(std::ssize(p.segments) * before, [&](int64_t task) {
    const Segment& segment = p.segments[static_cast<size_t>(task / before)];
    write_draft_input(*segment.state, layer.slot, segment.position, task % before);
  });
}

// The inputs that the next pass's convolutions begin with, and those of drafts. The places may be those that this
// pass's have read.
void keep_inputs(Worker& worker, const Pass& p, DeltaScratch& s, const Layer& layer) {
  if (p.rows == 1) return;
  const GatedDelta& d = p.model.config.delta;
  worker.for_each(p.rows, [&](int64_t row) {
    const Segment& segment = p.segment_of(row);
    const int64_t token = row - segment.row, draft = token - segment.sure();
    if (draft < 1 - d.taps) return;
    std::copy_n(conv_input(p, s, layer, segment, token), d.channels(),
                draft < 0 ? segment.state->input(layer.slot, segment.position + token)
                          : segment.state->draft_input(layer.slot, draft));
  });
}

// What the heads make of x: the input of o.
void attend_states(Worker& worker, const Pass& p, DeltaScratch& s, const Layer& layer, const Input& x) {
  const GatedDelta& d = p.model.config.delta;
  const DeltaLayer& l = layer.delta;
  take_draft_inputs(worker, p, layer);
  project(begin_stage(worker, p, Stage::qkv), x,
          {{&l.qkv, conv_input(p, s, layer, p.segments.front(), 0)},
           {&l.z, s.z.data()},
           {&l.b, s.b.data()},
           {&l.a, s.a.data()}});

  begin_stage(worker, p, Stage::attention);
  worker.for_each(std::ssize(p.segments) * d.value_heads, [&](int64_t task) {
    DeltaRows* own = &s.workers[static_cast<size_t>(worker.index)];
    const Segment& segment = p.segments[static_cast<size_t>(task / d.value_heads)];
    head_segment(p, s, layer, segment, task % d.value_heads, own);
  });
  worker.barrier();
  keep_inputs(worker, p, s, layer);
}

}  // namespace

Input delta_net(Worker& worker, const Pass& p, DeltaScratch& s, const Layer& layer, const Input& x) {
  const GatedDelta& d = p.model.config.delta;
  const Shares shares = p.model.shares();
  // Of several boards the first has the states, and all that reads them.
  if (shares.rank == 0) attend_states(worker, p, s, layer, x);
  gather(worker, p, p.activations.attended.data(), p.rows, {d.value_width(), d.value_width()});
  return prepare(
      begin_stage(worker, p, Stage::o_input), p.rows, d.value_width(), {&layer.o},
      [&](int64_t first, int64_t, float*) { return p.activations.attended.data() + first * d.value_width(); });
}

void make_delta_scratch(const ModelConfig& config, int64_t tokens, int32_t workers, ScratchSizer* sizer,
                        DeltaScratch* out) {
  const GatedDelta& d = config.delta;
  if (attention_layers(config) == config.layers) return;
  DeltaScratch& s = *out;
  sizer->make(&s.qkv, tokens * d.channels());
  sizer->make(&s.z, tokens * d.value_width());
  sizer->make(&s.b, tokens * d.value_heads);
  sizer->make(&s.a, tokens * d.value_heads);
  // x / |x| is RMSNorm(x) / sqrt(n); queries are scaled by that once more.
  const float root = std::sqrt(static_cast<float>(d.key_dim));
  s.key_scale.assign(static_cast<size_t>(d.key_dim), 1.0f / root);
  s.query_scale.assign(static_cast<size_t>(d.key_dim), 1.0f / static_cast<float>(d.key_dim));
  s.workers.resize(static_cast<size_t>(workers));
  for (DeltaRows& own : s.workers) {
    sizer->make(&own.q, kDeltaTokens * d.key_dim);
    sizer->make(&own.k, kDeltaTokens * d.key_dim);
    sizer->make(&own.v, kDeltaTokens * d.value_dim);
    sizer->make(&own.decay, kDeltaTokens);
    sizer->make(&own.beta, kDeltaTokens);
    sizer->make(&own.trial, delta_state_of(config).head_floats());
  }
}

}  // namespace pinion
