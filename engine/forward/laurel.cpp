#include "engine/forward/laurel.h"

#include "engine/forward/trace.h"

namespace pinion {

void finish_laurel(Worker& worker, const Pass& p, const Layer& layer, int64_t index) {
  Activations& s = p.activations;
  const LaurelLayer& laurel = layer.laurel;
  const int64_t n = p.model.config.hidden_size, rank = laurel.right.weight.k;
  const Multiplier m = begin_stage(worker, p, Stage::laurel);
  const Input narrow = prepare(m, p.rows, rank, {&laurel.right},
                               [&](int64_t first, int64_t, float*) { return s.laurel_narrow.data() + first * rank; });
  trace_input(worker, p, index, Stage::laurel, narrow);
  project(m, narrow, {{&laurel.right, s.laurel.data()}});
  // Attention, which follows, reads neither: its barriers are enough.
  worker.for_each(p.rows, [&](int64_t row) {
    float* out = s.laurel.data() + row * n;
    normalize(p, laurel.norm, out, out);
    normalize(p, layer.attention_norm, s.x.data() + row * n, m.own.values.data());
    for (int64_t i = 0; i < n; ++i) out[i] += m.own.values[static_cast<size_t>(i)];
  });
}

void average_with_laurel(Worker& worker, const Pass& p) {
  constexpr float kRootOfHalf = 0.70710678f;
  const int64_t n = p.model.config.hidden_size;
  worker.for_each(p.rows, [&](int64_t row) {
    float* x = p.activations.x.data() + row * n;
    const float* other = p.activations.laurel.data() + row * n;
    for (int64_t i = 0; i < n; ++i) x[i] = (x[i] + other[i]) * kRootOfHalf;
  });
  worker.barrier();
}

}  // namespace pinion
