// The forward pass: tokens and their caches in, logits out, run by every worker of a team together.
#pragma once

#include <cstdint>

#include "engine/forward/altup.h"
#include "engine/forward/attention.h"
#include "engine/forward/experts.h"
#include "engine/forward/pass.h"
#include "engine/forward/recurrent_scratch.h"
#include "engine/forward/scratch_sizer.h"
#include "engine/team/team.h"

namespace pinion {

// Everything that a pass writes besides the cache, allocated once; each part's own is empty where a model lacks it.
struct Scratch {
  Activations activations;
  AttentionScratch attention;
  AltupScratch altup;
  RecurrentScratch recurrent;
  ExpertScratch experts;
};

// For passes of at most `tokens`, of sequences of at most `positions`. If the sizer only counts, `out` must not be
// used.
void make_scratch(const Model& model, const Kernels& kernels, int64_t tokens, int64_t positions, int32_t workers,
                  ScratchSizer* sizer, Scratch* out);

// Finds the tasks of a pass, which are the same in every layer. pass.activations are the scratch's, here and below.
void plan(const Pass& pass, Scratch* scratch);

// After plan().
void forward(Worker& worker, const Pass& pass, Scratch& scratch);

}  // namespace pinion
