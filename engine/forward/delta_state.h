// The memory of layers that keep a state in place of keys and values, and copies of it. Such a state cannot go back to
// an earlier token: it is restored from the latest snapshot before that, and what follows is evaluated again.
//
//   layer | the convolution's last inputs [taps][channels, padded]
//         | states [value heads][value_dim / 16, rounded up][key_dim][16], see Kernels::delta_rule
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/error.h"
#include "loader/checkpoint/arena.h"
#include "loader/config/model_config.h"

namespace pinion {

struct DeltaState {
  GatedDelta shape;
  int64_t layers = 0;  // with a state; 0: the model has none
  Arena memory;

  int64_t input_floats() const { return round_up(shape.channels(), 16); }
  int64_t head_floats() const { return round_up(shape.value_dim, 16) * shape.key_dim; }
  int64_t layer_floats() const { return shape.taps * input_floats() + shape.value_heads * head_floats(); }
  int64_t bytes() const { return layers * layer_floats() * static_cast<int64_t>(sizeof(float)); }

  float* layer(int64_t index) const { return reinterpret_cast<float*>(memory.data) + index * layer_floats(); }
  // Of the token at `position`, at the earliest `taps` before the sequence: those are zero. A place is taken again
  // `taps` tokens later.
  float* input(int64_t index, int64_t position) const {
    return layer(index) + (position + shape.taps) % shape.taps * input_floats();
  }
  float* head(int64_t index, int64_t value_head) const {
    return layer(index) + shape.taps * input_floats() + value_head * head_floats();
  }
};

// The shape for a model, without memory.
DeltaState delta_state_of(const ModelConfig& config);

// Zeros. The memory is not checked against what is free.
Error allocate_delta_state(const ModelConfig& config, DeltaState* out);

struct Snapshot {
  int64_t position;  // tokens evaluated
  Arena memory;
};

// Of the sequence as it stands: what follows a token that changes is dropped with it.
struct Snapshots {
  int64_t limit_bytes = 0;
  std::vector<Snapshot> kept;  // by position
};

// Whether there is room for any.
bool can_keep(const Snapshots& snapshots, const DeltaState& state);

// Keeps the state after `position` tokens, the last of the snapshots; the oldest go where the limit or the machine's
// memory asks for it.
void keep(Snapshots* snapshots, const DeltaState& state, int64_t position);

// The state after at most `position` tokens, the latest that there is; returns after how many. Later snapshots are
// dropped.
int64_t restore(Snapshots* snapshots, int64_t position, DeltaState* state);

}  // namespace pinion
