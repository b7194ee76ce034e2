// The cores of a machine, their kinds and shared SME units, and the team that suits them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

// SME units of a core. All cores with the same `group` share `units` units and wait for one another there.
struct SmeUnits {
  int64_t group = 0;
  int32_t units = 1;

  bool operator==(const SmeUnits&) const = default;
};

// Decodes SMIDR_EL1 of a CPU, as Linux prints it ("0x0000000041000001"). Fields (Arm Architecture Reference Manual, DDI
// 0487): SH and Affinity encode whether the units are shared, Affinity2 and Affinity by which cores, NSMC is the number
// of units - 1. Without the register, or an implementer (virtual machines), cores that share a last-level cache share a
// unit.
SmeUnits parse_smidr(std::string_view smidr, int32_t cpu, int32_t cluster);

struct Core {
  int32_t cpu;                         // the kernel's number of the first usable hardware thread
  int32_t kind;                        // 0: fastest kind of core; larger is slower
  int32_t package;                     // socket
  SmeUnits sme;                        // meaningless without SME
  int64_t max_mhz;                     // 0: unknown
  int64_t capacity = 0;                // the kernel's relative speed, 1024 for the fastest core; 0: unknown
  std::vector<int32_t> siblings = {};  // other usable hardware threads
};

// Usable: in the affinity mask of the process.
struct Topology {
  std::vector<Core> cores;             // every physical core with a usable thread, by number
  std::vector<int32_t> cpus;           // every usable hardware thread
  int32_t kinds = 1;                   // number of different Core::kind
  int64_t last_level_cache_bytes = 0;  // sum over the caches of these cores; 0: unknown
  int32_t memory_nodes = 1;            // NUMA nodes of these cores
  double cpu_quota = 0;                // CPU time that the container grants, in CPUs; 0: unlimited
};

std::string cpu_name();  // "AMD EPYC 7B13"; the board's name if the CPU has none

// The first word of a small file, as in sysfs; empty without one.
std::string read_word(const std::string& path);

// This machine, from hwloc and sysfs. root: a copy of another machine's /sys and /proc, of which `cpus` are usable or,
// if there are none, all; a variable is set while hwloc reads it.
Error read_topology(Topology* out, const std::string& root = {}, std::span<const int32_t> cpus = {});

// Sorted by kind, fastest first, then by number.
std::vector<Core> fastest_first(const Topology& topology);

// CPUs of the default team, fastest kind first: one worker per physical core, at least one, at most cpu_quota. Excludes
// kinds below half of the fastest capacity or, if the kernel reports no capacities, the slowest of several kinds.
std::vector<int32_t> default_team(const Topology& topology);

// The reason for that choice: "one worker a core; without the 4 of the slowest kind".
std::string why_default_team(const Topology& topology);

// SME units of each CPU's core; the default SmeUnits for an unknown CPU.
std::vector<SmeUnits> sme_units_of(const Topology& topology, std::span<const int32_t> cpus);

// Time per task of each CPU's core relative to the fastest kind; 1 if unknown, 4 for a slower kind of unknown capacity.
std::vector<double> slowness_of(const Topology& topology, std::span<const int32_t> cpus);

// {0, 1, 2, 3, 8}: "0-3,8"; -1 (an unpinned worker): "any".
std::string cpus_text(std::span<const int32_t> cpus);

// "0-3,8": these CPUs in this order; "big", "little", "all": cores by kind. Errors: syntax, unusable or repeated CPUs.
Error parse_cores(std::string_view list, const Topology& topology, std::vector<int32_t>* out);

}  // namespace pinion
