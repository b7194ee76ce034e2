#include "apps/plan.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "apps/common.h"
#include "apps/machine.h"
#include "loader/mapped_file.h"
#include "loader/user_folders.h"

namespace pinion {
namespace {

constexpr int64_t kMaxTuneFileBytes = int64_t{1} << 20;

bool is_team_given(const RunOptions& options) { return !options.cores.empty() || options.threads > 0; }

// `cpus`, then the cores that are not among them, the fastest first, up to `threads`.
std::vector<int32_t> extended(std::vector<int32_t> cpus, const Topology& topology, int32_t threads) {
  for (const Core& core : fastest_first(topology)) {
    if (std::ranges::find(cpus, core.cpu) == cpus.end() && threads > std::ssize(cpus)) cpus.push_back(core.cpu);
  }
  return cpus;
}

Error given_team(const RunOptions& options, const Topology& topology, std::vector<int32_t> start,
                 std::vector<int32_t>* out) {
  if (!options.cores.empty()) {
    if (Error e = parse_cores(options.cores, topology, out)) return e;
    if (options.threads > std::ssize(*out)) {
      return error("more threads than cores", "--threads", "at most " + std::to_string(out->size()),
                   std::to_string(options.threads));
    }
  } else {
    *out = extended(std::move(start), topology, options.threads);
  }
  if (options.threads > std::ssize(*out)) {
    out->assign(options.threads, -1);
  } else if (options.threads > 0) {
    out->resize(options.threads);
  }
  return {};
}

std::string why_tuned(const TunedMachine& tuned) {
  char text[128];
  std::snprintf(text, sizeof text, "tuned: %.4g tokens/s where the default team had %.4g, measured on ",
                tuned.decode.rate, tuned.decode.default_rate);
  return text + tuned.date + " with " + tuned.model + " " + tuned.quant;
}

}  // namespace

TeamCpus team_on(const Topology& topology, std::vector<int32_t> cpus) {
  TeamCpus team;
  team.clusters = clusters_of(topology, cpus);
  team.slowness = slowness_of(topology, cpus);
  team.cpus = std::move(cpus);
  return team;
}

int32_t Plan::most_threads() const { return static_cast<int32_t>(std::max(decode.cpus.size(), prefill.cpus.size())); }

Tuning read_tuning(const Topology& topology) {
  Tuning tuning;
  tuning.key = machine_key(cpu_name(), topology);
  const std::string folder = default_config_folder();
  if (folder.empty()) return tuning;
  tuning.path = folder + "/tune.json";
  std::error_code code;
  if (!std::filesystem::exists(tuning.path, code)) return tuning;
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

Error open_tune_file(const Tuning& tuning, OutputFile* out) {
  if (tuning.path.empty()) return error("no folder for the result", "tune", "HOME or XDG_CONFIG_HOME");
  std::error_code code;
  const std::filesystem::path folder = std::filesystem::path(tuning.path).parent_path();
  std::filesystem::create_directories(folder, code);
  if (code) return error("cannot make the folder", folder.string(), {}, code.message());
  return out->open(tuning.path);
}

Error write_tune_file(const Tuning& tuning, OutputFile& file) {
  if (tuning.machines.empty()) {
    if (std::remove(tuning.path.c_str()) == 0) return {};
    return error("cannot remove", tuning.path, {}, std::strerror(errno));
  }
  const std::string text = tune_file_text(tuning.machines);
  if (Error e = file.write(text.data(), text.size())) return e;
  return file.finish();
}

Error make_plan(const RunOptions& options, const Topology& topology, const Tuning& tuning, Plan* out) {
  const TunedMachine* tuned = tuning.machine ? &*tuning.machine : nullptr;
  const std::vector<int32_t> start = tuned ? tuned->decode.cpus : default_team(topology);
  if (is_team_given(options)) {
    std::vector<int32_t> cpus;
    if (Error e = given_team(options, topology, start, &cpus)) return e;
    out->decode = out->prefill = team_on(topology, cpus);
    out->why_team = options.cores.empty() ? "--threads" : "--cores";
  } else {
    out->decode = team_on(topology, start);
    out->prefill = tuned ? team_on(topology, tuned->prefill.cpus) : out->decode;
    out->why_team = tuned ? why_tuned(*tuned) : "default: " + why_default_team(topology);
  }
  out->several_nodes = topology.memory_nodes > 1;
  out->prefill_chunk = options.prefill_chunk > 0 ? options.prefill_chunk
                       : tuned                   ? tuned->prefill_chunk
                                                 : kDefaultPrefillChunk;
  out->why_chunk = options.prefill_chunk > 0 ? "--prefill-chunk" : tuned ? "tuned" : "default";
  return {};
}

void note_unused(const RunOptions& options, const Tuning& tuning) {
  const bool is_asked = !is_team_given(options) || options.prefill_chunk == 0;
  if (tuning.reason && is_asked) note(tuning.reason.message() + "; going on without it (`pinion tune` renews it)");
}

Error make_plan(const RunOptions& options, Plan* out) {
  Topology topology;
  if (Error e = read_topology(&topology)) return e;
  const Tuning tuning = read_tuning(topology);
  note_unused(options, tuning);
  return make_plan(options, topology, tuning, out);
}

}  // namespace pinion
