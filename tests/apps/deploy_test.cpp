// Files and tools that start pinion: the systemd unit and the Containerfile for `pinion serve` use existing options,
// and tools/quickstart adds the missing ones. The tools that quickstart calls are stubs, so nothing is built.
#include <sstream>

#include "tests/apps/program.h"

namespace pinion {
namespace {

const fs::path kDeploy = PINION_SOURCE_DIR "/apps/serve/deploy";

// The rest of the line that begins with `name`.
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

// The command line is valid: the failure is the missing model.
void expect_command_line(const std::vector<std::string>& words) {
  const std::vector<std::string> arguments(words.begin() + 1, words.end());
  ASSERT_GT(arguments.size(), 4u);
  EXPECT_EQ(arguments.front(), "serve");
  expect_failure(run_pinion(arguments), 1, "/nonexistent/model");
  std::vector<std::string> wrong = arguments;
  wrong.push_back("--no-such-option");
  expect_failure(run_pinion(wrong), 2, "--no-such-option");
}

TEST(Deploy, UnitCommandLineIsValid) {
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

TEST(Deploy, ContainerCommandLineIsValid) {
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

struct Tools : Folder {
  Tools() {
    fs::create_directories(path / "tools");
    fs::create_directories(path / "build/release");
    fs::copy_file(PINION_SOURCE_DIR "/tools/quickstart", path / "tools/quickstart");
    write_file(path / "tools/steps.sh", "root=" + path.string() + "\nstep() { :; }\n");
    program("tools/setup", "");
    program("build/release/pinion", "echo \"$*\"");
  }
  void program(const std::string& name, const std::string& script) const {
    write_file(path / name, "#!/bin/sh\n" + script + "\n");
    fs::permissions(path / name, fs::perms::owner_all);
  }
  // The arguments of pinion, with the demo model's folder replaced by MODEL.
  std::string started_with(const std::string& arguments) const {
    const std::string out = *this / "out", demo = *this / "configs/demo";
    EXPECT_EQ(std::system(("bash " + (*this / "tools/quickstart") + " " + arguments + " >" + out).c_str()), 0);
    std::string text = read_file(out);
    if (const size_t at = text.find(demo); at != text.npos) text.replace(at, demo.size(), "MODEL");
    return text.substr(0, text.find('\n'));
  }
};

TEST(Quickstart, DefaultsForMissingOptions) {
  const Tools tools;
  EXPECT_EQ(tools.started_with(""), "generate --model MODEL --prompt Once upon a time");
  EXPECT_EQ(tools.started_with("-n 5 --presence-penalty 1"),
            "generate -n 5 --presence-penalty 1 --model MODEL --prompt Once upon a time");
  for (const std::string prompt : {"-p Hi", "-pHi", "--prompt Hi", "--prompt=Hi", "-f F", "--prompt-file F",
                                   "--prompt-ids 1,2", "--prompt-ids=1,2"}) {
    EXPECT_EQ(tools.started_with(prompt), "generate " + prompt + " --model MODEL");
  }
  for (const std::string model : {"-m DIR", "--model DIR", "--model=DIR"}) {
    EXPECT_EQ(tools.started_with("chat " + model), "chat " + model);
  }
  EXPECT_EQ(tools.started_with("chat --max-tokens 5"), "chat --max-tokens 5 --model MODEL");
}

}  // namespace
}  // namespace pinion
