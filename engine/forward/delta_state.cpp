#include "engine/forward/delta_state.h"

#include <cstring>

#include "engine/team/memory.h"

namespace pinion {

DeltaState delta_state_of(const ModelConfig& config) {
  DeltaState state;
  state.shape = config.delta;
  state.layers = config.layers - attention_layers(config);
  return state;
}

Error allocate_delta_state(const ModelConfig& config, DeltaState* out) {
  DeltaState state = delta_state_of(config);
  if (state.layers > 0) {
    if (Error e = allocate_arena(state.bytes(), &state.memory)) return e;
  }
  *out = std::move(state);
  return {};
}

bool can_keep(const Snapshots& snapshots, const DeltaState& state) {
  return state.layers > 0 && state.bytes() <= snapshots.limit_bytes;
}

void keep(Snapshots* snapshots, const DeltaState& state, int64_t position) {
  std::vector<Snapshot>& kept = snapshots->kept;
  if (!can_keep(*snapshots, state) || position == 0) return;
  if (!kept.empty() && kept.back().position == position) return;
  Snapshot next = {position, {}};
  const bool full = (std::ssize(kept) + 1) * state.bytes() > snapshots->limit_bytes;
  if (full || available_memory_bytes() < state.bytes() || allocate_arena(state.bytes(), &next.memory)) {
    if (kept.empty()) return;
    next.memory = std::move(kept.front().memory);
    kept.erase(kept.begin());
  }
  std::memcpy(next.memory.data, state.memory.data, static_cast<size_t>(state.bytes()));
  kept.push_back(std::move(next));
}

int64_t restore(Snapshots* snapshots, int64_t position, DeltaState* state) {
  std::vector<Snapshot>& kept = snapshots->kept;
  while (!kept.empty() && kept.back().position > position) kept.pop_back();
  const auto bytes = static_cast<size_t>(state->bytes());
  if (kept.empty()) {
    if (bytes > 0) std::memset(state->memory.data, 0, bytes);
    return 0;
  }
  std::memcpy(state->memory.data, kept.back().memory.data, bytes);
  return kept.back().position;
}

}  // namespace pinion
