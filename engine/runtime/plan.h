// Which cores and what prefill chunk a run takes, and why: the caller's choice, else what `pinion tune` found, else the
// default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/measure/tuning.h"
#include "engine/team/topology.h"
#include "kernels/access_pattern.h"
#include "kernels/base/error.h"

namespace pinion {

// The CPUs of a team's workers, the SME units of those, and how slow they are (see Team).
struct TeamCpus {
  std::vector<int32_t> cpus;
  std::vector<SmeShare> sme;
  std::vector<double> slowness;
};

TeamCpus team_on(const Topology& topology, std::vector<int32_t> cpus);

struct Plan {
  TeamCpus decode;
  TeamCpus prefill;
  int64_t prefill_chunk = 0;
  size_t access = default_access_pattern();  // a row of kAccessPatterns
  bool is_numa = false;                      // several NUMA nodes: each worker's weights shall lie on its own
  std::string why_team;   // "default: one worker a core", "--cores", "tuned: 43.4 tokens/s where ..."
  std::string why_chunk;  // "default", "--prefill-chunk", "tuned"
};

// The caller's choice. A team that it names is for decode and prefill alike.
struct PlanOptions {
  std::vector<int32_t> cpus = {};  // --cores; empty: as tuned, else the default team
  int32_t threads = 0;             // --threads; 0: one for each of these
  int64_t prefill_chunk = 0;       // 0: as tuned, else the default

  bool has_team() const { return !cpus.empty() || threads > 0; }
};

// What the tune file, CONFIG/pinion/tune.json, says about this machine.
struct Tuning {
  std::string path;                     // empty where the user has no folder for it
  std::string key;                      // of this machine
  std::vector<TunedMachine> machines;   // all that the file has
  std::optional<TunedMachine> machine;  // this one, where it can be used
  Error reason;                         // why the file does not apply; empty: it applies, or there is none
  bool is_damaged = false;              // the file exists, but cannot be read or is not a valid tune file
};

Tuning read_tuning(const Topology& topology);

// The CPUs that options name, else the tuned or the default team; then as many of them as options.threads, or with the
// fastest other cores added. More threads than there are cores run unpinned.
Error make_plan(const PlanOptions& options, const Topology& topology, const Tuning& tuning, Plan* out);

}  // namespace pinion
