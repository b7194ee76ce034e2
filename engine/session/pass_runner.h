// What passes run on, and one pass: tokens of one sequence or of many at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward/forward.h"
#include "engine/model/model.h"
#include "engine/team/team.h"
#include "kernels/kernels.h"

namespace pinion {

struct PassRunner {
  const Model* model = nullptr;
  const Kernels* kernels = nullptr;
  Team* team = nullptr;          // passes of one row
  Team* prefill_team = nullptr;  // of several
  Scratch scratch;
  // Optional. Null: off.
  Profile* profile = nullptr;  // gets the time of every pass, one entry a worker
  Trace* trace = nullptr;      // records what passes compute (engine/forward/trace.h)
};

// What a pass tells of one row's logits: the likeliest id of each kPanelColumns of them.
std::span<const int32_t> panel_best(const PassRunner& runner, int64_t logit_row);

// Evaluates the segments' tokens, at most as many as the scratch is for, and sets each segment's row. logits: [rows
// that get them][vocab], segment by segment; null where none do. The sequences' ids are the caller's to keep.
void run_pass(PassRunner& runner, std::span<Segment> segments, float* logits);

// Whether the last pass's logits from `first` on, `count` rows, are numbers.
bool are_logits_finite(const PassRunner& runner, int64_t first, int64_t count);

}  // namespace pinion
