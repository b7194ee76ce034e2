// The files by which others start `pinion serve` name options that it has: a unit of systemd's, a container's command.
#include <sstream>

#include "tests/apps/program.h"

namespace pinion {
namespace {

const fs::path kDeploy = PINION_SOURCE_DIR "/apps/serve/deploy";

// What follows NAME at the beginning of a line.
std::string value_of(const std::string& file, const std::string& name) {
  std::istringstream lines(read_file(kDeploy / file));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name)) return line.substr(name.size());
  }
  ADD_FAILURE() << file << " has no " << name;
  return {};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

// It gets as far as the model, which is not there: the command line is right.
void expect_command_line(const std::vector<std::string>& words) {
  const std::vector<std::string> arguments(words.begin() + 1, words.end());
  ASSERT_GT(arguments.size(), 4u);
  EXPECT_EQ(arguments.front(), "serve");
  expect_failure(run_pinion(arguments), 1, "/nonexistent/model");
  std::vector<std::string> wrong = arguments;
  wrong.push_back("--no-such-option");
  expect_failure(run_pinion(wrong), 2, "--no-such-option");
}

TEST(Deploy, TheUnitsCommandLineIsOne) {
  const Folder folder;
  write_file(folder / "keys", "key\n");
  std::string line = value_of("pinion-serve.service", "ExecStart=");
  line = replaced(line, "${PINION_MODEL}", "/nonexistent/model");
  line = replaced(line, "${CREDENTIALS_DIRECTORY}", folder.path);
  line = replaced(line, " $PINION_OPTIONS", "");
  std::istringstream text(line);
  std::vector<std::string> words;
  for (std::string word; text >> word;) words.push_back(word);
  EXPECT_TRUE(words.front().ends_with("/pinion"));
  expect_command_line(words);
}

TEST(Deploy, TheContainersCommandLineIsOne) {
  const Folder folder;
  write_file(folder / "keys", "key\n");
  json words = json::parse(value_of("Containerfile", "ENTRYPOINT "));
  for (const json& word : json::parse(value_of("Containerfile", "CMD "))) words.push_back(word);
  for (json& word : words) {
    if (word == "/model") word = "/nonexistent/model";
    if (word == "/run/secrets/pinion-keys") word = folder / "keys";
  }
  expect_command_line(words);
}

TEST(Deploy, SystemdUnderstandsTheUnit) {
  if (std::system("systemd-analyze --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no systemd-analyze here";
  const Folder home;
  fs::create_directories(home.path / ".local/bin");
  write_file(home / ".local/bin/pinion", "#!/bin/sh\n");
  fs::permissions(home.path / ".local/bin/pinion", fs::perms::owner_all);
  const std::string environment = "HOME=" + quoted(home.path) + " XDG_RUNTIME_DIR=" + quoted(home.path) + " ";
  const std::string unit = quoted(kDeploy / "pinion-serve.service");
  const int status = std::system(
      (environment + "systemd-analyze --user verify " + unit + " >" + quoted(home / "out") + " 2>&1").c_str());
  EXPECT_EQ(status, 0) << read_file(home / "out");
  EXPECT_EQ(read_file(home / "out"), "");
}

}  // namespace
}  // namespace pinion
