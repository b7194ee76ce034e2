// pinion pack and the weight cache, which may change nothing but the speed.
#include "tests/apps/program.h"

namespace pinion {
namespace {

const std::vector<std::string> kTell = {"generate", "--model",      kStories, "--prompt",
                                        "Once",     "--max-tokens", "24",     "--json"};

// Expects one line on stderr, or none if `told` is empty.
void expect_told(const Outcome& outcome, const std::string& told) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), told.empty() ? 0 : 1) << outcome.err;
  EXPECT_NE(outcome.err.find(told), std::string::npos) << outcome.err;
}

json tell(const std::string& cache_home, const std::vector<std::string>& more = {}, const std::string& told = "") {
  std::vector<std::string> arguments = kTell;
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = run_pinion(arguments, "", cache_home);
  expect_told(outcome, told);
  return json::parse(outcome.out, nullptr, false);
}

bool from_cache(const json& answer) { return answer["stats"]["weights_from_cache"].get<bool>(); }

fs::path only_file(const fs::path& folder) {
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  return fs::directory_iterator(folder)->path();
}

TEST(Pack, SecondRunUsesCacheWithSameOutput) {
  for (const std::string quant : {"w8a8", "none"}) {
    const Folder home;
    const json plain = tell(home.path, {"--quant", quant, "--no-cache"});
    EXPECT_FALSE(from_cache(plain));
    EXPECT_TRUE(fs::is_empty(home.path));
    for (const bool is_there : {false, true}) {
      const json answer = tell(home.path, {"--quant", quant});
      EXPECT_EQ(from_cache(answer), is_there);
      EXPECT_EQ(answer["text"], plain["text"]);
      EXPECT_EQ(answer["stats"]["logits_hash"], plain["stats"]["logits_hash"]);
    }
    EXPECT_FALSE(from_cache(tell(home.path, {"--quant", quant, "--no-cache"})));
  }
}

TEST(Pack, CorruptFileIsReplaced) {
  const Folder home;
  const json plain = tell(home.path);
  const fs::path file = only_file(home.path / "pinion");
  const std::string whole = read_file(file);
  for (const std::string& bad :
       {std::string(), whole.substr(0, whole.size() / 2), "x" + whole.substr(1), whole + "x"}) {
    write_file(file, bad);
    const json answer = tell(home.path);
    EXPECT_FALSE(from_cache(answer));
    EXPECT_EQ(answer["text"], plain["text"]);
    EXPECT_TRUE(read_file(file) == whole);
    EXPECT_TRUE(from_cache(tell(home.path)));
  }
}

TEST(Pack, MissingCacheFolderDoesNotStopRun) {
  const Folder home;
  write_file(home / "pinion", "a file, not a folder");
  for (int run = 0; run < 2; run++) EXPECT_FALSE(from_cache(tell(home.path, {}, "the next start packs again")));
  EXPECT_FALSE(from_cache(tell("/proc", {}, "the next start packs again"))) << "where nobody may write";
}

// Limits the size of files, to simulate a full disk.
TEST(Pack, FullDiskIsReportedOnce) {
  const Folder home;
  const json plain = tell(home.path, {"--no-cache"});
  const std::string command = "ulimit -f 64; XDG_CACHE_HOME=" + quoted(home.path) + " " + command_line(kTell) + " >" +
                              quoted(home / "out") + " 2>" + quoted(home / "err");
  const int status = std::system(command.c_str());
  const Outcome outcome = {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(home / "out"),
                           read_file(home / "err")};
  expect_told(outcome, "cannot write packed weights");
  EXPECT_EQ(json::parse(outcome.out, nullptr, false)["text"], plain["text"]);
  EXPECT_TRUE(fs::is_empty(home.path / "pinion"));
}

TEST(Pack, UnfinishedFilesAreRemoved) {
  const Folder home;
  tell(home.path);
  const fs::path file = only_file(home.path / "pinion");
  write_file(file.string() + ".a1b2c3", "pinion packed weights\nhalf");
  EXPECT_TRUE(from_cache(tell(home.path)));
  EXPECT_EQ(only_file(home.path / "pinion"), file);
}

// A cache file, with functions to damage and restore it.
struct Damaged {
  Folder home;
  json plain = tell(home.path);
  fs::path file = only_file(home.path / "pinion");
  std::string whole = read_file(file);
  // The weights are followed by their hashes and, in the last 64 bytes, the boot of the last check.
  size_t weights_end = whole.size() - 64 - 8 - (whole.size() / (1 << 20) + 1) * 8;

  void flip(size_t byte, bool since_boot) const {
    std::string text = whole;
    text[byte] = static_cast<char>(text[byte] ^ 1 << byte % 8);
    if (!since_boot) text[text.size() - 64] ^= 1;
    write_file(file, text);
  }
  Outcome run(const std::vector<std::string>& arguments) const { return run_pinion(arguments, "", home.path); }
};

