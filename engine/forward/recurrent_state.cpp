#include "engine/forward/recurrent_state.h"

#include <algorithm>
#include <cstring>
#include <ranges>
#include <utility>

#include "engine/team/memory.h"

namespace pinion {
namespace {

bool is_evicted(const std::shared_ptr<Snapshot>& snapshot) { return snapshot->memory.bytes == 0; }

// Returns the memory of the least recently used snapshot; empty: there is none.
Arena evict_snapshot(SnapshotPool& pool) {
  for (const std::weak_ptr<Snapshot>& saved : pool.saved) {
    const auto snapshot = saved.lock();
    if (!snapshot || is_evicted(snapshot) || snapshot->is_pinned) continue;
    ++pool.evicted;
    return std::exchange(snapshot->memory, {});
  }
  return {};
}

void mark_used(SnapshotPool& pool, const std::shared_ptr<Snapshot>& used) {
  std::erase_if(pool.saved, [&](const auto& saved) {
    const auto snapshot = saved.lock();
    return !snapshot || is_evicted(snapshot) || snapshot == used;
  });
  pool.saved.push_back(used);
}

}  // namespace

RecurrentState recurrent_state_of(const ModelConfig& config) {
  RecurrentState state;
  state.shape = config.recurrence;
  state.layers = recurrent_layers(config);
  return state;
}

Error allocate_recurrent_state(const ModelConfig& config, RecurrentState* out) {
  RecurrentState state = recurrent_state_of(config);
  if (state.bytes() > 0) {
    if (Error e = allocate_arena(state.bytes(), &state.memory)) return e;
  }
  *out = std::move(state);
  return {};
}

Error allocate_state_drafts(int64_t drafts, RecurrentState* state) {
  if (state->layers == 0 || state->drafts.memory.bytes > 0) return {};
  state->drafts.capacity = drafts;
  return allocate_arena(state->draft_bytes(), &state->drafts.memory);
}

void apply_draft_input(const RecurrentState& state, int64_t index, int64_t position, int64_t back) {
  const int64_t draft = state.drafts.held - 1 - back;
  if (draft < 0) return;
  std::copy_n(state.draft_input(index, draft), state.shape.channels(), state.input(index, position - 1 - back));
}

void advance_channels(int64_t count, int64_t n, const StateWrites& writes, float* state, float* out) {
  for (int64_t at = 0; at < count * n; at += n) {
    for (int64_t i = 0; i < n; ++i) out[at + i] = state[i] = state[i] * writes.decay[at + i] + writes.values[at + i];
  }
}

void apply_drafts_to_head(const Kernels& kernels, const RecurrentState& state, const Layer& layer, int64_t value_head,
                          float* scratch) {
  if (state.drafts.held == 0 || !state.shape.has_heads()) return;
  const StateWrites d = state.draft_writes(layer.state_slot, value_head);
  const Recurrence& shape = state.shape;
  float* sums = state.head(layer.state_slot, value_head);
  if (shape.kind == RecurrenceKind::rg_lru) {
    return advance_channels(state.drafts.held, shape.value_dim, d, sums, scratch);
  }
  // The outputs are not used, so the keys serve as queries, too.
  kernels.advance_state(
      {state.drafts.held, shape.key_dim, shape.value_dim, d.keys, d.keys, d.values, d.decay, d.beta, scratch,
       shape.kind == RecurrenceKind::gated_delta, rates_of(shape, layer, value_head), shape.key_decays},
      sums);
}

void apply_drafts(const Kernels& kernels, std::span<const Layer> layers, int64_t position, RecurrentState* state) {
  std::vector<float> scratch(state->drafts.held * state->shape.value_dim);
  for (const Layer& layer : layers) {
    if (!layer.recurrent) continue;
    for (int64_t i = 0; i < state->shape.taps - 1; ++i) apply_draft_input(*state, layer.state_slot, position, i);
    for (int64_t head = 0; head < state->shape.value_heads; ++head) {
      apply_drafts_to_head(kernels, *state, layer, head, scratch.data());
    }
  }
  state->drafts.held = 0;
}

int64_t snapshot_bytes(const SnapshotPool& pool) {
  int64_t bytes = 0;
  for (const std::weak_ptr<Snapshot>& saved : pool.saved) {
    if (const auto snapshot = saved.lock()) bytes += snapshot->memory.bytes;
  }
  return bytes;
}

bool can_take_snapshot(const Snapshots& snapshots, const RecurrentState& state) {
  return state.layers > 0 && snapshots.pool && state.bytes() <= snapshots.pool->limit_bytes;
}

void take_snapshot(Snapshots* snapshots, const RecurrentState& state, int64_t position) {
  if (!can_take_snapshot(*snapshots, state) || position == 0) return;
  if (latest_snapshot(*snapshots, position) == position) return;
  SnapshotPool& pool = *snapshots->pool;
  auto next = std::make_shared<Snapshot>(Snapshot{position, {}, false});
  const bool is_full = snapshot_bytes(pool) + state.bytes() > pool.limit_bytes;
  if (is_full || available_memory_bytes() < state.bytes() || allocate_arena(state.bytes(), &next->memory)) {
    next->memory = evict_snapshot(pool);
    if (next->memory.bytes < state.bytes()) return;
  }
  std::memcpy(next->memory.data, state.memory.data, state.bytes());
  mark_used(pool, next);
  ++pool.taken;
  std::erase_if(snapshots->saved, is_evicted);
  snapshots->saved.push_back(std::move(next));
}

int64_t latest_snapshot(const Snapshots& snapshots, int64_t position) {
  for (const auto& snapshot : std::views::reverse(snapshots.saved)) {
    if (snapshot->position <= position && !is_evicted(snapshot)) return snapshot->position;
  }
  return 0;
}

void share_snapshots(const Snapshots& other, int64_t position, Snapshots* snapshots) {
  std::vector<std::shared_ptr<Snapshot>>& saved = snapshots->saved;
  std::erase_if(saved, is_evicted);
  for (const auto& snapshot : other.saved) {
    if (snapshot->position > position || is_evicted(snapshot)) continue;
    const auto at = std::ranges::lower_bound(saved, snapshot->position, {}, &Snapshot::position);
    if (at == saved.end() || (*at)->position != snapshot->position) saved.insert(at, snapshot);
  }
}

int64_t restore_snapshot(Snapshots* snapshots, int64_t position, RecurrentState* state) {
  state->drafts.held = 0;
  std::vector<std::shared_ptr<Snapshot>>& saved = snapshots->saved;
  while (!saved.empty() && (saved.back()->position > position || is_evicted(saved.back()))) saved.pop_back();
  if (saved.empty()) {
    if (state->bytes() > 0) std::memset(state->memory.data, 0, state->bytes());
    return 0;
  }
  std::memcpy(state->memory.data, saved.back()->memory.data, state->bytes());
  mark_used(*snapshots->pool, saved.back());
  return saved.back()->position;
}

}  // namespace pinion
