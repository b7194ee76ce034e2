// Runs a fuzz target over the files of the folders named on the command line, so that every compiler and every platform
// replays the seeds as an ordinary test; libFuzzer itself comes with the fuzz preset.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

std::vector<std::filesystem::path> seeds_in(const char* folder) {
  std::vector<std::filesystem::path> seeds;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) seeds.push_back(entry.path());
  std::ranges::sort(seeds);
  return seeds;
}

void replay(const std::filesystem::path& seed) {
  std::printf("%s\n", seed.c_str());
  std::fflush(stdout);  // a crash leaves the name of its seed as the last line
  std::ifstream file(seed, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const auto seeds = seeds_in(argv[i]);
    if (seeds.empty()) {
      std::fprintf(stderr, "%s: no seeds\n", argv[i]);
      return 1;
    }
    for (const auto& seed : seeds) replay(seed);
  }
  return 0;
}
