// Recorded machines: tests/data/topology/NAME.txt has lines of PATH:CONTENT, without the leading slash and without
// unused files. Recorded in /sys/devices/system/cpu by:
//   grep -rs '' $PWD/{online,possible,present,cpu[0-9]*/{topology,cache,cpufreq,cpu_capacity,regs}}
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/team/topology.h"
#include "tests/temp_folder.h"

namespace pinion {

using Cpus = std::vector<int32_t>;

// Writes the files of a recording below `root`. more: additional lines.
inline void unpack_recording(const std::string& name, const std::filesystem::path& root,
                             const std::vector<std::string>& more = {}) {
  std::ifstream recording(PINION_TEST_DATA "/topology/" + name + ".txt");
  EXPECT_TRUE(recording.is_open()) << name;
  std::vector<std::string> lines;
  for (std::string line; std::getline(recording, line);) {
    if (!line.starts_with('#')) lines.push_back(line);
  }
  lines.insert(lines.end(), more.begin(), more.end());
  for (const std::string& line : lines) {
    const size_t colon = line.find(':');
    const std::filesystem::path path = root / line.substr(0, colon);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::app) << line.substr(colon + 1) << '\n';
  }
}

inline Topology recorded(const std::string& name, const Cpus& usable = {}, const std::vector<std::string>& more = {}) {
  const TempFolder root;
  unpack_recording(name, root.path, more);
  Topology topology;
  const Error e = read_topology(&topology, root.string(), usable);
  EXPECT_FALSE(e) << e.message();
  return topology;
}

}  // namespace pinion
