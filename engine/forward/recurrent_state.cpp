#include "engine/forward/recurrent_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/team/memory.h"

namespace pinion {

RecurrentState recurrent_state_of(const ModelConfig& config, int64_t drafts) {
  RecurrentState state;
  state.shape = config.recurrence;
  state.layers = recurrent_layers(config);
  state.drafts.capacity = drafts;
  return state;
}

Error allocate_recurrent_state(const ModelConfig& config, int64_t drafts, RecurrentState* out) {
  RecurrentState state = recurrent_state_of(config, drafts);
  if (state.bytes() > 0) {
    if (Error e = allocate_arena(state.bytes(), &state.memory)) return e;
  }
  if (state.draft_bytes() > 0) {
    if (Error e = allocate_arena(state.draft_bytes(), &state.drafts.memory)) return e;
  }
  *out = std::move(state);
  return {};
}

void apply_draft_input(const RecurrentState& state, int64_t index, int64_t position, int64_t back) {
  const int64_t draft = state.drafts.held - 1 - back;
  if (draft < 0) return;
  std::copy_n(state.draft_input(index, draft), state.shape.channels(), state.input(index, position - 1 - back));
}

void apply_drafts_to_head(const Kernels& kernels, const RecurrentState& state, int64_t index, int64_t value_head,
                          float* scratch) {
  if (state.drafts.held == 0 || !state.shape.has_heads()) return;
  const StateWrites d = state.draft_writes(index, value_head);
  const Recurrence& shape = state.shape;
  // The outputs are not used, so the keys serve as queries, too.
  kernels.advance_state({state.drafts.held, shape.key_dim, shape.value_dim, d.keys, d.keys, d.values, d.decay, d.beta,
                         scratch, shape.kind == RecurrenceKind::gated_delta},
                        state.head(index, value_head));
}

void apply_drafts(const Kernels& kernels, int64_t position, RecurrentState* state) {
  std::vector<float> scratch(state->drafts.held * state->shape.value_dim);
  for (int64_t layer = 0; layer < state->layers; ++layer) {
    for (int64_t back = 0; back < state->shape.taps - 1; ++back) apply_draft_input(*state, layer, position, back);
    for (int64_t head = 0; head < state->shape.value_heads; ++head) {
      apply_drafts_to_head(kernels, *state, layer, head, scratch.data());
    }
  }
  state->drafts.held = 0;
}

bool can_take_snapshot(const Snapshots& snapshots, const RecurrentState& state) {
  return state.layers > 0 && state.bytes() <= snapshots.limit_bytes;
}

void take_snapshot(Snapshots* snapshots, const RecurrentState& state, int64_t position) {
  std::vector<Snapshot>& saved = snapshots->saved;
  if (!can_take_snapshot(*snapshots, state) || position == 0) return;
  if (!saved.empty() && saved.back().position == position) return;
  Snapshot next = {position, {}};
  const bool is_full = (std::ssize(saved) + 1) * state.bytes() > snapshots->limit_bytes;
  if (is_full || available_memory_bytes() < state.bytes() || allocate_arena(state.bytes(), &next.memory)) {
    if (saved.empty()) return;
    next.memory = std::move(saved.front().memory);
    saved.erase(saved.begin());
  }
  std::memcpy(next.memory.data, state.memory.data, state.bytes());
  saved.push_back(std::move(next));
}

int64_t restore_snapshot(Snapshots* snapshots, int64_t position, RecurrentState* state) {
  state->drafts.held = 0;
  std::vector<Snapshot>& saved = snapshots->saved;
  while (!saved.empty() && saved.back().position > position) saved.pop_back();
  if (saved.empty()) {
    if (state->bytes() > 0) std::memset(state->memory.data, 0, state->bytes());
    return 0;
  }
  std::memcpy(state->memory.data, saved.back().memory.data, state->bytes());
  return saved.back().position;
}

}  // namespace pinion
