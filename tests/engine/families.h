// The small models of all families in tests/data/families.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace pinion {

inline const std::filesystem::path kFamilyFolders = PINION_TEST_DATA "/families";

// Names of all families, sorted.
inline std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFamilyFolders)) {
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

// Tests of every family: with the reference, or of two results of the program with each other.
enum class FamilyTest : uint8_t { boards, kv_types, speculation, reference };

// Builds whose tests are many times slower: under a sanitizer, and for Arm64, which usually run in the emulator.
#if defined(__aarch64__) || defined(PINION_SANITIZED)
constexpr bool kIsSlowBuild = true;
#else
constexpr bool kIsSlowBuild = false;
#endif

// Slow builds take every third family, each test another third. Under a sanitizer engine.reference takes all, so that
// all code runs; for Arm64 other tests compare the kernels with the scalar ones. Other builds take all families.
inline std::vector<std::string> family_names(FamilyTest test) {
#if defined(PINION_SANITIZED)
  const bool takes_all = test == FamilyTest::reference;
#else
  const bool takes_all = !kIsSlowBuild;
#endif
  std::vector<std::string> names;
  for (size_t i = 0; const std::string& name : family_names()) {
    if (takes_all || i++ % 3 == static_cast<size_t>(test) % 3) names.push_back(name);
  }
  return names;
}

}  // namespace pinion
