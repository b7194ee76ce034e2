#include "engine/forward/recurrent_layers.h"

#include <algorithm>
#include <cmath>

#include "engine/forward/low_rank.h"
#include "engine/forward/mlp.h"
#include "kernels/base/math.h"

namespace pinion {
namespace {

constexpr int64_t kTaskChannels = 64;  // channels that one task convolves

// e^(-rate * step)
float decay_of(float rate, double step) { return static_cast<float>(portable_exp(-static_cast<double>(rate) * step)); }

// --- The causal convolution over time

// The convolution's input of a segment's token, or (token < 0) of one of the taps - 1 tokens before the segment. Inputs
// of this pass are in the scratch, earlier ones in the state. The input of a single row is projected into the state.
float* conv_input(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t token) {
  if (token < 0 || p.rows == 1) return segment.state->input(layer.state_slot, segment.position + token);
  return s.qkv.data() + (segment.row + token) * p.model.config.recurrence.channels();
}

// out = channels [first, first + count) of a token after the convolution.
void convolve(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t token,
              int64_t first, int64_t count, float* out) {
  const Recurrence& r = p.model.config.recurrence;
  const float* inputs[kMaxConvTaps];
  for (int64_t t = 0; t < r.taps; ++t) inputs[t] = conv_input(p, s, layer, segment, token - r.taps + 1 + t) + first;
  const auto [weight, bias] = layer[VectorRole::state_conv];
  const Convolution channels = {.weight = weight + first,
                                .bias = bias ? bias + first : nullptr,
                                .stride = r.channels(),
                                .taps = r.taps,
                                .activates = !r.is_linear_conv()};
  p.kernels.convolve(inputs, channels, count, out);
}

// Copies the convolution's inputs of the drafts accepted in the last pass to the state.
void apply_draft_inputs(Worker& worker, const Pass& p, const Layer& layer) {
  const int64_t before = p.model.config.recurrence.taps - 1;
  if (std::ranges::all_of(p.segments, [](const Segment& s) { return s.state->drafts.held == 0; })) return;
  worker.for_each(std::ssize(p.segments) * before, [&](int64_t task) {
    const Segment& segment = p.segments[task / before];
    apply_draft_input(*segment.state, layer.state_slot, segment.position, task % before);
  });
}

// Saves the convolution's inputs for the next pass, and of drafts, over inputs of this pass: after a barrier.
void save_inputs(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  if (p.rows == 1) return;
  const Recurrence& r = p.model.config.recurrence;
  worker.for_each(p.rows, [&](int64_t row) {
    const Segment& segment = p.segment_of(row);
    const int64_t token = row - segment.row, draft = token - segment.committed();
    if (draft < 1 - r.taps) return;
    std::copy_n(conv_input(p, s, layer, segment, token), r.channels(),
                draft < 0 ? segment.state->input(layer.state_slot, segment.position + token)
                          : segment.state->draft_input(layer.state_slot, draft));
  });
}

// --- States of heads

// Advances the state of a value head by a segment's tokens [first, first + count), stores their writes to the state in
// `writes`, and puts their gated outputs into scratch.z.
using AdvanceHead = void (*)(const Pass& pass, RecurrentScratch& scratch, const Layer& layer, const Segment& segment,
                             int64_t head, int64_t first, int64_t count, const StateWrites& writes, float* state,
                             StateRows* rows);

// Processes a segment in one head: applies the last pass's accepted drafts; this pass's drafts advance a copy.
void mix_head(const Pass& p, RecurrentScratch& s, const Layer& layer, AdvanceHead advance, const Segment& segment,
              int64_t head, StateRows* rows) {
  const int64_t slot = layer.state_slot;
  RecurrentState& state = *segment.state;
  float* sums = state.head(slot, head);
  apply_drafts_to_head(p.kernels, state, layer, head, rows->v.data());
  const StateWrites writes = {rows->k.data(), rows->v.data(), rows->decay.data(), rows->beta.data()};
  for (int64_t first = 0; first < segment.committed(); first += kStateTokens) {
    const int64_t count = std::min(kStateTokens, segment.committed() - first);
    advance(p, s, layer, segment, head, first, count, writes, sums, rows);
  }
  if (segment.drafts == 0) return;
  std::copy_n(sums, state.shape.head_floats(), rows->trial.data());
  advance(p, s, layer, segment, head, segment.committed(), segment.drafts, state.draft_writes(slot, head),
          rows->trial.data(), rows);
}

// Gated DeltaNet: convolution, norms of q and k, the delta rule, the output's norm and gate.
void advance_delta(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t head,
                   int64_t first, int64_t count, const StateWrites& writes, float* state, StateRows* rows) {
  const Recurrence& d = p.model.config.recurrence;
  const int64_t key_head = d.key_head(head);
  constexpr float kUnitNormEps = 1e-6f;  // added to the sum of squares; a constant in Hugging Face's transformers
  const float eps = kUnitNormEps / static_cast<float>(d.key_dim);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t token = first + r;
    float* q = rows->q.data() + r * d.key_dim;
    float* k = writes.keys + r * d.key_dim;
    convolve(p, s, layer, segment, token, key_head * d.key_dim, d.key_dim, q);
    convolve(p, s, layer, segment, token, d.key_width() + key_head * d.key_dim, d.key_dim, k);
    convolve(p, s, layer, segment, token, 2 * d.key_width() + head * d.value_dim, d.value_dim,
             writes.values + r * d.value_dim);
    p.kernels.rms_norm(q, s.query_scale.data(), d.key_dim, eps, q);
    p.kernels.rms_norm(k, s.key_scale.data(), d.key_dim, eps, k);
    const int64_t gate = (segment.row + token) * d.value_heads + head;
    const float rate = layer[VectorRole::state_rate].weight[head], *a = s.a.data() + gate * d.decays();
    const float* step = layer[VectorRole::state_step].weight + head * d.decays();
    writes.beta[r] = d.write_scale * sigmoid(s.b[gate]);
    if (d.key_decays) {
      float* decay = writes.decay + r * d.key_dim;
      for (int64_t i = 0; i < d.key_dim; ++i) decay[i] = a[i] + step[i];
      p.kernels.decay(decay, d.key_dim, rate, d.decay_bound, decay);
    } else {
      writes.decay[r] = decay_of(rate, softplus(*a + *step));
    }
  }
  p.kernels.advance_state({count, d.key_dim, d.value_dim, rows->q.data(), writes.keys, writes.values, writes.decay,
                           writes.beta, rows->v.data(), true, nullptr, d.key_decays},
                          state);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t at = (segment.row + first + r) * d.value_width() + head * d.value_dim;
    float* out = rows->v.data() + r * d.value_dim;
    p.kernels.rms_norm(out, layer[VectorRole::state_norm].weight, d.value_dim, d.norm_eps, out);
    (d.key_decays ? p.kernels.sigmoid_mul : p.kernels.silu_mul)(s.z.data() + at, out, d.value_dim, s.z.data() + at);
  }
}

