// Sources: hwloc for cores, threads, sockets and caches; sysfs for the properties that distinguish kinds of cores; the
// cgroup files for the CPU time of a container. Missing data is no error, except a machine without a usable CPU.
#include "engine/team/topology.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>

#include "engine/team/memory.h"
#include "kernels/base/text.h"

namespace pinion {
namespace {

// The source of a SmeUnits::group, stored in the upper half of the number: equal numbers of two sources stay distinct.
enum GroupSource : int64_t { kCluster, kCpu, kAffinity };
int64_t group_of(GroupSource source, uint64_t number) {
  return static_cast<int64_t>(source) << 32 | static_cast<int64_t>(number & 0xffffffffu);
}

uint64_t bit_field(uint64_t value, int first, int bits) { return value >> first & ((uint64_t{1} << bits) - 1); }

using TopologyHandle =
    std::unique_ptr<hwloc_topology, decltype([](auto* machine) { hwloc_topology_destroy(machine); })>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype([](auto* bitmap) { hwloc_bitmap_free(bitmap); })>;

// Properties that distinguish kinds of cores. 0: unknown.
struct CoreTraits {
  std::string type;      // microarchitecture: "IntelAtom", an Arm part number
  int64_t capacity = 0;  // see Core
  int64_t max_mhz = 0;
  int64_t efficiency = 0;  // hwloc's rank, the most powerful highest
  std::string smidr;       // see parse_smidr()
};

// Implementer and part number from MIDR_EL1 of an Arm core, without variant and revision.
std::string arm_part(const std::string& cpu_folder) {
  const std::string midr = read_word(cpu_folder + "/regs/identification/midr_el1");
  return midr.empty() ? midr : std::to_string(std::strtoull(midr.c_str(), nullptr, 16) & 0xff00fff0);
}

CoreTraits read_traits(hwloc_topology* machine, const std::string& root, const hwloc_obj* thread) {
  const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(thread->os_index);
  CoreTraits traits;
  traits.type = arm_part(folder);
  traits.smidr = read_word(folder + "/regs/identification/smidr_el1");
  traits.capacity = read_number(folder + "/cpu_capacity", 0);
  traits.max_mhz = read_number(folder + "/cpufreq/cpuinfo_max_freq", 0) / 1000;

  const int kind = hwloc_cpukinds_get_by_cpuset(machine, thread->cpuset, 0);
  int efficiency = 0;
  unsigned count = 0;
  hwloc_info_s* infos = nullptr;
  if (kind < 0 ||
      hwloc_cpukinds_get_info(machine, static_cast<unsigned>(kind), nullptr, &efficiency, &count, &infos, 0) != 0) {
    return traits;
  }
  traits.efficiency = std::max(0, efficiency);
  for (const hwloc_info_s& info : std::span(infos, count)) {
    if (std::strcmp(info.name, "CoreType") == 0) traits.type = info.value;
    if (traits.max_mhz == 0 && std::strcmp(info.name, "FrequencyMaxMHz") == 0) traits.max_mhz = std::atoll(info.value);
  }
  return traits;
}

bool is_faster(const CoreTraits& a, const CoreTraits& b) {
  return std::tie(a.capacity, a.max_mhz, a.efficiency) > std::tie(b.capacity, b.max_mhz, b.efficiency);
}

// Clusters of one design differ slightly in clock (RK3588: 2304 and 2352 MHz; CIX P1: 2200 to 2500), as do the favoured
// cores of a desktop CPU: one kind. Compact variants of a design, clocked a third lower, are another kind.
bool is_same_kind(const CoreTraits& fast, const CoreTraits& slow) {
  const auto is_near = [](int64_t more, int64_t less) { return more == 0 || less == 0 || less * 4 >= more * 3; };
  return fast.type == slow.type && is_near(fast.capacity, slow.capacity) && is_near(fast.max_mhz, slow.max_mhz);
}

// Sets cores[i].kind by traits[i]; kinds are ordered by their fastest member. Returns the number of kinds.
int32_t number_kinds(const std::vector<CoreTraits>& traits, std::vector<Core>& cores) {
  std::vector<size_t> order(cores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return is_faster(traits[a], traits[b]) || (!is_faster(traits[b], traits[a]) && a < b);
  });
  std::vector<size_t> fastest;  // of each kind
  for (const size_t i : order) {
    const auto kind = std::ranges::find_if(fastest, [&](size_t j) { return is_same_kind(traits[j], traits[i]); });
    cores[i].kind = static_cast<int32_t>(kind - fastest.begin());
    if (kind == fastest.end()) fastest.push_back(i);
  }
  return static_cast<int32_t>(fastest.size());
}

constexpr hwloc_obj_type_t kCaches[] = {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE,
                                        HWLOC_OBJ_L1CACHE};

// Index of the core's last-level cache; of its package if no cache is known.
int32_t cluster_of(hwloc_topology* machine, hwloc_obj* thread, int32_t package) {
  for (const hwloc_obj_type_t level : kCaches) {
    const hwloc_obj* cache = hwloc_get_ancestor_obj_by_type(machine, level, thread);
    if (cache != nullptr) return static_cast<int32_t>(cache->logical_index);
  }
  return package;
}

// Number of NUMA nodes with usable CPUs. A node without CPUs, such as other memory, belongs to its neighbour.
int32_t memory_nodes(hwloc_topology* machine, const hwloc_bitmap_s* usable) {
  const Bitmap left(hwloc_bitmap_dup(usable));
  int32_t nodes = 0;
  hwloc_obj* node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(machine, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    nodes += hwloc_bitmap_intersects(node->cpuset, left.get()) ? 1 : 0;
    hwloc_bitmap_andnot(left.get(), left.get(), node->cpuset);
  }
  return std::max(1, nodes);
}

int64_t last_level_cache_bytes(hwloc_topology* machine, const hwloc_bitmap_s* usable) {
  for (const hwloc_obj_type_t level : kCaches) {
    int64_t bytes = 0;
    hwloc_obj* cache = nullptr;
    while ((cache = hwloc_get_next_obj_by_type(machine, level, cache)) != nullptr) {
      if (hwloc_bitmap_intersects(cache->cpuset, usable)) bytes += static_cast<int64_t>(cache->attr->cache.size);
    }
    if (bytes > 0) return bytes;
  }
  return 0;
}

// CPUs that a group grants; infinite without a limit. Version 2: "max 100000" or "150000 100000", version 1: two files.
double group_quota(const std::string& folder) {
  int64_t quota_us = 0, period_us = 0;
  std::ifstream both(folder + "/cpu.max");
  if (!(both >> quota_us >> period_us)) {
    quota_us = read_number(folder + "/cpu.cfs_quota_us", 0);
    period_us = read_number(folder + "/cpu.cfs_period_us", 0);
  }
  if (quota_us <= 0 || period_us <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(quota_us) / static_cast<double>(period_us);
}

// The tightest limit; 0: none.
double cgroup_quota(const std::string& root) {
  double quota = std::numeric_limits<double>::infinity();
  for (const std::string& folder : cgroup_folders(root, "cpu")) quota = std::min(quota, group_quota(folder));
  return std::isinf(quota) ? 0 : quota;
}

// Fills out->cores and out->cpus, in the order of the threads' numbers.
void list_cores(hwloc_topology* machine, const std::string& root, const hwloc_bitmap_s* usable, Topology* out) {
  std::vector<CoreTraits> traits;
  std::vector<const hwloc_obj*> seen;
  for (int cpu = hwloc_bitmap_first(usable); cpu >= 0; cpu = hwloc_bitmap_next(usable, cpu)) {
    hwloc_obj* thread = hwloc_get_pu_obj_by_os_index(machine, static_cast<unsigned>(cpu));
    if (thread == nullptr) continue;
    out->cpus.push_back(cpu);
    const hwloc_obj* core = hwloc_get_ancestor_obj_by_type(machine, HWLOC_OBJ_CORE, thread);
    const auto known_core = core == nullptr ? seen.end() : std::ranges::find(seen, core);
    if (known_core != seen.end()) {
      out->cores[known_core - seen.begin()].siblings.push_back(cpu);
      continue;
    }
    seen.push_back(core);
    traits.push_back(read_traits(machine, root, thread));
    const hwloc_obj* package = hwloc_get_ancestor_obj_by_type(machine, HWLOC_OBJ_PACKAGE, thread);
    const int32_t socket = package == nullptr ? 0 : static_cast<int32_t>(package->logical_index);
    const CoreTraits& known = traits.back();
    const SmeUnits sme = parse_smidr(known.smidr, cpu, cluster_of(machine, thread, socket));
    out->cores.push_back({cpu, 0, socket, sme, known.max_mhz, known.capacity});
  }
  out->kinds = number_kinds(traits, out->cores);
}

// Time per task relative to the fastest kind; 0: unknown. A kernel without capacities reports the same for every core.
double known_slowness(const Topology& topology, const Core& core) {
  if (core.kind == 0) return 1;
  int64_t fastest = 0;
  for (const Core& each : topology.cores) fastest = std::max(fastest, each.capacity);
  if (core.capacity == 0 || core.capacity == fastest) return 0;
  return static_cast<double>(fastest) / static_cast<double>(core.capacity);
}

// Cores below half the speed of the fastest add little, and every barrier waits for them. On a phone with 1 prime, 3
// big and 4 little cores, the prime and the big ones (3/4 of its speed) are the team, not the little ones (1/3).
bool is_worth_a_worker(const Topology& topology, const Core& core) {
  const double slowness = known_slowness(topology, core);
  return slowness == 0 ? core.kind < topology.kinds - 1 : slowness <= 2;
}

const Core* core_of(const Topology& topology, int32_t cpu) {
  const auto core = std::ranges::find_if(topology.cores, [cpu](const Core& each) {
    return each.cpu == cpu || std::ranges::find(each.siblings, cpu) != each.siblings.end();
  });
  return core == topology.cores.end() ? nullptr : &*core;
}

bool is_cut_by_quota(const Topology& topology, size_t cores) {
  return topology.cpu_quota > 0 && topology.cpu_quota < static_cast<double>(cores);
}

// "3" or "0-3", first <= last.
bool parse_range(std::string_view text, int32_t* first, int32_t* last) {
  const char* end = text.data() + text.size();
  const auto [after_first, first_code] = std::from_chars(text.data(), end, *first);
  if (first_code != std::errc() || *first < 0) return false;
  *last = *first;
  if (after_first == end) return true;
  if (*after_first != '-') return false;
  const auto [after_last, last_code] = std::from_chars(after_first + 1, end, *last);
  return last_code == std::errc() && after_last == end && *last >= *first;
}

}  // namespace

std::string read_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

SmeUnits parse_smidr(std::string_view smidr, int32_t cpu, int32_t cluster) {
  const uint64_t value = std::strtoull(std::string(smidr).c_str(), nullptr, 16);
  const uint64_t implementer = bit_field(value, 24, 8);
  if (implementer == 0) return {group_of(kCluster, static_cast<uint64_t>(cluster)), 1};
  constexpr uint64_t kByAffinity = 0, kShared = 3;  // values of SH
  const uint64_t sharing = bit_field(value, 13, 2), affinity = bit_field(value, 32, 20) << 12 | bit_field(value, 0, 12);
  const bool is_shared = sharing == kShared || (sharing == kByAffinity && affinity != 0);
  if (!is_shared) return {group_of(kCpu, static_cast<uint64_t>(cpu)), 1};
  return {group_of(kAffinity, affinity), static_cast<int32_t>(bit_field(value, 56, 4)) + 1};
}

Error read_topology(Topology* out, const std::string& root, std::span<const int32_t> cpus) {
  if (!root.empty()) setenv("HWLOC_FSROOT", root.c_str(), 1);
  hwloc_topology* started = nullptr;
  bool is_read = hwloc_topology_init(&started) == 0;
  const TopologyHandle machine(started);
  if (is_read) {
    hwloc_topology_set_all_types_filter(started, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_io_types_filter(started, HWLOC_TYPE_FILTER_KEEP_NONE);
    is_read = hwloc_topology_load(started) == 0;
  }
  const int code = errno;
  if (!root.empty()) unsetenv("HWLOC_FSROOT");
  if (!is_read) return error("hwloc cannot read this machine", "topology", {}, std::strerror(code));
  const Bitmap usable(hwloc_bitmap_alloc());
  for (const int32_t cpu : cpus) hwloc_bitmap_set(usable.get(), static_cast<unsigned>(cpu));
  const bool is_bound = root.empty() && hwloc_get_cpubind(started, usable.get(), HWLOC_CPUBIND_PROCESS) == 0;
  if (cpus.empty() && !is_bound) hwloc_bitmap_copy(usable.get(), hwloc_topology_get_allowed_cpuset(started));
  *out = {};
  list_cores(started, root, usable.get(), out);
  if (out->cores.empty()) return error("no CPU available to this process", "topology");
  out->last_level_cache_bytes = last_level_cache_bytes(started, usable.get());
  out->memory_nodes = memory_nodes(started, usable.get());
  out->cpu_quota = cgroup_quota(root);
  return {};
}

std::vector<Core> fastest_first(const Topology& topology) {
  std::vector<Core> cores = topology.cores;
  std::ranges::sort(cores, {}, [](const Core& core) { return std::pair(core.kind, core.cpu); });
  return cores;
}

std::vector<int32_t> default_team(const Topology& topology) {
  std::vector<Core> cores = fastest_first(topology);
  std::erase_if(cores, [&](const Core& core) { return !is_worth_a_worker(topology, core); });
  if (is_cut_by_quota(topology, cores.size())) {
    cores.resize(std::max<size_t>(1, static_cast<size_t>(topology.cpu_quota)));
  }
  std::vector<int32_t> cpus;
  for (const Core& core : cores) cpus.push_back(core.cpu);
  return cpus;
}

std::string why_default_team(const Topology& topology) {
  std::string text = "one worker a core";
  std::vector<Core> left_out = topology.cores;
  std::erase_if(left_out, [&](const Core& core) { return is_worth_a_worker(topology, core); });
  if (!left_out.empty()) {
    const bool is_known = known_slowness(topology, left_out[0]) > 0;
    text += "; without the " + std::to_string(left_out.size()) +
            (is_known ? " below half of the fastest core's speed" : " of the slowest kind");
  }
  if (!is_cut_by_quota(topology, topology.cores.size() - left_out.size())) return text;
  return text + formatted("; no more than the %g CPUs that the container grants", topology.cpu_quota);
}

std::vector<SmeUnits> sme_units_of(const Topology& topology, std::span<const int32_t> cpus) {
  std::vector<SmeUnits> units;
  for (const int32_t cpu : cpus) {
    const Core* core = core_of(topology, cpu);
    units.push_back(core == nullptr ? SmeUnits{} : core->sme);
  }
  return units;
}

std::vector<double> slowness_of(const Topology& topology, std::span<const int32_t> cpus) {
  constexpr double kCautious = 4;  // too large wastes some of the core's speed, too small delays barriers
  std::vector<double> slowness;
  for (const int32_t cpu : cpus) {
    const Core* core = core_of(topology, cpu);
    const double known = core == nullptr ? 1 : known_slowness(topology, *core);
    slowness.push_back(known == 0 ? kCautious : known);
  }
  return slowness;
}

std::string cpus_text(std::span<const int32_t> cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[i] >= 0 && cpus[last + 1] == cpus[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + (cpus[i] < 0 ? "any" : std::to_string(cpus[i]));
    if (last > i) text += "-" + std::to_string(cpus[last]);
    i = last + 1;
  }
  return text;
}

Error parse_cores(std::string_view list, const Topology& topology, std::vector<int32_t>* out) {
  const std::string where = "core list \"" + std::string(list) + "\"";
  out->clear();
  if (list == "big" || list == "little" || list == "all") {
    if (list == "little" && topology.kinds == 1) return error("the cores are all of one kind", where, "all");
    for (const Core& core : topology.cores) {
      const bool wanted = list == "all" || core.kind == (list == "big" ? 0 : topology.kinds - 1);
      if (wanted) out->push_back(core.cpu);
    }
    return {};
  }
  for (const std::string_view item : split(list, ',')) {
    int32_t first = 0, last = 0;
    if (!parse_range(item, &first, &last)) {
      return error("not a CPU, a range or a kind of core", where, "numbers like 0-3,8 or one of big, little, all",
                   "\"" + std::string(item) + "\"");
    }
    for (int64_t cpu = first; cpu <= last; ++cpu) {
      if (std::ranges::find(topology.cpus, cpu) == topology.cpus.end()) {
        return error("CPU not available to this process", where, cpus_text(topology.cpus), cpu);
      }
      if (std::ranges::find(*out, cpu) != out->end()) return error("CPU listed twice", where, {}, cpu);
      out->push_back(static_cast<int32_t>(cpu));
    }
  }
  return {};
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (line.starts_with("model name") && begin != std::string::npos) return line.substr(begin);
  }
  std::string board;
  std::ifstream model("/proc/device-tree/model");
  std::getline(model, board, '\0');
  return board.empty() ? "unknown" : board;
}

}  // namespace pinion
