// The forward pass: tokens and their caches in, logits out. All workers of a team run it together.
#pragma once

#include "engine/forward/altup.h"
#include "engine/forward/attention.h"
#include "engine/forward/experts.h"
#include "engine/forward/recurrent_layers.h"

namespace pinion {

// All memory that a pass writes, except caches and states. Allocated once; parts that the model lacks are empty.
struct Scratch {
  Activations activations;
  AttentionScratch attention;
  RecurrentScratch recurrent;
  ExpertScratch experts;
  LayerInputScratch layer_inputs;
  AltupScratch altup;
};

// For passes of at most `tokens` tokens and `positions` positions. If the sizer only counts, `out` must not be used.
void make_scratch(const Model& model, const Kernels& kernels, int64_t tokens, int64_t positions, int32_t workers,
                  ScratchSizer* sizer, Scratch* out);

// Lists a pass's tasks, the same in every layer. pass.activations must be scratch->activations, here and below.
void plan(const Pass& pass, Scratch* scratch);

// Evaluates the pass, after plan(). All workers call it.
void forward(Worker& worker, const Pass& pass, Scratch& scratch);

}  // namespace pinion
