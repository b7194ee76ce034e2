// Runs the real program, under the emulator for cross builds, and makes folders for it.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/temp_folder.h"

namespace pinion {

using nlohmann::json;
namespace fs = std::filesystem;

inline const std::string kStories = PINION_TEST_DATA "/stories260k";
inline const std::string kDemo = PINION_SOURCE_DIR "/configs/demo";

struct Folder : TempFolder {
  std::string operator/(const std::string& name) const { return path / name; }
};

inline void write_file(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline json read_json(const fs::path& path) { return json::parse(read_file(path)); }

// Copies the stories model, for tests that change it.
inline void copy_stories(const Folder& folder) {
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer.model", "tokenizer_config.json"}) {
    fs::copy_file(fs::path(kStories) / name, folder.path / name);
  }
}

struct Outcome {
  int status = -1;  // exit status; 128: ended by a signal
  std::string out, err;
};

inline std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// The environment variable PINION_PROGRAM selects another build.
inline std::string command_line(const std::vector<std::string>& arguments) {
  const char* other = std::getenv("PINION_PROGRAM");
  std::string command = PINION_EMULATOR " " + quoted(other ? other : PINION_BINARY);
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  // No test depends on the roof, and reading several times the last-level cache takes seconds.
  if (!arguments.empty() && (arguments[0] == "bench" || arguments[0] == "serve")) command += " --roof-mb 32";
  return command;
}

inline std::vector<std::string> generate(const std::string& folder, const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {"generate", "--model", folder};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return arguments;
}

// Packed weights go to `cache_home`, tuning to `config_home`; by default both are a temporary folder, so that the
// user's files have no effect and are not changed. `cache_home` also contains the Hugging Face cache.
inline Outcome run_pinion(const std::vector<std::string>& arguments, const std::string& input = "",
                          const std::string& cache_home = "", const std::string& config_home = "") {
  const Folder folder;
  const auto home = [&](const std::string& given) { return quoted(given.empty() ? folder.path.string() : given); };
  write_file(folder / "in", input);
  const std::string command = "HF_HUB_CACHE= HUGGINGFACE_HUB_CACHE= HF_HOME= XDG_CACHE_HOME=" + home(cache_home) +
                              " XDG_CONFIG_HOME=" + home(config_home) + " " + command_line(arguments) + " <" +
                              quoted(folder / "in") + " >" + quoted(folder / "out") + " 2>" + quoted(folder / "err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(folder / "out"), read_file(folder / "err")};
}

// The JSON output of a successful run.
inline json run_json(const std::vector<std::string>& arguments, const std::string& input = "") {
  const Outcome outcome = run_pinion(arguments, input);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, false);
}

// Expects the status, and one line that begins with the program's name and contains `cause`.
inline void expect_failure(const Outcome& outcome, int status, const std::string& cause) {
  EXPECT_EQ(outcome.status, status) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("pinion: ")) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(cause), std::string::npos) << outcome.err;
}

}  // namespace pinion
