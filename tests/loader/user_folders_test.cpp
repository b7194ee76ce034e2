// The user's folders: from XDG variables, else in the home folder, else none.
#include "loader/checkpoint/model_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <string>

#include "tests/loader/make_files.h"

namespace pinion {
namespace {

// Restores a variable of the environment.
class RestoredVariable {
 public:
  explicit RestoredVariable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) before_ = value;
  }
  ~RestoredVariable() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }
  RestoredVariable(const RestoredVariable&) = delete;
  RestoredVariable& operator=(const RestoredVariable&) = delete;

 private:
  const char* name_;
  std::string before_;
};

TEST(UserFolders, VariablesPrecedeTheHome) {
  const RestoredVariable restored_home("HOME");
  const TempFolder home;
  const struct {
    const char* variable;
    std::string (*folder)();
    const char* in_home;
  } kCases[] = {{"XDG_CACHE_HOME", default_cache_folder, "/.cache/pinion"},
                {"XDG_CONFIG_HOME", default_config_folder, "/.config/pinion"}};
  for (const auto& test : kCases) {
    const RestoredVariable restored(test.variable);
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

TEST(UserFolders, HuggingFaceCacheFolder) {
  const RestoredVariable restored[] = {RestoredVariable("HF_HUB_CACHE"), RestoredVariable("HUGGINGFACE_HUB_CACHE"),
                                       RestoredVariable("HF_HOME"), RestoredVariable("XDG_CACHE_HOME")};
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
