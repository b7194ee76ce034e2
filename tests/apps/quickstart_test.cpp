// tools/quickstart: what it adds to the options that are given. It builds nothing here: the tools around it are stubs.
#include "tests/apps/program.h"

namespace pinion {
namespace {

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
  // What pinion is started with, MODEL being the demo model's folder.
  std::string started_with(const std::string& arguments) const {
    const std::string out = *this / "out", demo = *this / "configs/demo";
    EXPECT_EQ(std::system(("bash " + (*this / "tools/quickstart") + " " + arguments + " >" + out).c_str()), 0);
    std::string text = read_file(out);
    if (const size_t at = text.find(demo); at != text.npos) text.replace(at, demo.size(), "MODEL");
    return text.substr(0, text.find('\n'));
  }
};

TEST(Quickstart, AddsOnlyWhatIsNotGiven) {
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
