// fuzz_replay NAME: runs a fuzz target over its seeds.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/target.h"

namespace {

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

void replay(pinion::FuzzTarget* target, const std::filesystem::path& seed) {
  std::printf("%s\n", seed.c_str());
  std::fflush(stdout);  // a crash leaves the name of its seed as the last line
  std::ifstream file(seed, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc == 2 ? argv[1] : "";
  const auto target = pinion::fuzz_targets().find(name);
  const auto seeds = files_in("tests/fuzz/seeds/" + name);
  if (target == pinion::fuzz_targets().end() || seeds.empty()) {
    std::fprintf(stderr, "'%s': no target or no seeds\n", name.c_str());
    return 1;
  }
  for (const auto& seed : seeds) replay(target->second, seed);
  return 0;
}
