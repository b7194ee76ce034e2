#include "engine/forward/recurrent.h"

#include "engine/forward/convolution.h"
#include "engine/forward/delta.h"
#include "engine/forward/gather.h"
#include "engine/forward/mamba.h"
#include "engine/forward/short_conv.h"

namespace pinion {
namespace {

// What each kind makes of its projections, by RecurrenceKind.
using Mix = void (*)(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer);
constexpr Mix kMixes[] = {mix_by_delta, mix_by_short_conv, mix_by_mamba};

void mix(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer, const Input& x) {
  const RecurrentLayer& l = layer.state;
  take_draft_inputs(worker, p, layer);
  project(begin_stage(worker, p, Stage::qkv), x,
          {{&l.qkv, conv_input(p, s, layer, p.segments.front(), 0)},
           {&l.z, s.z.data()},
           {&l.b, s.b.data()},
           {&l.a, s.a.data()}});
  begin_stage(worker, p, Stage::attention);
  kMixes[static_cast<size_t>(p.model.config.recurrence.kind)](worker, p, s, layer);
  worker.barrier();
  keep_inputs(worker, p, s, layer);
}

}  // namespace

void recur(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer, const Input& x) {
  // Of several boards the first has the states, and all that reads them.
  if (p.model.is_on_first_board()) mix(worker, p, s, layer, x);
  const int64_t width = p.model.config.recurrence.value_width();
  gather(worker, p, s.z.data(), p.rows, {width, width});
}

Input recurrent_output(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  const Linear& out = layer.state.out;
  const int64_t width = out.weight.k;
  const Multiplier m = begin_stage(worker, p, Stage::o_input);
  return prepare(m, p.rows, width, {&out}, [&](int64_t first, int64_t count, float* rows) -> const float* {
    const float* z = s.z.data() + first * width;
    if (p.model.config.recurrence.norm_groups == 0) return z;
    for (int64_t r = 0; r < count; ++r) norm_groups(p, layer, z + r * width, rows + r * width);
    return rows;
  });
}

}  // namespace pinion
