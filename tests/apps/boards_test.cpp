// Several processes of mpirun that share a model: what the first says is what one alone says.
#include <sstream>

#include "tests/apps/program.h"

namespace pinion {
namespace {

constexpr const char* kMpirun = "mpirun --oversubscribe --allow-run-as-root --bind-to none -n ";

struct Boards : testing::Test {
  const Folder home;

  // All on this machine, each with a thread where it runs a model.
  Outcome run(int processes, std::vector<std::string> arguments, const std::string& input = "") const {
    const bool runs_model = arguments[0] != "tokenize" && std::ranges::count(arguments, "--model") > 0;
    if (runs_model) arguments.insert(arguments.end(), {"--threads", "1"});
    write_file(home / "in", input);
    const std::string places = " XDG_CACHE_HOME=" + quoted(home.path) + " XDG_CONFIG_HOME=" + quoted(home.path) +
                               " TMPDIR=" + quoted(home.path) + " ";
    const std::string command = "HF_HUB_CACHE= HUGGINGFACE_HUB_CACHE= HF_HOME=" + places + kMpirun +
                                std::to_string(processes) + " " + command_line(arguments) + " <" + quoted(home / "in") +
                                " >" + quoted(home / "out") + " 2>" + quoted(home / "err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(home / "out"), read_file(home / "err")};
  }

  void SetUp() override {
    if (std::system((kMpirun + std::string("1 true >/dev/null 2>&1")).c_str()) != 0) GTEST_SKIP() << "no mpirun here";
    if (run(2, {"--version"}).err.find("no MPI") != std::string::npos) GTEST_SKIP() << "built without MPI";
  }
};

// What mpirun itself says, when a process fails, are other lines.
int64_t own_lines(const Outcome& outcome) {
  std::istringstream lines(outcome.err);
  int64_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with("pinion: ");
  return count;
}

TEST_F(Boards, GenerateWhatOneBoardDoes) {
  const std::pair<std::string, int> modes[] = {{"none", 2}, {"w8a8", 3}, {"w4a8", 4}};
  for (const auto& [quant, processes] : modes) {
    const auto arguments = generate(kDemo, {"--prompt", "Once upon a time", "--max-tokens", "8", "--temperature", "0.8",
                                            "--seed", "5", "--json", "--quant", quant});
    const json alone = run_json(arguments);
    const Outcome outcome = run(processes, arguments);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json answer = json::parse(outcome.out, nullptr, false);
    EXPECT_EQ(answer["ids"], alone["ids"]);
    EXPECT_EQ(answer["stats"]["logits_hash"], alone["stats"]["logits_hash"]) << quant << " on " << processes;
    EXPECT_LT(answer["stats"]["bytes_per_token"], alone["stats"]["bytes_per_token"]);
  }
}

TEST_F(Boards, StartFromTheirCaches) {
  const auto arguments = generate(kDemo, {"--prompt", "Once", "--max-tokens", "4", "--json"});
  ASSERT_EQ(run(2, arguments).status, 0);
  const Outcome again = run(2, arguments);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(json::parse(again.out)["stats"]["weights_from_cache"], true);
  const auto files = std::distance(fs::directory_iterator(home.path / "pinion"), fs::directory_iterator());
  EXPECT_EQ(files, 2);
}

TEST_F(Boards, ChatAndSpeculateLikeOne) {
  const std::vector<std::string> arguments = {"chat",  "--model", kDemo,    "--speculate",
                                              "ngram", "--quiet", "--seed", "3"};
  const std::string input = "Tell me a story.\nAnd one more.\n";
  const Outcome alone = run_pinion(arguments, input), shared = run(2, arguments, input);
  EXPECT_EQ(shared.status, 0) << shared.err;
  EXPECT_EQ(shared.out, alone.out);
}

TEST_F(Boards, WriteTheSameLogits) {
  const auto arguments = [](const std::string& out) {
    return std::vector<std::string>{"logits",        "--model", kStories, "--prompt-ids",
                                    "1,403,407,261", "--all",   "--out",  out};
  };
  EXPECT_EQ(run_pinion(arguments(home / "alone.npy")).status, 0);
  const Outcome shared = run(3, arguments(home / "shared.npy"));
  EXPECT_EQ(shared.status, 0) << shared.err;
  EXPECT_EQ(read_file(home / "shared.npy"), read_file(home / "alone.npy"));
}

TEST_F(Boards, OnlyTheFirstSpeaks) {
  EXPECT_EQ(run(3, {"--version"}).out, run_pinion({"--version"}).out);
  const Outcome tokens = run(2, {"tokenize", "--model", kDemo, "--text", "Hello"});
  EXPECT_EQ(tokens.out, run_pinion({"tokenize", "--model", kDemo, "--text", "Hello"}).out);
  const Outcome wrong = run(3, {"generate", "--no-such-option"});
  EXPECT_EQ(wrong.status, 2) << wrong.err;
  EXPECT_EQ(own_lines(wrong), 1) << wrong.err;
  const Outcome missing = run(3, {"generate", "--model", home / "nothing", "--prompt", "Once"});
  EXPECT_EQ(missing.status, 1) << missing.err;
  EXPECT_EQ(own_lines(missing), 1) << missing.err;
  const Outcome unread = run(2, {"generate", "--model", kDemo, "--prompt-file", home / "nothing"});
  EXPECT_EQ(unread.status, 1) << unread.err;
  EXPECT_EQ(own_lines(unread), 1) << unread.err;
}

}  // namespace
}  // namespace pinion
