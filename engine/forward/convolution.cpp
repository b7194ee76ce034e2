#include "engine/forward/convolution.h"

#include <algorithm>

namespace pinion {

float* conv_input(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t token) {
  if (token < 0 || p.rows == 1) return segment.state->input(layer.state.slot, segment.position + token);
  return s.qkv.data() + (segment.row + token) * p.model.config.recurrence.channels();
}

void convolve(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t token,
              int64_t first, int64_t count, float* out) {
  const Recurrence& r = p.model.config.recurrence;
  const float* inputs[kMaxConvTaps];
  for (int64_t t = 0; t < r.taps; ++t) inputs[t] = conv_input(p, s, layer, segment, token - r.taps + 1 + t) + first;
  const Convolution channels = {.weight = layer.state.conv + first,
                                .bias = layer.state.conv_bias ? layer.state.conv_bias + first : nullptr,
                                .stride = r.channels(),
                                .taps = r.taps,
                                .activates = r.kind != RecurrenceKind::short_conv};
  p.kernels.convolve(inputs, channels, count, out);
}

void take_draft_inputs(Worker& worker, const Pass& p, const Layer& layer) {
  const int64_t before = p.model.config.recurrence.taps - 1;
  if (std::ranges::all_of(p.segments, [](const Segment& one) { return one.state->drafts.held == 0; })) return;
  worker.for_each(std::ssize(p.segments) * before, [&](int64_t task) {
    const Segment& segment = p.segments[static_cast<size_t>(task / before)];
    write_draft_input(*segment.state, layer.state.slot, segment.position, task % before);
  });
}

void keep_inputs(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  if (p.rows == 1) return;
  const Recurrence& r = p.model.config.recurrence;
  worker.for_each(p.rows, [&](int64_t row) {
    const Segment& segment = p.segment_of(row);
    const int64_t token = row - segment.row, draft = token - segment.sure();
    if (draft < 1 - r.taps) return;
    std::copy_n(conv_input(p, s, layer, segment, token), r.channels(),
                draft < 0 ? segment.state->input(layer.state.slot, segment.position + token)
                          : segment.state->draft_input(layer.state.slot, draft));
  });
}

}  // namespace pinion
