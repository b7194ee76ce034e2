// The program of a folder's tests. FOLDER_tests NAME runs those of NAME_test.cpp, which is the test FOLDER.NAME;
// without a name all run. GoogleTest's options follow the name: --gtest_filter takes its place.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

// The filter for the tests of a source file without its extension; empty if there are none, or if a test belongs to no
// source file or to several, whose runs would not add up to all tests.
static std::string filter_of(const std::string& source) {
  std::string filter;
  std::set<std::string> names;
  const auto& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const auto& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const auto& test = *suite.GetTestInfo(j);
      const std::string name = std::string(suite.name()) + "." + test.name();
      const std::string stem = std::filesystem::path(test.file()).stem();
      if (!stem.ends_with("_test") || !names.insert(name).second) {
        std::fprintf(stderr, "%s: %s is in a header or in a second file\n", test.file(), name.c_str());
        return "";
      }
      if (stem == source) filter += name + ":";
    }
  }
  if (filter.empty()) std::fprintf(stderr, "%s.cpp: no tests\n", source.c_str());
  return filter;
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 2) {
    std::fprintf(stderr, "unknown argument '%s'\n", argv[2]);
    return 1;
  }
  auto& filter = testing::GTEST_FLAG(filter);
  if (argc == 2 && filter == "*") {
    filter = filter_of(std::string(argv[1]) + "_test");
    if (filter.empty()) return 1;
  }
  return RUN_ALL_TESTS();
}
