#include "engine/session/sequence.h"

#include <algorithm>
#include <utility>

namespace pinion {

Error make_sequence(const ModelConfig& config, KvPool* pool, int64_t capacity, int64_t drafts, Sequence* out) {
  Sequence sequence = {.cache = make_kv_cache(pool, capacity),
                       .state = {},
                       .snapshots = {},
                       .ids = {},
                       .ropes = rope_frequencies(config, 0)};
  if (Error e = allocate_recurrent_state(config, drafts, &sequence.state)) return e;
  sequence.ids.reserve(static_cast<size_t>(capacity));
  *out = std::move(sequence);
  return {};
}

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

bool can_be_cut(const ModelConfig& config) {
  return recurrent_layers(config) == 0 && !frequencies_follow_length(config);
}

int64_t rewind(Sequence& sequence, int64_t position) {
  const int64_t held = std::ssize(sequence.ids);
  position = std::clamp<int64_t>(position, 0, held);
  const int64_t in_state = held - sequence.state.drafts.held;
  if (sequence.state.layers > 0 && position >= in_state) {
    sequence.state.drafts.held = position - in_state;
  } else if (sequence.state.layers > 0) {
    position = restore(&sequence.snapshots, position, &sequence.state);
  }
  sequence.ids.resize(static_cast<size_t>(position));
  return position;
}

}  // namespace pinion