// Keys or queries of Mamba 1, normed if the family has these norms.
void copy_normed(const Pass& p, const Vector& norm, const float* x, float* out) {
  const Recurrence& d = p.model.config.recurrence;
  if (!norm.weight) return void(std::copy_n(x, d.key_dim, out));
  p.kernels.rms_norm(x, norm.weight, d.key_dim, d.norm_eps, out);
}

// Mamba: the state decays and adds the token's value, by the token's step size. A skip connection and a gate follow.
void advance_mamba(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t head,
                   int64_t first, int64_t count, const StateWrites& writes, float* state, StateRows* rows) {
  const Recurrence& d = p.model.config.recurrence;
  const int64_t group = d.key_head(head), skips = d.by_channel() ? d.value_dim : 1;
  const float* skip = layer[VectorRole::state_skip].weight + head * skips;
  float* convolved = s.convolved.data() + (segment.row + first) * d.channels();
  for (int64_t r = 0; r < count; ++r) {
    const float* row = convolved + r * d.channels();
    const int64_t at = segment.row + first + r;
    std::copy_n(row + head * d.value_dim, d.value_dim, writes.values + r * d.value_dim);
    if (d.by_channel()) {
      copy_normed(p, layer[VectorRole::state_k_norm], s.b.data() + at * 2 * d.key_dim, writes.keys + r * d.key_dim);
      copy_normed(p, layer[VectorRole::state_q_norm], s.b.data() + (at * 2 + 1) * d.key_dim,
                  rows->q.data() + r * d.key_dim);
      std::copy_n(s.a.data() + at * d.value_width() + head * d.value_dim, d.value_dim, writes.decay + r * d.value_dim);
      continue;
    }
    const float* key = row + d.value_width() + group * d.key_dim;
    std::copy_n(key, d.key_dim, writes.keys + r * d.key_dim);
    std::copy_n(key + d.key_width(), d.key_dim, rows->q.data() + r * d.key_dim);
    const double step = softplus(s.a[at * d.value_heads + head] + layer[VectorRole::state_step].weight[head]);
    writes.beta[r] = static_cast<float>(step);
    writes.decay[r] = decay_of(layer[VectorRole::state_rate].weight[head], step);
  }
  p.kernels.advance_state({count, d.key_dim, d.value_dim, rows->q.data(), writes.keys, writes.values, writes.decay,
                           writes.beta, rows->v.data(), false, rates_of(d, layer, head)},
                          state);
  for (int64_t r = 0; r < count; ++r) {
    float* value = convolved + r * d.channels() + head * d.value_dim;
    float* out = rows->v.data() + r * d.value_dim;
    float* gate = s.z.data() + (segment.row + first + r) * d.value_width() + head * d.value_dim;
    for (int64_t i = 0; i < d.value_dim; ++i) out[i] += skip[i % skips] * value[i];
    if (d.norm_before_gate) {
      std::copy_n(out, d.value_dim, value);  // norm_and_gate() reads all heads
    } else {
      p.kernels.silu_mul(gate, out, d.value_dim, gate);
    }
  }
}

