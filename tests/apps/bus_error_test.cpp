// A file that is shortened, or whose disk fails, while it is mapped.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/apps/program.h"

namespace pinion {
namespace {

// A chat with a copy of the demo model whose weights are cut off after the first answer.
TEST(BusError, AShortenedFileIsNamedAndNothingElseHappens) {
  const Folder folder;
  const fs::path model = folder.path / "model";
  fs::copy(kDemo, model);
  ASSERT_EQ(mkfifo((folder / "in").c_str(), 0600), 0);
  std::signal(SIGPIPE, SIG_IGN);
  const std::string command = "XDG_CACHE_HOME=" + quoted(folder.path) + " " +
                              command_line({"chat", "--model", model, "--max-tokens", "4"}) + " <" +
                              quoted(folder / "in") + " 2>" + quoted(folder / "err");
  FILE* answers = popen(command.c_str(), "r");
  ASSERT_NE(answers, nullptr);
  const int questions = open((folder / "in").c_str(), O_WRONLY);
  const auto ask = [&] { return write(questions, "Who are you?\n", 13); };
  ASSERT_EQ(ask(), 13);
  EXPECT_NE(std::fgetc(answers), EOF) << read_file(folder / "err");
  fs::resize_file(model / "model.safetensors", 0);
  (void)ask();
  (void)ask();
  close(questions);
  while (std::fgetc(answers) != EOF) {
  }
  const int status = pclose(answers);
  const Outcome outcome = {WIFEXITED(status) ? WEXITSTATUS(status) : 128, "", read_file(folder / "err")};
  expect_failure(outcome, 1, "model.safetensors: cannot be read any more");
}

}  // namespace
}  // namespace pinion
