#include "apps/model/run_options.h"

#include <algorithm>
#include <iterator>

namespace pinion {

// What somebody expects of a folder whose name says 4 bits is that size and speed.
void settle_quant(RunOptions* options) {
  options->load.rotate = !options->no_rotate;
  if (!options->why_quant.empty()) return;
  options->load.quant = default_quant(options->model);
  options->why_quant = options->load.quant == Quant::w4a8 ? "the file has 4-bit codes" : "default";
}

std::string_view quant_name(const RunOptions& options) { return kQuantNames[static_cast<size_t>(options.load.quant)]; }

std::string_view head_name(const RunOptions& options) {
  const auto row = std::ranges::find(kHeadFormats, options.load.head, &HeadFormat::format);
  return row == std::end(kHeadFormats) ? "" : row->name;
}

std::string_view kv_name(const RunOptions& options) { return kKvNames[static_cast<size_t>(kv_type(options))]; }

std::string mode_text(const RunOptions& options) {
  return std::string(quant_name(options)) + (options.load.head ? ", head " + std::string(head_name(options)) : "") +
         (!options.load.rotate && options.load.quant != Quant::none ? ", not rotated" : "") +
         (options.calibrate.empty() ? "" : ", calibrated");
}

Error make_plan(const RunOptions& options, const Topology& topology, const Tuning& tuning, Plan* out) {
  PlanOptions team = options.team;
  if (!options.cores.empty()) {
    if (Error e = parse_cores(options.cores, topology, &team.cpus)) return e;
  }
  return make_plan(team, topology, tuning, out);
}

std::string why_not_tuned(const RunOptions& options, const Tuning& tuning) {
  const bool is_asked = options.cores.empty() && options.team.threads == 0;
  if (!tuning.reason || (!is_asked && options.team.prefill_chunk > 0)) return {};
  return tuning.reason.message() + "; going on without it (`pinion tune` renews it)";
}

}  // namespace pinion
