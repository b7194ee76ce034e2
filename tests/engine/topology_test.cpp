// Topologies of recorded machines and of this machine.
#include "engine/team/topology.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/recorded.h"

namespace pinion {
namespace {

using Units = std::vector<SmeUnits>;

// SME units of cores that share the first or second last-level cache, without a register.
constexpr SmeUnits kFirst = {0, 1}, kSecond = {1, 1};

// CPUs of the cores of a kind.
Cpus of_kind(const Topology& topology, int32_t kind) {
  Cpus cpus;
  for (const Core& core : topology.cores) {
    if (core.kind == kind) cpus.push_back(core.cpu);
  }
  return cpus;
}

Cpus parsed(std::string_view list, const Topology& topology) {
  Cpus cpus;
  const Error e = parse_cores(list, topology, &cpus);
  EXPECT_FALSE(e) << e.message();
  return cpus;
}

std::string refusal(std::string_view list, const Topology& topology) {
  Cpus cpus;
  return parse_cores(list, topology, &cpus).message();
}

TEST(Topology, Rk3588HasTwoKinds) {
  const Topology board = recorded("rk3588");
  EXPECT_EQ(board.kinds, 2);
  EXPECT_EQ(of_kind(board, 0), Cpus({4, 5, 6, 7}));  // two clocks, one kind
  EXPECT_EQ(of_kind(board, 1), Cpus({0, 1, 2, 3}));
  EXPECT_EQ(board.cores[0].max_mhz, 1800);
  EXPECT_EQ(board.cores[7].max_mhz, 2352);
  EXPECT_EQ(board.last_level_cache_bytes, 3 << 20);
  EXPECT_EQ(board.cpu_quota, 0);
  EXPECT_EQ(default_team(board), Cpus({4, 5, 6, 7}));
  EXPECT_EQ(sme_units_of(board, Cpus({4, 0, 7, -1})), Units(4, kFirst));  // all share the last-level cache
}

TEST(Topology, ClustersShareAnSmeUnit) {
  const Topology machine = recorded("x86_smt");
  EXPECT_EQ(sme_units_of(machine, default_team(machine)).size(), default_team(machine).size());
  Topology two;
  two.cores = {{.cpu = 0, .kind = 0, .package = 0, .sme = kFirst, .max_mhz = 0},
               {.cpu = 4, .kind = 0, .package = 0, .sme = kSecond, .max_mhz = 0}};
  EXPECT_EQ(sme_units_of(two, Cpus({4, 0, 4, 9})), Units({kSecond, kFirst, kSecond, kFirst}));
}

// SMIDR_EL1: Affinity in bits 0 to 11, SH 13 to 14, the implementer 24 to 31, Affinity2 32 to 51, NSMC 56 to 59.
TEST(Topology, SmeUnitsFromSmidr) {
  const auto share = [](uint64_t smidr, int32_t cpu, int32_t cluster) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(smidr));
    return parse_smidr(text, cpu, cluster);
  };
  constexpr uint64_t kArm = 0x41u << 24, kAlone = 2u << 13, kShared = 3u << 13;
  EXPECT_EQ(share(kArm | 5, 0, 0), share(kArm | 5, 7, 1));  // affinity: shared across clusters
  EXPECT_FALSE(share(kArm | 5, 0, 0) == share(kArm | 6, 0, 0));
  EXPECT_FALSE(share(kArm, 0, 0) == share(kArm, 1, 0));  // no affinity: each core has its own
  EXPECT_FALSE(share(kArm | kAlone | 5, 0, 0) == share(kArm | kAlone | 5, 1, 0));
  EXPECT_EQ(share(kArm | kShared, 0, 0), share(kArm | kShared, 1, 1));
  EXPECT_FALSE(share(kArm | kShared | uint64_t{1} << 32, 0, 0) == share(kArm | kShared, 0, 0));
  EXPECT_EQ(share(kArm | kShared, 0, 0).units, 1);
  EXPECT_EQ(share(kArm | kShared | uint64_t{1} << 56, 0, 0).units, 2);
  EXPECT_EQ(share(5, 0, 3), share(5, 9, 3));  // no implementer: a virtual machine; the register is meaningless
  EXPECT_EQ(parse_smidr("", 0, 3), share(0, 1, 3));
  EXPECT_FALSE(parse_smidr("", 0, 3) == parse_smidr("", 0, 2));
}

