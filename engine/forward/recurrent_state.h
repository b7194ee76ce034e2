// The memory of layers that keep a state in place of keys and values, and copies of it. Such a state cannot go back to
// an earlier token: it is restored from the latest snapshot before that, and what follows is evaluated again. Tokens on
// trial (drafts) are not written to it. What they would write is kept beside it, and is written once they are accepted.
//
//   layer | the convolution's last inputs [taps][channels, padded]
//         | states [value heads][value_dim / 16, rounded up][key_dim][16], see Kernels::advance_state
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/kernels.h"
#include "loader/config/model_config.h"
#include "loader/files/arena.h"

namespace pinion {

// The drafts of the last pass:
//
//   layer | inputs of the convolution [most][channels, padded]
//         | value head | keys [most][key_dim] | values [most][value_dim] | decay [most] | beta [most]
struct StateDrafts {
  int64_t most = 0;  // in a pass; 0: no memory
  int64_t held = 0;  // of the sequence's last tokens: they are here and not in the state
  Arena memory;
};

// What tokens write to a head's state.
struct StateWrites {
  float* keys;    // [tokens][key_dim]
  float* values;  // [tokens][value_dim]
  float* decay;   // [tokens]
  float* beta;    // [tokens]
};

struct RecurrentState {
  Recurrence shape;
  int64_t layers = 0;  // with a state; 0: the model has none
  Arena memory;
  StateDrafts drafts = {};

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

  // Nothing where heads have no keys: the convolution's inputs are all that there is.
  int64_t draft_head_floats() const {
    if (!shape.has_heads()) return 0;
    return round_up(drafts.most * (shape.key_dim + shape.value_dim + 2), 16);
  }
  int64_t draft_layer_floats() const { return drafts.most * input_floats() + shape.value_heads * draft_head_floats(); }
  int64_t draft_bytes() const { return layers * draft_layer_floats() * static_cast<int64_t>(sizeof(float)); }
  // The convolution's input of a draft.
  float* draft_input(int64_t index, int64_t draft) const {
    return reinterpret_cast<float*>(drafts.memory.data) + index * draft_layer_floats() + draft * input_floats();
  }
  StateWrites draft_writes(int64_t index, int64_t value_head) const {
    float* keys = draft_input(index, drafts.most) + value_head * draft_head_floats();
    float* values = keys + drafts.most * shape.key_dim;
    float* decay = values + drafts.most * shape.value_dim;
    return {keys, values, decay, decay + drafts.most};
  }
};

// The shape for a model, without memory.
RecurrentState recurrent_state_of(const ModelConfig& config, int64_t drafts = 0);

// Zeros, with room for so many drafts in a pass. The memory is not checked against what is free.
Error allocate_recurrent_state(const ModelConfig& config, int64_t drafts, RecurrentState* out);

// Writes the held drafts, of sequences that end at `position` with them, to where the convolution looks for its last
// inputs, in one layer: the one that lies `back` before the end, if it is a draft.
void write_draft_input(const RecurrentState& state, int64_t index, int64_t position, int64_t back);

// Writes the held drafts to a head's state. out: [held][value_dim], scratch.
void write_drafts(const Kernels& kernels, const RecurrentState& state, int64_t index, int64_t value_head, float* out);

// All of that, in all layers: the state is then that after all of the sequence's tokens, of which it has `position`.
void settle_drafts(const Kernels& kernels, int64_t position, RecurrentState* state);

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
bool can_keep(const Snapshots& snapshots, const RecurrentState& state);

// Keeps the state after `position` tokens, which holds no drafts, as the last of the snapshots; the oldest go where the
// limit or the machine's memory asks for it.
void keep(Snapshots* snapshots, const RecurrentState& state, int64_t position);

// The state after at most `position` tokens, the latest that there is; returns after how many. Later snapshots are
// dropped.
int64_t restore(Snapshots* snapshots, int64_t position, RecurrentState* state);

}  // namespace pinion
