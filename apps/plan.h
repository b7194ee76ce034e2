// Which cores and what chunk a run takes, and why: the command line over what `pinion tune` found over the default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/output_file.h"
#include "engine/topology.h"
#include "engine/tuning.h"
#include "kernels/error.h"

namespace pinion {

struct RunOptions;  // apps/common.h

// The CPUs of a team's workers, the clusters of those, and how slow they are (see Team).
struct TeamCpus {
  std::vector<int32_t> cpus;
  std::vector<int32_t> clusters;
  std::vector<double> slowness;
};

TeamCpus team_on(const Topology& topology, std::vector<int32_t> cpus);

struct Plan {
  TeamCpus decode;
  TeamCpus prefill;
  int64_t prefill_chunk = 0;
  bool several_nodes = false;  // memory belongs to nodes: weights shall lie near who reads them
  std::string why_team;        // "default: one worker a core", "--cores", "tuned: 43.4 tokens/s where ..."
  std::string why_chunk;       // "default", "--prefill-chunk", "tuned"

  int32_t most_threads() const;
};

// What the tune file, CONFIG/pinion/tune.json, says about this machine.
struct Tuning {
  std::string path;                     // empty where the user has no folder for it
  std::string key;                      // of this machine
  std::vector<TunedMachine> machines;   // all that the file has
  std::optional<TunedMachine> machine;  // this one, where it can be used
  Error reason;                         // why there is a file that does not help
  bool is_damaged = false;              // that is: it cannot be read, or is no such file
};

Tuning read_tuning(const Topology& topology);

// Writing it: the folder and the file are opened before anything long begins. Without a machine left the file goes.
Error open_tune_file(const Tuning& tuning, OutputFile* out);
Error write_tune_file(const Tuning& tuning, OutputFile& file);

// Those of --cores, else the tuned or the default team; then as many as --threads asks for, the fastest other cores
// added. More threads than there are cores run unpinned. An option that was given is for decode and prefill alike.
Error make_plan(const RunOptions& options, const Topology& topology, const Tuning& tuning, Plan* out);

// Where the file does not help and the options leave something to it, a line says why.
void note_unused(const RunOptions& options, const Tuning& tuning);

// All of that for this machine.
Error make_plan(const RunOptions& options, Plan* out);

}  // namespace pinion