TEST(Topology, ReadsSmidrOfEachCore) {
  const Topology board = recorded("cix_p1", {},
                                  {"sys/devices/system/cpu/cpu0/regs/identification/smidr_el1:0x0100000041006001",
                                   "sys/devices/system/cpu/cpu5/regs/identification/smidr_el1:0x0100000041006001"});
  EXPECT_EQ(board.cores[0].sme.group, board.cores[5].sme.group);
  EXPECT_EQ(board.cores[5].sme.units, 2);
  EXPECT_NE(board.cores[0].sme.group, board.cores[6].sme.group);
}

TEST(Topology, OnlyUsableCpusCount) {
  const Topology board = recorded("rk3588", {1, 3, 6});
  EXPECT_EQ(board.cpus, Cpus({1, 3, 6}));
  EXPECT_EQ(board.cores.size(), 3u);
  EXPECT_EQ(default_team(board), Cpus({6}));

  const Topology little = recorded("rk3588", {0, 1});
  EXPECT_EQ(little.kinds, 1);
  EXPECT_EQ(default_team(little), Cpus({0, 1}));
}

TEST(Topology, CixP1KindsDifferInDesignAndClock) {
  const Topology board = recorded("cix_p1");
  EXPECT_EQ(board.kinds, 2);
  EXPECT_EQ(of_kind(board, 1), Cpus({1, 2, 3, 4}));
  EXPECT_EQ(default_team(board), Cpus({0, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(board.last_level_cache_bytes, 12 << 20);
}

TEST(Topology, OneWorkerPerCoreOfSmt) {
  const Topology desktop = recorded("x86_smt");
  EXPECT_EQ(desktop.cpus.size(), 8u);
  EXPECT_EQ(of_kind(desktop, 0), Cpus({0, 1, 2, 3}));
  EXPECT_EQ(desktop.cpu_quota, 2.5);
  EXPECT_EQ(default_team(desktop), Cpus({0, 1}));
  EXPECT_EQ(desktop.cores[1].siblings, Cpus({5}));

  // The first thread of a core may be unusable.
  EXPECT_EQ(default_team(recorded("x86_smt", {0, 4, 5})), Cpus({0, 5}));
}

TEST(Topology, OuterGroupsQuotaCounts) {
  const Topology machine = recorded("vm_2cores");
  EXPECT_EQ(machine.kinds, 1);
  EXPECT_EQ(machine.cores.size(), 2u);
  EXPECT_EQ(machine.cores[1].max_mhz, 0);
  EXPECT_EQ(machine.last_level_cache_bytes, 32 << 20);
  EXPECT_EQ(machine.cpu_quota, 1.5);
  EXPECT_EQ(default_team(machine), Cpus({0}));
}

TEST(Topology, CountsNodesOfUsableCpus) {
  const std::string nodes = "sys/devices/system/node/";
  const std::vector<std::string> two = {nodes + "online:0-1", nodes + "node0/cpumap:1", nodes + "node1/cpumap:2",
                                        nodes + "node0/meminfo:Node 0 MemTotal: 8388608 kB",
                                        nodes + "node1/meminfo:Node 1 MemTotal: 8388608 kB"};
  EXPECT_EQ(recorded("vm_2cores", {}, two).memory_nodes, 2);
  EXPECT_EQ(recorded("vm_2cores", {1}, two).memory_nodes, 1);
  EXPECT_EQ(recorded("vm_2cores").memory_nodes, 1);
  const std::vector<std::string> second_kind = {nodes + "online:0-1", nodes + "node0/cpumap:3",
                                                nodes + "node1/cpumap:0", two[3], two[4]};
  EXPECT_EQ(recorded("vm_2cores", {}, second_kind).memory_nodes, 1);
}

TEST(Topology, RaspberryPi5HasOneKind) {
  const Topology board = recorded("raspberry_pi_5");
  EXPECT_EQ(board.kinds, 1);
  EXPECT_EQ(of_kind(board, 0), Cpus({0, 1, 2, 3}));
  EXPECT_EQ(board.cores[3].max_mhz, 2400);
  EXPECT_EQ(board.last_level_cache_bytes, 2 << 20);
  EXPECT_EQ(default_team(board), Cpus({0, 1, 2, 3}));
  EXPECT_EQ(sme_units_of(board, default_team(board)), Units(4, kFirst));
  EXPECT_EQ(slowness_of(board, default_team(board)), std::vector<double>({1, 1, 1, 1}));
}

TEST(Topology, RaspberryPi5InAContainer) {
  const std::vector<std::string> container = {"proc/self/cgroup:0::/system.slice/docker-box.scope",
                                              "sys/fs/cgroup/system.slice/docker-box.scope/cpu.max:300000 100000",
                                              "sys/fs/cgroup/system.slice/cpu.max:max 100000"};
  const Topology box = recorded("raspberry_pi_5", {}, container);
  EXPECT_EQ(box.cores.size(), 4u);
  EXPECT_EQ(box.cpu_quota, 3);
  EXPECT_EQ(default_team(box), Cpus({0, 1, 2}));
  EXPECT_EQ(default_team(recorded("raspberry_pi_5", {1, 3}, container)), Cpus({1, 3}));  // also under taskset
}

TEST(Topology, SnapdragonHasThreeKinds) {
  const Topology phone = recorded("snapdragon_1_3_4");
  EXPECT_EQ(phone.kinds, 3);
  EXPECT_EQ(of_kind(phone, 0), Cpus({7}));
  EXPECT_EQ(of_kind(phone, 1), Cpus({4, 5, 6}));
  EXPECT_EQ(of_kind(phone, 2), Cpus({0, 1, 2, 3}));
  EXPECT_EQ(phone.last_level_cache_bytes, 4 << 20);
  EXPECT_EQ(default_team(phone), Cpus({7, 4, 5, 6}));
  EXPECT_EQ(sme_units_of(phone, default_team(phone)), Units(4, kFirst));
  EXPECT_EQ(slowness_of(phone, Cpus({7, 4, 0, -1})), std::vector<double>({1, 1024 / 810.0, 1024 / 325.0, 1}));
}

TEST(Topology, EqualCapacitiesAreUnknown) {
  Topology phone = recorded("snapdragon_1_3_4");
  for (const int64_t capacity : {0, 1024}) {
    for (Core& core : phone.cores) core.capacity = capacity;
    EXPECT_EQ(default_team(phone), Cpus({7, 4, 5, 6})) << capacity;
    EXPECT_EQ(slowness_of(phone, Cpus({7, 0})), std::vector<double>({1, 4})) << capacity;
  }
}

// Kinds are relative to the usable cores: Android keeps background apps off the prime core, for example.
TEST(Topology, SnapdragonUnderTaskset) {
  EXPECT_EQ(default_team(recorded("snapdragon_1_3_4", {4, 5, 6, 7})), Cpus({7, 4, 5, 6}));
  EXPECT_EQ(default_team(recorded("snapdragon_1_3_4", {0, 1, 2, 3, 4, 5})), Cpus({4, 5}));
  EXPECT_EQ(default_team(recorded("snapdragon_1_3_4", {0, 1, 2, 3, 7})), Cpus({7}));
  EXPECT_EQ(default_team(recorded("snapdragon_1_3_4", {0, 1, 2, 3})), Cpus({0, 1, 2, 3}));
}

TEST(Topology, GravitonHasOneKind) {
  const Topology server = recorded("graviton3");
  EXPECT_EQ(server.kinds, 1);
  EXPECT_EQ(server.cores.size(), 8u);
  EXPECT_EQ(server.cores[0].max_mhz, 0);
  EXPECT_EQ(server.last_level_cache_bytes, 32 << 20);
  EXPECT_EQ(default_team(server), Cpus({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(sme_units_of(server, default_team(server)), Units(8, kFirst));
}

TEST(Topology, HybridX86HasPerformanceAndEfficiencyCores) {
  const Topology desktop = recorded("x86_hybrid");
  EXPECT_EQ(desktop.kinds, 2);
  EXPECT_EQ(desktop.cpus.size(), 16u);
  EXPECT_EQ(of_kind(desktop, 0), Cpus({0, 2, 4, 6}));  // one entry per core with two threads
  EXPECT_EQ(of_kind(desktop, 1), Cpus({8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(desktop.cores[0].max_mhz, 4900);
  EXPECT_EQ(desktop.cores[4].max_mhz, 3600);
  EXPECT_EQ(desktop.last_level_cache_bytes, 25 << 20);
  EXPECT_EQ(default_team(desktop), Cpus({0, 2, 4, 6}));
  EXPECT_EQ(sme_units_of(desktop, Cpus({0, 2, 8, 12})), Units(4, kFirst));  // different L2 caches, one last-level cache
  EXPECT_EQ(slowness_of(desktop, Cpus({0, 8})), std::vector<double>({1, 4}));  // unknown: a cautious guess
  EXPECT_EQ(desktop.cores[3].siblings, Cpus({7}));
  EXPECT_TRUE(desktop.cores[4].siblings.empty());
  EXPECT_EQ(default_team(recorded("x86_hybrid", {1, 8, 9})), Cpus({1}));
}

TEST(DefaultTeam, HasAtLeastOneWorker) {
  Topology machine = recorded("vm_2cores");
  machine.cpu_quota = 0.25;
  EXPECT_EQ(default_team(machine), Cpus({0}));
}

TEST(DefaultTeam, Reasons) {
  EXPECT_EQ(why_default_team(recorded("raspberry_pi_5")), "one worker a core");
  EXPECT_EQ(why_default_team(recorded("rk3588")),
            "one worker a core; without the 4 below half of the fastest core's speed");
  EXPECT_EQ(why_default_team(recorded("x86_hybrid")), "one worker a core; without the 8 of the slowest kind");
  EXPECT_EQ(why_default_team(recorded("x86_smt")),
            "one worker a core; no more than the 2.5 CPUs that the container grants");
}

// The second thread of a slow core is as slow as the first.
TEST(Topology, SiblingsHaveTheirCoresProperties) {
  Topology two;
  two.kinds = 2;
  two.cores = {{.cpu = 0, .kind = 0, .package = 0, .sme = kFirst, .max_mhz = 0, .capacity = 1024, .siblings = {2}},
               {.cpu = 1, .kind = 1, .package = 0, .sme = kSecond, .max_mhz = 0, .capacity = 512, .siblings = {3}}};
  EXPECT_EQ(sme_units_of(two, Cpus({2, 3})), Units({kFirst, kSecond}));
  EXPECT_EQ(slowness_of(two, Cpus({2, 3})), std::vector<double>({1, 2}));
}

TEST(Topology, CpusAsText) {
  EXPECT_EQ(cpus_text(Cpus({0, 1, 2, 3, 8})), "0-3,8");
  EXPECT_EQ(cpus_text(Cpus({7, 4, 5, 6})), "7,4-6");
  EXPECT_EQ(cpus_text(Cpus({-1, -1})), "any,any");
  EXPECT_EQ(cpus_text(Cpus()), "");
}

TEST(Topology, ThisMachine) {
  Topology machine;
  const Error e = read_topology(&machine);
  ASSERT_FALSE(e) << e.message();
  EXPECT_FALSE(machine.cores.empty());
  EXPECT_LE(machine.cores.size(), machine.cpus.size());
  EXPECT_FALSE(default_team(machine).empty());
  EXPECT_TRUE(std::ranges::any_of(machine.cores, [](const Core& core) { return core.kind == 0; }));
}

TEST(ParseCores, NumbersRangesAndKinds) {
  const Topology board = recorded("rk3588");
  EXPECT_EQ(parsed("4-7,0", board), Cpus({4, 5, 6, 7, 0}));
  EXPECT_EQ(parsed("7,2-2", board), Cpus({7, 2}));
  EXPECT_EQ(parsed("big", board), Cpus({4, 5, 6, 7}));
  EXPECT_EQ(parsed("little", board), Cpus({0, 1, 2, 3}));
  EXPECT_EQ(parsed("all", board).size(), 8u);
  EXPECT_EQ(parsed("4,0", recorded("x86_smt")), Cpus({4, 0}));  // both threads of a core, in the given order
}

TEST(ParseCores, ErrorsNameItemAndUsableCpus) {
  const Topology board = recorded("rk3588", {0, 1, 2, 6});
  EXPECT_EQ(refusal("0-3", board), "core list \"0-3\": CPU not available to this process: want 0-2,6, have 3");
  EXPECT_EQ(refusal("0,1,0", board), "core list \"0,1,0\": CPU listed twice: 0");
  for (const char* list : {"", ",", "0,", "2-1", "-1", "1-", "0x1", "big,6", "Big", "1-99999999999", "0 1"}) {
    EXPECT_NE(refusal(list, board).find("not a CPU, a range or a kind of core"), std::string::npos) << list;
  }
  EXPECT_NE(refusal("0-2000000000", board), "");
  EXPECT_NE(refusal("little", recorded("vm_2cores")), "");
}

}  // namespace
}  // namespace pinion
