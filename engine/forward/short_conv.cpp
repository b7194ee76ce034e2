#include "engine/forward/short_conv.h"

#include <algorithm>

#include "engine/forward/convolution.h"

namespace pinion {
namespace {

constexpr int64_t kRunChannels = 64;  // of a task

// All of a segment's tokens through channels [first, first + count).
void mix_run(const Pass& p, RecurrentScratch& s, const Layer& layer, const Segment& segment, int64_t first,
             int64_t count) {
  const int64_t width = p.model.config.recurrence.channels();
  const int64_t begin = segment.row * width + first;
  for (int64_t token = 0; token < segment.size(); ++token) {
    float* in = conv_input(p, s, layer, segment, token) + first;
    const float* gate = s.b.data() + begin + token * width;
    for (int64_t i = 0; i < count; ++i) in[i] *= gate[i];
  }
  for (int64_t token = 0; token < segment.size(); ++token) {
    float convolved[kRunChannels];
    float* gate = s.z.data() + begin + token * width;
    convolve(p, s, layer, segment, token, first, count, convolved);
    for (int64_t i = 0; i < count; ++i) gate[i] *= convolved[i];
  }
}

}  // namespace

void mix_by_short_conv(Worker& worker, const Pass& p, RecurrentScratch& s, const Layer& layer) {
  const int64_t width = p.model.config.recurrence.channels(), runs = (width + kRunChannels - 1) / kRunChannels;
  worker.for_each(std::ssize(p.segments) * runs, [&](int64_t task) {
    const Segment& segment = p.segments[static_cast<size_t>(task / runs)];
    const int64_t first = task % runs * kRunChannels;
    mix_run(p, s, layer, segment, first, std::min(kRunChannels, width - first));
  });
}

}  // namespace pinion
