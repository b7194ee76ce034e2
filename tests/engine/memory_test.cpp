// Free memory in synthetic trees of /proc and /sys, and the error for too little.
#include "engine/team/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "loader/files/mapped_file.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

struct Machine : TempFolder {
  // Each file as "PATH:CONTENT".
  explicit Machine(const std::vector<std::string>& files) {
    for (const std::string& file : files) {
      const size_t colon = file.find(':');
      const std::filesystem::path target = path / file.substr(0, colon);
      std::filesystem::create_directories(target.parent_path());
      std::ofstream(target) << file.substr(colon + 1) << '\n';
    }
  }
};

const std::string kMeminfo = "proc/meminfo:MemTotal: 4000 kB\nMemFree: 100 kB\nMemAvailable: 3000 kB";
const std::string kGroup = "proc/self/cgroup:";
const std::string kMount = "sys/fs/cgroup/";
constexpr int64_t kFree_bytes = 3000 * 1024;

FreeMemory free_in(const std::vector<std::string>& files) { return free_memory(Machine(files).string()); }

TEST(FreeMemory, MemAvailableWithoutGroups) {
  const FreeMemory free = free_in({kMeminfo});
  EXPECT_EQ(free.bytes, kFree_bytes);
  EXPECT_EQ(free.text(), "4 MB free");
  EXPECT_GT(free_in({}).bytes, int64_t{1} << 60);  // unknown: no limit
}

TEST(FreeMemory, OwnGroupOfVersion2) {
  const FreeMemory free =
      free_in({kMeminfo, kGroup + "0::/a", kMount + "a/memory.max:1000000", kMount + "a/memory.current:700000",
               kMount + "a/memory.stat:anon 1\nactive_file 30000\ninactive_file 20000"});
  EXPECT_EQ(free.bytes, 350000);
  EXPECT_EQ(free.limit, "left by /sys/fs/cgroup/a/memory.max");
}

TEST(FreeMemory, OuterGroupOfVersion2) {
  const std::vector<std::string> files = {
      kMeminfo,
      kGroup + "0::/a/b/c",
      kMount + "a/b/c/memory.max:max",
      kMount + "a/b/c/memory.current:10",
      kMount + "a/memory.max:500000",
      kMount + "a/memory.current:400000",
  };
  EXPECT_EQ(free_in(files).bytes, 100000);
  EXPECT_EQ(free_in(files).limit, "left by /sys/fs/cgroup/a/memory.max");
  std::vector<std::string> slowed = files;
  slowed.push_back(kMount + "a/b/memory.high:50000");
  slowed.push_back(kMount + "a/b/memory.current:10000");
  EXPECT_EQ(free_in(slowed).bytes, 40000);
  EXPECT_EQ(free_in(slowed).limit, "left by /sys/fs/cgroup/a/b/memory.high");
}

TEST(FreeMemory, ContainerGroupMountedAsRoot) {
  const std::vector<std::string> group = {kMeminfo, kMount + "memory.max:500000", kMount + "memory.current:1"};
  std::vector<std::string> named = group, rooted = group;
  named.push_back(kGroup + "0::/docker/0123");
  rooted.push_back(kGroup + "0::/");
  for (const auto& files : {named, rooted}) {
    EXPECT_EQ(free_in(files).bytes, 499999);
    EXPECT_EQ(free_in(files).limit, "left by /sys/fs/cgroup/memory.max");
  }
}

TEST(FreeMemory, Version1AndOuterGroups) {
  const std::string group = kMount + "memory/box/";
  const std::vector<std::string> files = {kMeminfo,
                                          kGroup + "4:cpu,cpuacct:/else\n3:hugetlb,memory:/box/inner\n0::/",
                                          group + "inner/memory.limit_in_bytes:9223372036854771712",
                                          group + "inner/memory.usage_in_bytes:5",
                                          group + "memory.limit_in_bytes:800000",
                                          group + "memory.usage_in_bytes:600000",
                                          group +
                                              "memory.stat:active_file 7\ntotal_active_file 1000\n"
                                              "total_inactive_file 2000"};
  EXPECT_EQ(free_in(files).bytes, 203000);
  EXPECT_EQ(free_in(files).limit, "left by /sys/fs/cgroup/memory/box/memory.limit_in_bytes");
}

TEST(FreeMemory, FullAndUnlimitedGroups) {
  EXPECT_EQ(free_in({kMeminfo, kGroup + "0::/", kMount + "memory.max:5", kMount + "memory.current:9"}).bytes, 0);
  const FreeMemory unlimited =
      free_in({kMeminfo, kGroup + "4:memory:/", kMount + "memory/memory.limit_in_bytes:9223372036854771712",
               kMount + "memory/memory.usage_in_bytes:1", kMount + "memory/memory.stat:total_active_file 900"});
  EXPECT_EQ(unlimited.bytes, kFree_bytes);
  EXPECT_EQ(unlimited.limit, "free");
}

TEST(FreeMemory, MalformedFilesSetNoLimit) {
  for (const std::string line : {"", "no colons", "0:memory", "::", "x:y:z"}) {
    EXPECT_EQ(free_in({kMeminfo, kGroup + line, kMount + "memory.max:twelve", kMount + "memory.current:"}).bytes,
              kFree_bytes)
        << line;
  }
}

TEST(Cgroups, InnermostToRoot) {
  const Machine machine({kGroup + "2:cpu:/a/b\n0::/c"});
  const std::string mount = machine.string() + "/sys/fs/cgroup";
  EXPECT_EQ(cgroup_folders(machine.string(), "cpu"),
            std::vector<std::string>({mount + "/cpu/a/b", mount + "/cpu/a", mount + "/cpu", mount + "/c", mount}));
  EXPECT_EQ(cgroup_folders(machine.string(), "memory"), std::vector<std::string>({mount + "/c", mount}));
}

TEST(CheckMemory, ErrorHasSizesAndLimit) {
  const FreeMemory free = {400'000'000, "left by /sys/fs/cgroup/box/memory.max"};
  EXPECT_FALSE(check_memory(400'000'000, free, "too little memory for the weights", "some/model"));
  EXPECT_EQ(check_memory(1'500'000'001, free, "too little memory for the weights", "some/model").message(),
            "some/model: too little memory for the weights: want 1501 MB, have 400 MB left by "
            "/sys/fs/cgroup/box/memory.max");
}

TEST(ResidentBytes, TouchedPagesOfAnArena) {
  constexpr int64_t kSize = int64_t{64} << 20, kHugePage = int64_t{2} << 20;
  Arena arena;
  ASSERT_EQ(allocate_arena(kSize, &arena).message(), "");
  EXPECT_EQ(resident_bytes(arena.data, kSize), 0);
  const int64_t before = private_bytes();
  std::memset(arena.data + kSize / 2, 1, kSize / 4);
  EXPECT_GE(resident_bytes(arena.data, kSize), kSize / 4);
  EXPECT_LE(resident_bytes(arena.data, kSize), kSize / 4 + 2 * kHugePage);
  EXPECT_GE(private_bytes(), before + kSize / 4);
  EXPECT_EQ(resident_bytes(nullptr, 0), 0);
}

}  // namespace
}  // namespace pinion
