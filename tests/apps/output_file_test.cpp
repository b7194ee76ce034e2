// Output files: replacing files, following links, and writing to open descriptors. Never uses /dev/stdout itself:
// a failing test would replace it.
#include <sys/stat.h>

#include "tests/apps/chat.h"

namespace pinion {
namespace {

const std::string kMagic = std::string("\x93NUMPY");

std::vector<std::string> logits_to(const std::string& out) {
  return {"logits", "--model", kStories, "--prompt-ids", "1,403", "--out", out};
}

mode_t mode_of(const fs::path& path) {
  struct stat status = {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

int64_t files_in(const Folder& folder) { return std::distance(fs::directory_iterator(folder.path), {}); }

TEST(OutputFile, OpenDescriptorIsWrittenDirectly) {
  const Folder folder;
  ASSERT_EQ(run_pinion(logits_to(folder / "F.npy")).status, 0);
  const std::string expected = read_file(folder / "F.npy");
  ASSERT_TRUE(expected.starts_with(kMagic));
  fs::create_symlink("/proc/self/fd/1", folder / "stdout");
  fs::create_symlink("stdout", folder / "link");
  for (const std::string& path :
       {std::string("/dev/fd/1"), std::string("/proc/self/fd/1"), folder / "stdout", folder / "link"}) {
    const Outcome outcome = run_pinion(logits_to(path));
    EXPECT_EQ(outcome.status, 0) << path << ": " << outcome.err;
    EXPECT_TRUE(outcome.out == expected) << path;
    EXPECT_EQ(files_in(folder), 3) << path;
  }
  EXPECT_TRUE(fs::is_symlink(folder / "stdout"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  expect_failure(run_pinion(logits_to("/dev/fd/77")), 1, "/dev/fd/77: cannot write");
  // A shell's >> still appends.
  write_file(folder / "log", "before\n");
  const std::string command = command_line(logits_to("/dev/fd/1")) + " >>" + quoted(folder / "log");
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(read_file(folder / "log") == "before\n" + expected);
}

TEST(OutputFile, LinkStaysLink) {
  const ChatModel model;
  fs::create_directory(model / "talks");
  write_file(model / "talks/old.json", "old");
  fs::create_symlink("talks/old.json", model / "link");
  fs::create_symlink(model / "talks/new.json", model / "dangling");
  fs::create_symlink("loop", model / "loop");
  const Outcome outcome =
      chat(model, "Hi\n/save " + (model / "link") + "\n/save " + (model / "dangling") + "\n/save " + (model / "loop"),
           {}, 1);
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("loop: cannot write"), std::string::npos) << outcome.err;
  for (const char* link : {"link", "dangling", "loop"}) EXPECT_TRUE(fs::is_symlink(model / link)) << link;
  EXPECT_EQ(read_json(model / "talks/old.json").size(), 2u);
  EXPECT_EQ(read_json(model / "talks/new.json").size(), 2u);
  EXPECT_EQ(std::distance(fs::directory_iterator(model / "talks"), {}), 2);
  EXPECT_TRUE(fs::is_regular_file(model / "link.cache")) << "beside the name by which /load finds it";
}

TEST(OutputFile, ConversationToPipeHasNoCache) {
  const ChatModel model;
  fs::create_symlink("/proc/self/fd/1", model / "stdout");
  const Outcome outcome = chat(model, "Hi\n/save " + (model / "stdout") + "\n");
  EXPECT_NE(outcome.out.find("\"content\": \"Hi\""), std::string::npos) << outcome.out;
  EXPECT_TRUE(fs::is_symlink(model / "stdout"));
  EXPECT_FALSE(fs::exists(model / "stdout.cache"));
}

TEST(OutputFile, FileKeepsMode) {
  const ChatModel model;
  for (const mode_t mode : {mode_t{0600}, mode_t{0664}}) {
    const std::string file = model / ("talk" + std::to_string(mode));
    write_file(file, "old");
    ASSERT_EQ(chmod(file.c_str(), mode), 0);
    chat(model, "Hi\n/save " + file + "\n");
    EXPECT_EQ(read_json(file).size(), 2u);
    EXPECT_EQ(mode_of(file), mode);
  }
  const mode_t mask = umask(0);
  umask(mask);
  chat(model, "Hi\n/save " + (model / "new") + "\n");
  EXPECT_EQ(mode_of(model / "new"), 0666 & ~mask);
}

// Containers mount single files, which cannot be replaced by a rename.
TEST(OutputFile, MountedFileIsWrittenInPlace) {
  if (std::system("unshare -rm true 2>/dev/null") != 0) GTEST_SKIP() << "may not mount";
  const Folder folder;
  for (const char* name : {"outside", "inside"}) write_file(folder / name, std::string(100000, 'x'));
  const std::string mount = "mount --bind " + quoted(folder / "outside") + " " + quoted(folder / "inside");
  const std::string command = mount + " && " + command_line(logits_to(folder / "inside"));
  EXPECT_EQ(std::system(("unshare -rm sh -c " + quoted(command)).c_str()), 0);
  ASSERT_EQ(run_pinion(logits_to(folder / "F.npy")).status, 0);
  EXPECT_TRUE(read_file(folder / "outside") == read_file(folder / "F.npy"));
  EXPECT_EQ(files_in(folder), 3);
}

}  // namespace
}  // namespace pinion
