// Which cores there are, which of them this process may use, and which make a good team.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/team/sme_units.h"
#include "kernels/base/error.h"

namespace pinion {

struct Core {
  int32_t cpu;           // the operating system's number of its first hardware thread that the process may use
  int32_t kind;          // 0 = fastest kind of core, rising as they get slower
  int32_t package;       // socket
  SmeShare sme;          // the SME units that it uses, if it has SME, and with whom
  int64_t max_mhz;       // 0 = unknown
  int64_t capacity = 0;  // the kernel's figure for the work it does in a given time, 1024 for the fastest; 0 = unknown
  std::vector<int32_t> siblings = {};  // its other hardware threads that the process may use
};

struct Topology {
  std::vector<Core> cores;    // one per physical core that the process may run on, in the order of their numbers
  std::vector<int32_t> cpus;  // every hardware thread that it may run on
  int32_t kinds = 1;
  int64_t last_level_cache_bytes = 0;  // of all last-level caches that those cores have, together; 0 = unknown
  int32_t memory_nodes = 1;            // of memory, each the nearest of some of those cores
  double cpu_quota = 0;                // CPUs' worth of time that a container grants; 0 = no limit
};

std::string cpu_name();  // "AMD EPYC 7B13", the board's name where the CPU has none

// Asks hwloc and sysfs about this machine, limited to the CPUs of the process's affinity mask.
Error read_topology(Topology* out);

// The same about a machine whose /sys and /proc were copied to `root`, for a process that may use `cpus` (empty: all).
// For tests: it sets an environment variable that hwloc reads.
Error read_recorded_topology(const std::string& root, std::span<const int32_t> cpus, Topology* out);

// Its cores, the fastest kind first, of one kind by number.
std::vector<Core> fastest_first(const Topology& topology);

// CPUs of the default team, fastest kind first: one worker per physical core, at least one, and no more than the
// container's quota. Kinds below half of the fastest one's capacity stay out. Where the kernel reports no capacities,
// the slowest of several kinds stays out.
std::vector<int32_t> default_team(const Topology& topology);

// Why it is that: "one worker a core; without the 4 of the slowest kind".
std::string why_default_team(const Topology& topology);

// The SME units of each CPU's core, in the order of `cpus`; those of the default SmeShare for one that is not known.
std::vector<SmeShare> sme_shares_of(const Topology& topology, std::span<const int32_t> cpus);

// The time that each CPU's core takes for a task; the fastest kind takes 1. In the order of `cpus`. A CPU outside the
// topology counts as 1, a slower kind whose capacity is unknown as 4.
std::vector<double> slowness_of(const Topology& topology, std::span<const int32_t> cpus);

// {0, 1, 2, 3, 8}: "0-3,8"; -1, a worker that is not pinned, is "any".
std::string cpus_text(std::span<const int32_t> cpus);

// "0-3,8": CPU numbers in that order; "big", "little", "all": by kind. Each must be one the process may run on.
Error parse_cores(std::string_view list, const Topology& topology, std::vector<int32_t>* out);

}  // namespace pinion