// out = x W + bias for a block of channels, whose matrix is [n inputs][n].
void multiply_block(const Vector& matrix, const Vector& bias, int64_t block, int64_t n, const float* x, float* out) {
  std::copy_n(bias.weight + block * n, n, out);
  for (int64_t i = 0; i < n; ++i) {
    const float* row = matrix.weight + (block * n + i) * n;
    for (int64_t j = 0; j < n; ++j) out[j] += x[i] * row[j];
  }
}

// RG-LRU: a block of channels decays by exp(-8 rate sigmoid(gate)), with the paper's constant; values are scaled so
// that the size of the sums does not depend on the decay. The first token's value is not.
void advance_lru(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t head,
                 int64_t first, int64_t count, const StateWrites& writes, float* state, StateRows* rows) {
  constexpr double kLargestPower = -8.0;
  const int64_t n = p.model.config.recurrence.value_dim;
  const float* rates = layer[VectorRole::state_rate].weight + head * n;
  float *out = rows->v.data(), *gate = rows->q.data();
  for (int64_t r = 0; r < count; ++r) {
    float *x = writes.values + r * n, *decay = writes.decay + r * n;
    convolve(p, s, layer, segment, first + r, head * n, n, x);
    multiply_block(layer[VectorRole::state_gate], layer[VectorRole::state_gate_bias], head, n, x, decay);
    multiply_block(layer[VectorRole::state_in_gate], layer[VectorRole::state_in_gate_bias], head, n, x, gate);
    p.kernels.sigmoid_mul(gate, x, n, x);
    for (int64_t i = 0; i < n; ++i) {
      const double power = kLargestPower * double{rates[i]} * double{sigmoid(decay[i])}, kept = portable_exp(power);
      decay[i] = static_cast<float>(kept);
      if (segment.position + first + r > 0) x[i] *= static_cast<float>(std::sqrt(1.0 - kept * kept));
    }
  }
  advance_channels(count, n, writes, state, out);
  for (int64_t r = 0; r < count; ++r) {
    float* z = s.z.data() + (segment.row + first + r) * p.model.config.recurrence.value_width() + head * n;
    gate_row(p, z, out + r * n, n, z);
  }
}

// Convolves all channels before the heads are processed, since several heads share keys and queries.
void convolve_all(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  const int64_t width = p.model.config.recurrence.channels(), runs = (width + kTaskChannels - 1) / kTaskChannels;
  worker.for_each(p.rows * runs, [&](int64_t task) {
    const int64_t row = task / runs, first = task % runs * kTaskChannels;
    const Segment& segment = p.segment_of(row);
    convolve(p, s, layer, segment, row - segment.row, first, std::min(kTaskChannels, width - first),
             s.convolved.data() + row * width + first);
  });
  worker.barrier();
}

