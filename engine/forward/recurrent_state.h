// The state of recurrent layers, which has the same size for any number of tokens, and snapshots of it. A state cannot
// go back to an earlier token: the sequence returns to the latest snapshot before that token and is evaluated again
// from there. Drafts do not change the state: their writes are stored beside it, and the next pass applies those of the
// accepted drafts.
//
//   layer | the convolution's last inputs [taps][channels, padded]
//         | head states [value heads][value_dim / 16, rounded up][key_dim][16], see Kernels::advance_state
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/model/model.h"
#include "kernels/base/error.h"
#include "kernels/kernels.h"
#include "loader/config/model_config.h"
#include "loader/files/mapped_file.h"

namespace pinion {

// The writes of the last pass's drafts:
//
//   layer | inputs of the convolution [capacity][channels, padded]
//         | value head | keys [capacity][key_dim] | values [capacity][value_dim] | decay [capacity][decays] | beta
//         [capacity]
struct StateDrafts {
  int64_t capacity = 0;  // drafts of one pass; 0: no memory
  int64_t held = 0;      // that many of the sequence's last tokens are stored here, not yet in the state
  Arena memory;
};

// The values that tokens write to the state of one head.
struct StateWrites {
  float* keys;    // [tokens][key_dim]
  float* values;  // [tokens][value_dim]
  float* decay;   // [tokens][decays]
  float* beta;    // [tokens]
};

struct RecurrentState {
  Recurrence shape;
  int64_t layers = 0;  // recurrent layers of the model
  Arena memory;
  StateDrafts drafts = {};

  int64_t input_floats() const { return round_up(shape.channels(), 16); }
  int64_t layer_floats() const { return shape.taps * input_floats() + shape.value_heads * shape.head_floats(); }
  int64_t bytes() const { return layers * layer_floats() * sizeof(float); }

  float* layer(int64_t index) const { return reinterpret_cast<float*>(memory.data) + index * layer_floats(); }
  // The convolution's input at `position` >= -taps, zero before 0. Token position + taps overwrites it in the ring.
  float* input(int64_t index, int64_t position) const {
    return layer(index) + (position + shape.taps) % shape.taps * input_floats();
  }
  float* head(int64_t index, int64_t value_head) const {
    return layer(index) + shape.taps * input_floats() + value_head * shape.head_floats();
  }

  // 0 without heads: the convolution's inputs are then the whole state.
  int64_t draft_head_floats() const {
    if (!shape.has_heads()) return 0;
    return round_up(drafts.capacity * (shape.key_dim + shape.value_dim + shape.decays() + 1), 16);
  }
  int64_t draft_layer_floats() const {
    return drafts.capacity * input_floats() + shape.value_heads * draft_head_floats();
  }
  int64_t draft_bytes() const { return layers * draft_layer_floats() * sizeof(float); }
  // The convolution's input of a draft.
  float* draft_input(int64_t index, int64_t draft) const {
    return reinterpret_cast<float*>(drafts.memory.data) + index * draft_layer_floats() + draft * input_floats();
  }
  StateWrites draft_writes(int64_t index, int64_t value_head) const {
    float* keys = draft_input(index, drafts.capacity) + value_head * draft_head_floats();
    float* values = keys + drafts.capacity * shape.key_dim;
    float* decay = values + drafts.capacity * shape.value_dim;
    return {keys, values, decay, decay + drafts.capacity * shape.decays()};
  }
};

// The shape of a model's state, without memory.
RecurrentState recurrent_state_of(const ModelConfig& config);

// A state of zeros, without memory of drafts. The memory is not checked against the free memory.
Error allocate_recurrent_state(const ModelConfig& config, RecurrentState* out);

// Allocates the memory of at most `drafts` drafts in a pass, if there is none and the model has recurrent layers.
Error allocate_state_drafts(int64_t drafts, RecurrentState* state);

// Copies the convolution's input of one held draft, the token at position - 1 - back, if it is one, to the state's
// inputs of layer `index`. `position`: tokens of the sequence, drafts included, here and below.
void apply_draft_input(const RecurrentState& state, int64_t index, int64_t position, int64_t back);

// The rates of a head's elements; null: its tokens have decays.
inline const float* rates_of(const Recurrence& shape, const Layer& layer, int64_t head) {
  return shape.by_channel() ? layer[VectorRole::state_rate].weight + head * shape.head_floats() : nullptr;
}

// RG-LRU: the sums of n channels decay and add a value, for each of `count` tokens. out: [count][n] the sums.
void advance_channels(int64_t count, int64_t n, const StateWrites& writes, float* state, float* out);

// Applies the held drafts to the state of one head. scratch: [held][value_dim].
void apply_drafts_to_head(const Kernels& kernels, const RecurrentState& state, const Layer& layer, int64_t value_head,
                          float* scratch);

// Applies the held drafts to the inputs and states of all layers. No drafts are held afterwards.
void apply_drafts(const Kernels& kernels, std::span<const Layer> layers, int64_t position, RecurrentState* state);

// A saved state. Sequences with a common prefix share it.
struct Snapshot {
  int64_t position;        // tokens evaluated
  Arena memory;            // empty after eviction
  bool is_pinned = false;  // never evicted
};

// Bounds the memory of all snapshots of a runner. When it is full, a new snapshot evicts the least recently used one.
struct SnapshotPool {
  int64_t limit_bytes = 0;
  std::vector<std::weak_ptr<Snapshot>> saved = {};  // least recently used first; some may be expired or evicted
  int64_t taken = 0, evicted = 0;                   // since the pool was opened
};

// Saved states of one sequence after some of its tokens.
struct Snapshots {
  SnapshotPool* pool = nullptr;                       // null: no snapshots
  std::vector<std::shared_ptr<Snapshot>> saved = {};  // ascending by position
};

// Bytes that the pool's snapshots hold.
int64_t snapshot_bytes(const SnapshotPool& pool);

// True if the limit has room for one snapshot. False for a model without recurrent layers.
bool can_take_snapshot(const Snapshots& snapshots, const RecurrentState& state);

// Saves the state, without drafts, after `position` tokens, not before an earlier snapshot's. Evicts the pool's least
// recently used snapshot if the limit or the machine's memory has no room for another one.
void take_snapshot(Snapshots* snapshots, const RecurrentState& state, int64_t position);

// Position of the latest snapshot at or before `position`; 0: none.
int64_t latest_snapshot(const Snapshots& snapshots, int64_t position);

// Adds the snapshots of `other` at or before `position`, up to which both sequences have the same tokens.
void share_snapshots(const Snapshots& other, int64_t position, Snapshots* snapshots);

// Restores the latest snapshot at or before `position`, or zeros, and returns its position. Drops later snapshots.
int64_t restore_snapshot(Snapshots* snapshots, int64_t position, RecurrentState* state);

}  // namespace pinion
