#include "engine/session/pass_runner.h"

#include <algorithm>

namespace pinion {

std::span<const int32_t> panel_best(const PassRunner& runner, int64_t logit_row) {
  const auto panels = static_cast<size_t>(panel_count(runner.model->config.vocab_size));
  return std::span(runner.scratch.activations.panel_best).subspan(static_cast<size_t>(logit_row) * panels, panels);
}

void run_pass(PassRunner& runner, std::span<Segment> segments, float* logits) {
  int64_t rows = 0;
  for (Segment& segment : segments) {
    segment.row = rows;
    rows += segment.size();
  }
  const Pass pass = {.model = *runner.model,
                     .kernels = *runner.kernels,
                     .activations = runner.scratch.activations,
                     .segments = segments,
                     .rows = rows,
                     .logits = logits,
                     .profile = runner.profile,
                     .trace = runner.trace};
  plan(pass, &runner.scratch);
  const auto evaluate_rows = [&](Worker& worker) { forward(worker, pass, runner.scratch); };
  Team& team = rows > 1 ? *runner.prefill_team : *runner.team;
  if (rows > 1 || runner.profile) {
    team.run(evaluate_rows);
  } else {
    team.run_active(evaluate_rows);
  }
}

bool are_logits_finite(const PassRunner& runner, int64_t first, int64_t count) {
  for (int64_t row = first; row < first + count; ++row) {
    if (std::ranges::count(panel_best(runner, row), kUnfitPanel) > 0) return false;
  }
  return true;
}

}  // namespace pinion