// --- The short convolution

// Processes all tokens of a segment in the channels [first, first + count): gate, convolution, second gate.
void mix_channels(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t first,
                  int64_t count) {
  const int64_t width = p.model.config.recurrence.channels();
  const int64_t begin = segment.row * width + first;
  for (int64_t token = 0; token < segment.size(); ++token) {
    float* in = conv_input(p, s, layer, segment, token) + first;
    const float* gate = s.b.data() + begin + token * width;
    for (int64_t i = 0; i < count; ++i) in[i] *= gate[i];
  }
  for (int64_t token = 0; token < segment.size(); ++token) {
    float convolved[kTaskChannels];
    float* gate = s.z.data() + begin + token * width;
    convolve(p, s, layer, segment, token, first, count, convolved);
    for (int64_t i = 0; i < count; ++i) gate[i] *= convolved[i];
  }
}

void mix_by_short_conv(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  const int64_t width = p.model.config.recurrence.channels(), runs = (width + kTaskChannels - 1) / kTaskChannels;
  worker.for_each(std::ssize(p.segments) * runs, [&](int64_t task) {
    const int64_t first = task % runs * kTaskChannels;
    mix_channels(p, s, layer, p.segments[task / runs], first, std::min(kTaskChannels, width - first));
  });
}

// --- A layer

// Mamba 1: the convolved channels have keys, queries and, through a narrow projection, the steps of all channels.
void project_keys(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer, int64_t index) {
  const Recurrence& d = p.model.config.recurrence;
  const int64_t width = d.channels();
  const Input x = prepare(begin_stage(worker, p, Stage::state_x), p.rows, width, forms_of(layer, {Stage::state_x}),
                          [&](int64_t first, int64_t, float*) { return s.convolved.data() + first * width; });
  trace_input(worker, p.trace, {index, Stage::state_x}, x);
  project(begin_stage(worker, p, Stage::state_x), x,
          {{&layer[MatrixRole::state_narrow], s.narrow.data()}, {&layer[MatrixRole::state_keys], s.b.data()}});
}

// Steps, or decays and gates, from narrow vectors.
void widen(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer, int64_t index) {
  const Recurrence& d = p.model.config.recurrence;
  const auto from = [&](Stage stage, const std::vector<float>& narrow, const float* norm) {
    return narrow_input(worker, p, stage, narrow, d.step_rank, norm, d.norm_eps, layer, index);
  };
  const Input steps = from(Stage::state_dt, s.narrow, layer[VectorRole::state_dt_norm].weight);
  project(begin_stage(worker, p, Stage::state_dt), steps, {{&layer[MatrixRole::state_dt], s.a.data()}});
  if (d.key_decays) {
    const Input gates = from(Stage::state_x, s.z_narrow, nullptr);
    project(begin_stage(worker, p, Stage::state_x), gates, {{&layer[MatrixRole::state_z_wide], s.z.data()}});
  }
  begin_stage(worker, p, Stage::attention);
}

void mix(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer, int64_t index) {
  const Recurrence& d = p.model.config.recurrence;
  if (d.kind == RecurrenceKind::short_conv) return mix_by_short_conv(worker, p, s, layer);
  if (d.is_mamba()) convolve_all(worker, p, s, layer);
  if (d.kind == RecurrenceKind::mamba1) project_keys(worker, p, s, layer, index);
  if (d.step_rank > 0) widen(worker, p, s, layer, index);
  const AdvanceHead advance = d.is_mamba()                       ? advance_mamba
                              : d.kind == RecurrenceKind::rg_lru ? advance_lru
                                                                 : advance_delta;
  worker.for_each(std::ssize(p.segments) * d.value_heads, [&](int64_t task) {
    const Segment& segment = p.segments[task / d.value_heads];
    mix_head(p, s, layer, advance, segment, task % d.value_heads, &s.workers[worker.index]);
  });
}

// RMSNorm of each group of a row's columns. out may be x.
void norm_groups(const Pass& p, const Layer& layer, const float* x, float* out) {
  const Recurrence& d = p.model.config.recurrence;
  const int64_t width = d.value_width() / d.norm_groups;
  for (int64_t at = 0; at < d.value_width(); at += width) {
    p.kernels.rms_norm(x + at, layer[VectorRole::state_norm].weight + at, width, d.norm_eps, out + at);
  }
}

