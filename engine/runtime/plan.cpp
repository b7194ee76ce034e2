#include "engine/runtime/plan.h"

#include <cstdlib>

#include "engine/session/session.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

constexpr int64_t kMaxTuneFileBytes = int64_t{1} << 20;

// `cpus` followed by other cores, fastest first, up to `threads` CPUs.
std::vector<int32_t> extended(std::vector<int32_t> cpus, const Topology& topology, int32_t threads) {
  for (const Core& core : fastest_first(topology)) {
    if (std::ranges::find(cpus, core.cpu) == cpus.end() && threads > std::ssize(cpus)) cpus.push_back(core.cpu);
  }
  return cpus;
}

Error requested_team(const PlanOptions& options, const Topology& topology, const std::vector<int32_t>& start,
                     std::vector<int32_t>* out) {
  if (!options.cpus.empty() && options.threads > std::ssize(options.cpus)) {
    return error("more threads than cores", "--threads", at_most(options.cpus.size()), options.threads);
  }
  *out = options.cpus.empty() ? extended(start, topology, options.threads) : options.cpus;
  if (options.threads > std::ssize(*out)) {
    out->assign(options.threads, -1);
  } else if (options.threads > 0) {
    out->resize(options.threads);
  }
  return {};
}

std::string why_tuned(const TunedMachine& tuned) {
  return formatted("tuned: %.4g tokens/s where the default team had %.4g, measured on ", tuned.decode.rate,
                   tuned.decode.default_rate) +
         tuned.date + " with " + tuned.model + " " + tuned.quant;
}

// The environment overrides the tuned pattern. The default replaces a pattern that this version does not have.
size_t access_of(const TunedMachine* tuned) {
  if (tuned == nullptr || std::getenv("PINION_ACCESS")) return default_access_pattern();
  return find_access_pattern(tuned->access).value_or(default_access_pattern());
}

}  // namespace

TeamCpus team_on(const Topology& topology, std::vector<int32_t> cpus) {
  TeamCpus team;
  team.sme = sme_units_of(topology, cpus);
  team.slowness = slowness_of(topology, cpus);
  team.cpus = std::move(cpus);
  return team;
}

Tuning read_tuning(const Topology& topology) {
  Tuning tuning;
  tuning.key = machine_key(cpu_name(), topology);
  const std::string folder = default_config_folder();
  if (folder.empty()) return tuning;
  tuning.path = folder + "/tune.json";
  if (!path_exists(tuning.path)) return tuning;
  std::string text;
  tuning.reason = read_text_file(tuning.path, kMaxTuneFileBytes, &text);
  if (!tuning.reason) tuning.reason = parse_tune_file(text, tuning.path, &tuning.machines);
  tuning.is_damaged = bool(tuning.reason);
  if (tuning.reason) return tuning;
  const TunedMachine* machine = find_machine(tuning.machines, tuning.key);
  if (machine == nullptr) {
    tuning.reason = error("was tuned for other machines, or for other cores of this one", tuning.path, tuning.key,
                          tuning.machines.empty() ? "none" : tuning.machines[0].machine);
    return tuning;
  }
  tuning.reason = check_usable(*machine, topology);
  if (!tuning.reason) tuning.machine = *machine;
  return tuning;
}

Error make_plan(const PlanOptions& options, const Topology& topology, const Tuning& tuning, Plan* out) {
  const TunedMachine* tuned = tuning.machine ? &*tuning.machine : nullptr;
  const std::vector<int32_t> start = tuned ? tuned->decode.cpus : default_team(topology);
  if (options.has_team()) {
    std::vector<int32_t> cpus;
    if (Error e = requested_team(options, topology, start, &cpus)) return e;
    out->decode = out->prefill = team_on(topology, cpus);
    out->why_team = options.cpus.empty() ? "--threads" : "--cores";
  } else {
    out->decode = team_on(topology, start);
    out->prefill = tuned ? team_on(topology, tuned->prefill.cpus) : out->decode;
    out->why_team = tuned ? why_tuned(*tuned) : "default: " + why_default_team(topology);
  }
  out->access = access_of(tuned);
  out->prefill_chunk = options.prefill_chunk > 0 ? options.prefill_chunk
                       : tuned                   ? tuned->prefill_chunk
                                                 : kDefaultPrefillChunk;
  out->why_chunk = options.prefill_chunk > 0 ? "--prefill-chunk" : tuned ? "tuned" : "default";
  return {};
}

}  // namespace pinion
