// What passes run on, and one pass: tokens of one sequence or of many at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/forward/forward.h"
#include "engine/model/model.h"
#include "engine/session/board_messages.h"
#include "engine/team/team.h"
#include "kernels/kernels.h"

namespace pinion {

struct PassRunner {
  const Model* model = nullptr;
  const Kernels* kernels = nullptr;
  Team* team = nullptr;          // passes of one row
  Team* prefill_team = nullptr;  // of several
  Scratch scratch;
  Followers followers;        // the other boards, where they share the model and this is the first
  std::vector<float> hidden;  // [most rows][hidden] of the last pass, after the final norm; empty: not kept
  // Optional. Null: off.
  Profile* profile = nullptr;  // gets the time of every pass, one entry a worker; other boards keep their own
  Trace* trace = nullptr;      // records what passes compute (engine/forward/trace.h)
};

// Null kernels: the best that this CPU has. Null prefill_team: the same team for all passes.
Error make_runner(const Model& model, Team& team, Team* prefill_team, const Kernels* kernels, PassRunner* out);

// Takes the memory that passes of at most `tokens`, of sequences of at most `positions`, work in. Fails, with the
// figures, where it does not fit into the memory that is free now together with the caches and what else the caller is
// about to take. `what` the memory is for and `more` about it are for the error.
Error take_scratch(PassRunner* runner, int64_t tokens, int64_t positions, int64_t cache_bytes, int64_t other_bytes,
                   const std::string& what, const std::string& more);

// Mapped weights count as free memory, but every token reads them, so they must fit too.
int64_t mapped_bytes(const Model& model);

// Has the other boards take theirs, for a pool of so many blocks; nothing to do on one board. After all memory here.
Error open_followers(PassRunner* runner, int64_t tokens, int64_t positions, const KvPool& pool);

// Copies a block on all boards.
void copy_block(PassRunner& runner, KvPool& pool, int32_t from, int32_t to);

// What a pass tells of one row's logits: the likeliest id of each kPanelColumns of them.
std::span<const int32_t> panel_best(const PassRunner& runner, int64_t logit_row);

// Evaluates the segments' tokens, at most as many as the scratch is for, and sets each segment's row. logits: [rows
// that get them][vocab], segment by segment; null where none do. The sequences' ids are the caller's to keep. Of a
// recurrent model, drafts are held beside the state afterwards.
void run_pass(PassRunner& runner, std::span<Segment> segments, float* logits);

// Whether the last pass's logits from `first` on, `count` rows, are numbers.
bool are_logits_finite(const PassRunner& runner, int64_t first, int64_t count);

}  // namespace pinion
