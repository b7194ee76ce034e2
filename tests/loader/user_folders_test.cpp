// The user's folders: the XDG variables, else the home folder, else none.
#include "loader/files/user_folders.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <string>

#include "tests/loader/make_files.h"

namespace pinion {
namespace {

// A variable of the environment comes back as it was.
class Kept {
 public:
  explicit Kept(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) before_ = value;
  }
  ~Kept() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  const char* name_;
  std::string before_;
};

TEST(UserFolders, FollowTheVariablesThenTheHome) {
  const Kept home_kept("HOME");
  const TempFolder home;
  const struct {
    const char* variable;
    std::string (*folder)();
    const char* in_home;
  } kCases[] = {{"XDG_CACHE_HOME", default_cache_folder, "/.cache/pinion"},
                {"XDG_CONFIG_HOME", default_config_folder, "/.config/pinion"}};
  for (const auto& test : kCases) {
    const Kept kept(test.variable);
    setenv("HOME", home.path.c_str(), 1);
    setenv(test.variable, "/somewhere", 1);
    EXPECT_EQ(test.folder(), "/somewhere/pinion");
    setenv(test.variable, "relative", 1);
    EXPECT_EQ(test.folder(), home.path.string() + test.in_home);
    unsetenv(test.variable);
    EXPECT_EQ(test.folder(), home.path.string() + test.in_home);
    setenv("HOME", "/nonexistent", 1);
    EXPECT_EQ(test.folder(), "");
    unsetenv("HOME");
    EXPECT_EQ(test.folder(), "");
  }
}

TEST(UserFolders, TheHuggingFaceCacheIsWhereItsToolsKeepIt) {
  const Kept kept[] = {Kept("HF_HUB_CACHE"), Kept("HUGGINGFACE_HUB_CACHE"), Kept("HF_HOME"), Kept("XDG_CACHE_HOME")};
  setenv("HF_HUB_CACHE", "/first", 1);
  setenv("HUGGINGFACE_HUB_CACHE", "/second", 1);
  setenv("HF_HOME", "/third", 1);
  setenv("XDG_CACHE_HOME", "/fourth", 1);
  EXPECT_EQ(hugging_face_cache_folder(), "/first");
  setenv("HF_HUB_CACHE", "", 1);
  EXPECT_EQ(hugging_face_cache_folder(), "/second");
  unsetenv("HUGGINGFACE_HUB_CACHE");
  EXPECT_EQ(hugging_face_cache_folder(), "/third/hub");
  unsetenv("HF_HOME");
  EXPECT_EQ(hugging_face_cache_folder(), "/fourth/huggingface/hub");
}

}  // namespace
}  // namespace pinion