TEST(Pack, CheckRepairsFlippedBits) {
  const Damaged d;
  for (size_t i = 0; i < 12; i++) {
    d.flip(4096 + (d.weights_end - 4097) * i / 11, true);
    expect_told(d.run({"pack", "--model", kStories, "--check"}), "damaged weights, repacked: 1 of 1 segments");
    ASSERT_TRUE(read_file(d.file) == d.whole) << i;
  }
  const Outcome right = d.run({"pack", "--model", kStories, "--check"});
  expect_told(right, "");
  EXPECT_NE(right.out.find("was there, checked"), std::string::npos) << right.out;
  d.flip(d.weights_end + 3, true);  // damages the hashes, so the weights cannot be checked
  EXPECT_EQ(d.run({"pack", "--model", kStories, "--check"}).status, 0);
  EXPECT_TRUE(read_file(d.file) == d.whole);
}

// A change to the file has the same effect.
TEST(Pack, FirstStartAfterBootFindsDamage) {
  const Damaged d;
  for (const bool since_boot : {false, true}) {
    for (const bool is_quiet : {false, true}) {
      d.flip(20'000, since_boot);
      std::vector<std::string> command = kTell;
      if (is_quiet) command.push_back("--quiet");
      expect_failure(d.run(command), 1,
                     "damaged weights, repacked: 1 of 1 segments; the output of this run may be wrong");
      ASSERT_TRUE(read_file(d.file) == d.whole);
      expect_told(d.run(kTell), "");
    }
  }
  const json answer = tell(d.home.path);
  EXPECT_TRUE(from_cache(answer));
  EXPECT_EQ(answer["stats"]["logits_hash"], d.plain["stats"]["logits_hash"]);
}

TEST(Pack, GoldenChecksWeightsFirst) {
  const Damaged d;
  write_file(d.home / "prompts.json", R"([{"prompt": "Once", "max_tokens": 8}])");
  const std::vector<std::string> record = {
      "golden", "record", "--model", kStories, "--prompts", d.home / "prompts.json", "--out", d.home / "G.json"};
  const std::vector<std::string> check = {"golden", "check", "--model", kStories, "--golden", d.home / "G.json"};
  d.flip(30'000, true);
  expect_told(d.run(record), "damaged weights, repacked");
  d.flip(90'000, true);
  expect_told(d.run(check), "damaged weights, repacked");
  EXPECT_TRUE(read_file(d.file) == d.whole);
  expect_told(d.run(check), "");
}

// If the file cannot be repaired in place, everything is packed again: here because links are not followed.
TEST(Pack, UnrepairableFileIsRepacked) {
  const Damaged d;
  d.flip(30'000, true);
  fs::rename(d.file, d.home.path / "elsewhere");
  fs::create_symlink(d.home.path / "elsewhere", d.file);
  expect_told(d.run({"pack", "--model", kStories, "--check"}), "damaged weights that cannot be repaired");
  EXPECT_FALSE(fs::is_symlink(d.file));
  EXPECT_TRUE(read_file(d.file) == d.whole);
}

TEST(Pack, FileAndSizeArePrinted) {
  const Folder home;
  const Outcome first = run_pinion({"pack", "--model", kStories}, "", home.path);
  EXPECT_EQ(first.status, 0) << first.err;
  const fs::path file = only_file(home.path / "pinion");
  EXPECT_TRUE(first.out.starts_with(file.string() + ": ")) << first.out;
  EXPECT_NE(run_pinion({"pack", "--model", kStories}, "", home.path).out.find("was there"), std::string::npos);
  EXPECT_TRUE(from_cache(tell(home.path)));
  EXPECT_FALSE(from_cache(tell(home.path, {"--keep", "lm_head"})));
  const Outcome shown = run_pinion({"inspect", "--model", kStories, "--json"}, "", home.path);
  EXPECT_EQ(json::parse(shown.out)["weight_cache"]["file"], file.string());
  EXPECT_EQ(json::parse(shown.out)["weight_cache"]["state"], "usable");
}

TEST(Pack, MtpLayerHasOwnFile) {
  const Folder home;
  const std::vector<std::string> arguments = {"pack", "--model", PINION_TEST_DATA "/families/qwen3_5_mtp"};
  const Outcome first = run_pinion(arguments, "", home.path);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(std::ranges::count(first.out, '\n'), 2) << first.out;
  EXPECT_NE(first.out.find(".packed: for --speculate mtp, "), std::string::npos) << first.out;
  EXPECT_EQ(std::distance(fs::directory_iterator(home.path / "pinion"), {}), 2);
  const Outcome again = run_pinion(arguments, "", home.path);
  EXPECT_EQ(std::ranges::count(again.out, '\n'), 2) << again.out;
  EXPECT_NE(again.out.rfind("was there"), again.out.find("was there")) << again.out;
}

TEST(Pack, PackWithoutCacheIsAnError) {
  const Folder home;
  write_file(home / "pinion", "a file, not a folder");
  expect_failure(run_pinion({"pack", "--model", kStories}, "", home.path), 1, "pinion");
  expect_failure(run_pinion({"pack", "--model", "/nonexistent"}, "", home.path), 1, "no such folder");
}

}  // namespace
}  // namespace pinion