// z = norm(output) silu(z). The output is in the place of the convolved values.
void norm_and_gate(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  const Recurrence& d = p.model.config.recurrence;
  worker.for_each(p.rows, [&](int64_t row) {
    float *out = s.convolved.data() + row * d.channels(), *z = s.z.data() + row * d.value_width();
    norm_groups(p, layer, out, out);
    p.kernels.silu_mul(z, out, d.value_width(), z);
  });
  worker.barrier();
}

}  // namespace

void recur(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer, const Input& x, int64_t index) {
  const Recurrence& d = p.model.config.recurrence;
  if (p.model.is_on_first_board()) {  // the first board has all states
    apply_draft_inputs(worker, p, layer);
    float* qkv = conv_input(p, s, layer, p.segments.front(), 0);
    project(begin_stage(worker, p, Stage::qkv), x,
            {{&layer[MatrixRole::state_qkv], qkv, nullptr, d.channels()},
             {&layer[MatrixRole::state_k], qkv + d.key_width(), nullptr, d.channels()},
             {&layer[MatrixRole::state_v], qkv + 2 * d.key_width(), nullptr, d.channels()},
             {&layer[MatrixRole::state_z], s.z.data()},
             {&layer[MatrixRole::state_b], s.b.data()},
             {&layer[MatrixRole::state_a], s.a.data()},
             {&layer[MatrixRole::state_a_narrow], s.narrow.data()},
             {&layer[MatrixRole::state_z_narrow], s.z_narrow.data()}});
    begin_stage(worker, p, Stage::attention);
    mix(worker, p, s, layer, index);
    worker.barrier();
    if (d.norm_before_gate) norm_and_gate(worker, p, s, layer);
    save_inputs(worker, p, s, layer);
  }
  gather(worker, p, s.z.data(), p.rows, {d.value_width(), d.value_width()});
}

Input recurrent_output(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  const Linear& out = layer[MatrixRole::state_out];
  const int64_t width = out.weight.k;
  const Multiplier m = begin_stage(worker, p, Stage::o_input);
  return prepare(m, p.rows, width, forms_of(out), [&](int64_t first, int64_t count, float* rows) -> const float* {
    const float* z = s.z.data() + first * width;
    const Recurrence& d = p.model.config.recurrence;
    if (d.norm_groups == 0 || d.norm_before_gate) return z;
    for (int64_t r = 0; r < count; ++r) norm_groups(p, layer, z + r * width, rows + r * width);
    return rows;
  });
}

void make_recurrent_scratch(const ModelConfig& config, int64_t tokens, int32_t workers, ScratchSizer* sizer,
                            RecurrentScratch* out) {
  const Recurrence& d = config.recurrence;
  if (recurrent_layers(config) == 0) return;
  RecurrentScratch& s = *out;
  sizer->make(&s.qkv, tokens * d.channels());
  sizer->make(&s.z, tokens * d.value_width());
  sizer->make(&s.b, tokens * d.write_gates());
  if (d.is_mamba()) sizer->make(&s.convolved, tokens * d.channels());
  if (!d.has_heads()) return;
  sizer->make(&s.narrow, tokens * d.step_rank);
  if (d.key_decays) sizer->make(&s.z_narrow, tokens * d.step_rank);
  sizer->make(&s.a, tokens * d.value_heads * d.decays());
  // x / |x| = RMSNorm(x) / sqrt(n); queries are scaled by 1 / sqrt(n) once more.
  const float root = std::sqrt(static_cast<float>(d.key_dim));
  s.key_scale.assign(d.key_dim, 1.0f / root);
  s.query_scale.assign(d.key_dim, 1.0f / static_cast<float>(d.key_dim));
  s.workers.resize(workers);
  for (StateRows& rows : s.workers) {
    sizer->make(&rows.q, std::max(kStateTokens * d.key_dim, d.value_dim));
    sizer->make(&rows.k, kStateTokens * d.key_dim);
    sizer->make(&rows.v, kStateTokens * d.value_dim);
    sizer->make(&rows.decay, kStateTokens * d.decays());
    sizer->make(&rows.beta, kStateTokens);
    sizer->make(&rows.trial, d.head_floats());
  }
}

}  // namespace pinion
