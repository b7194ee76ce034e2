#include "engine/forward/sparse_gate.h"

#include <algorithm>
#include <cmath>

#include "engine/forward/row_sums.h"

namespace pinion {

void cut_gates(const Pass& p, const Layer& layer, int64_t first, int64_t count, int64_t width, float* out) {
  const auto n = static_cast<float>(width);
  for (int64_t row = first; row < first + count; ++row, out += width) {
    const float *gates = p.activations.gates.data() + row * width, *up = p.activations.activation.data() + row * width;
    const float mean = row_sum(width, [&](int64_t i) { return gates[i]; }) / n;
    const float square = row_sum(width, [&](int64_t i) { return (gates[i] - mean) * (gates[i] - mean); }) / n;
    const float cut = mean + std::sqrt(square) * *layer.gate_cut;
    for (int64_t at = 0; at < width; at += kPanelColumns) {
      const int64_t columns = std::min(kPanelColumns, width - at);
      float above[kPanelColumns];
      for (int64_t i = 0; i < columns; ++i) above[i] = gates[at + i] < cut ? 0.0f : gates[at + i] - cut;  // NaN stays
      p.kernels.epilogue_f32(up + at, 1, columns, {.gate = above, .activation = p.model.config.activation}, out + at,
                             width);
    }
  }
}

}  // namespace pinion
