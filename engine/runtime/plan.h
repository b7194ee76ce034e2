// The plan of a run: CPUs, prefill chunk and access pattern: the caller's choice, the tune file's, or the default.
#pragma once

#include <optional>

#include "engine/measure/tuning.h"
#include "engine/team/topology.h"
#include "kernels/access_pattern.h"
#include "kernels/base/error.h"

namespace pinion {

// Arguments of Team's constructor, one entry per worker.
struct TeamCpus {
  std::vector<int32_t> cpus;
  std::vector<SmeUnits> sme;
  std::vector<double> slowness;
};

TeamCpus team_on(const Topology& topology, std::vector<int32_t> cpus);

// Teams, chunk and access pattern of a run.
struct Plan {
  TeamCpus decode;
  TeamCpus prefill;
  int64_t prefill_chunk = 0;
  size_t access = default_access_pattern();  // a row of kAccessPatterns
  std::string why_team;   // "default: one worker a core", "--cores", "tuned: 43.4 tokens/s where ..."
  std::string why_chunk;  // "default", "--prefill-chunk", "tuned"
};

// The caller's choice. A team applies to decode and prefill.
struct PlanOptions {
  std::vector<int32_t> cpus = {};  // --cores; empty: tuned, else the default team
  int32_t threads = 0;             // --threads; 0: one per CPU
  int64_t prefill_chunk = 0;       // 0: tuned, else the default

  bool has_team() const { return !cpus.empty() || threads > 0; }
};

// The tune file, CONFIG/pinion/tune.json, and its entry for this machine.
struct Tuning {
  std::string path;                     // empty: the user has no config folder
  std::string key;                      // machine_key() of this machine
  std::vector<TunedMachine> machines;   // all entries of the file
  std::optional<TunedMachine> machine;  // the entry for this machine, if usable
  Error reason;                         // why the file does not apply; empty: it applies or does not exist
  bool is_damaged = false;              // the file exists but is unreadable or invalid
};

Tuning read_tuning(const Topology& topology);

// The team is options.cpus, else the tuned or default team. It is shortened to options.threads, or extended to that
// number by the fastest other cores. If there are more threads than cores, all workers run unpinned.
Error make_plan(const PlanOptions& options, const Topology& topology, const Tuning& tuning, Plan* out);

}  // namespace pinion
