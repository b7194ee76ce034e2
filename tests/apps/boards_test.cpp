// Several processes of mpirun that share a model: the output is that of a single process.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "tests/apps/program.h"

namespace pinion {
namespace {

constexpr const char* kMpirun = "mpirun --oversubscribe --allow-run-as-root --bind-to none -n ";

struct Boards : testing::Test {
  const Folder home;

  // All processes run on this machine, with one thread each for commands that run a model.
  Outcome run(int processes, std::vector<std::string> arguments, const std::string& input = "") const {
    const bool runs_model = !std::ranges::count(std::vector<std::string>{"tokenize", "tune"}, arguments[0]) &&
                            std::ranges::count(arguments, "--model") > 0;
    if (runs_model) arguments.insert(arguments.end(), {"--threads", "1"});
    write_file(home / "in", input);
    return run_job(std::to_string(processes) + " " + command_line(arguments));
  }

  // `job` follows mpirun's -n. Standard input is the file or the pipe `in`.
  Outcome run_job(const std::string& job) const {
    std::string command = "HF_HUB_CACHE= HUGGINGFACE_HUB_CACHE= HF_HOME= ";
    for (const char* name : {"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TMPDIR"}) {
      command += std::string(name) + "=" + quoted(home.path) + " ";
    }
    command += kMpirun + job + " <" + quoted(home / "in") + " >" + quoted(home / "out") + " 2>" + quoted(home / "err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(home / "out"), read_file(home / "err")};
  }

  void SetUp() override {
    if (std::system((kMpirun + std::string("1 true >/dev/null 2>&1")).c_str()) != 0) GTEST_SKIP() << "no mpirun here";
    if (run(2, {"--version"}).err.find("no MPI") != std::string::npos) GTEST_SKIP() << "built without MPI";
  }
};

// mpirun prints further lines if a process fails.
int64_t pinion_lines(const Outcome& outcome) {
  std::istringstream lines(outcome.err);
  int64_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.starts_with("pinion: ");
  return count;
}

TEST_F(Boards, GenerateEqualsOneBoard) {
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

TEST_F(Boards, BoardsStartFromCaches) {
  const auto arguments = generate(kDemo, {"--prompt", "Once", "--max-tokens", "4", "--json"});
  ASSERT_EQ(run(2, arguments).status, 0);
  const Outcome again = run(2, arguments);
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(json::parse(again.out)["stats"]["weights_from_cache"], true);
  const auto files = std::distance(fs::directory_iterator(home.path / "pinion"), fs::directory_iterator());
  EXPECT_EQ(files, 2);
}

TEST_F(Boards, ChatAndSpeculationEqualOneBoard) {
  const std::vector<std::string> arguments = {"chat",  "--model", kDemo,    "--speculate",
                                              "ngram", "--quiet", "--seed", "3"};
  const std::string input = "Tell me a story.\nAnd one more.\n";
  const Outcome alone = run_pinion(arguments, input), shared = run(2, arguments, input);
  EXPECT_EQ(shared.status, 0) << shared.err;
  EXPECT_EQ(shared.out, alone.out);
}

TEST_F(Boards, LogitsEqualOneBoard) {
  const auto arguments = [](const std::string& out) {
    return std::vector<std::string>{"logits",        "--model", kStories, "--prompt-ids",
                                    "1,403,407,261", "--all",   "--out",  out};
  };
  EXPECT_EQ(run_pinion(arguments(home / "alone.npy")).status, 0);
  const Outcome shared = run(3, arguments(home / "shared.npy"));
  EXPECT_EQ(shared.status, 0) << shared.err;
  EXPECT_EQ(read_file(home / "shared.npy"), read_file(home / "alone.npy"));
}

TEST_F(Boards, OnlyRankZeroPrints) {
  EXPECT_EQ(run(3, {"--version"}).out, run_pinion({"--version"}).out);
  const Outcome tokens = run(2, {"tokenize", "--model", kDemo, "--text", "Hello"});
  EXPECT_EQ(tokens.out, run_pinion({"tokenize", "--model", kDemo, "--text", "Hello"}).out);
  const Outcome wrong = run(3, {"generate", "--no-such-option"});
  EXPECT_EQ(wrong.status, 2) << wrong.err;
  EXPECT_EQ(pinion_lines(wrong), 1) << wrong.err;
  const Outcome missing = run(3, {"generate", "--model", home / "nothing", "--prompt", "Once"});
  EXPECT_EQ(missing.status, 1) << missing.err;
  EXPECT_EQ(pinion_lines(missing), 1) << missing.err;
  const Outcome unread = run(2, {"generate", "--model", kDemo, "--prompt-file", home / "nothing"});
  EXPECT_EQ(unread.status, 1) << unread.err;
  EXPECT_EQ(pinion_lines(unread), 1) << unread.err;
}

// A job of two processes with open input. The second one prints its process id.
struct JobOfTwo {
  const Boards& boards;
  int input = -1;
  std::thread runs = {};
  Outcome outcome = {};

  JobOfTwo(const Boards& all, const std::vector<std::string>& arguments) : boards(all) {
    const std::string pipe = boards.home / "in";
    for (const char* of_last : {"in", "out"}) fs::remove(boards.home / of_last);
    EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    input = open(pipe.c_str(), O_RDWR | O_CLOEXEC);
    const std::string program = command_line(arguments);
    const std::string second = "echo $$ >" + quoted(boards.home / "pid") + "; exec " + program;
    runs = std::thread(
        [this, job = "1 " + program + " : -n 1 sh -c " + quoted(second)] { outcome = boards.run_job(job); });
  }
  ~JobOfTwo() {
    if (runs.joinable()) end();
    close(input);
  }

  void say(const std::string& text) { EXPECT_EQ(write(input, text.data(), text.size()), std::ssize(text)); }

  // Sends a signal to the second process after some output, or after the time that a slow machine needs.
  void send(int signal, size_t out_bytes) const {
    for (int tenths = 0; tenths < 1200 && read_file(boards.home / "out").size() < out_bytes; ++tenths) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    const std::string pid = read_file(boards.home / "pid");
    ASSERT_FALSE(pid.empty());
    kill(std::stoi(pid), signal);
  }

  const Outcome& end() {
    runs.join();
    return outcome;
  }
};

// Loses a board during an answer, and while the program waits for input.
TEST_F(Boards, ChatSavesConversationAtLoss) {
  for (const char* most_tokens : {"400", "8"}) {
    for (const auto& of_last : fs::directory_iterator(home.path)) fs::remove_all(of_last);
    JobOfTwo job(*this, {"chat", "--model", kDemo, "--threads", "1", "--seed", "3", "--max-tokens", most_tokens});
    job.say("Tell me a story.\n");
    job.send(SIGKILL, 30);
    const Outcome& outcome = job.end();
    EXPECT_NE(outcome.status, 0);
    EXPECT_EQ(pinion_lines(outcome), 1) << outcome.err;
    EXPECT_NE(outcome.err.find("another board is lost"), std::string::npos) << outcome.err;
    std::vector<json> kept;
    for (const auto& entry : fs::directory_iterator(home.path / "pinion")) {
      if (entry.path().filename().string().starts_with("lost-")) kept.push_back(read_json(entry.path()));
    }
    ASSERT_EQ(kept.size(), 1u) << outcome.err;
    ASSERT_EQ(kept[0].size(), 2u);
    EXPECT_EQ(kept[0][0]["content"], "Tell me a story.");
    EXPECT_FALSE(kept[0][1]["content"].get<std::string>().empty());
  }
}

// A conversation, since it goes on until the board is stopped, however fast the machine is.
TEST_F(Boards, StuckBoardEndsJob) {
  JobOfTwo job(*this, {"chat", "--model", kDemo, "--threads", "1", "--max-tokens", "8", "--timeout", "2"});
  job.say("Tell me a story.\n");
  job.send(SIGSTOP, 20);
  job.say("And one more.\n");
  const Outcome& outcome = job.end();
  EXPECT_NE(outcome.status, 0);
  EXPECT_EQ(pinion_lines(outcome), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("another board: has not answered in a pass: want within 2 s"), std::string::npos)
      << outcome.err;
}

TEST_F(Boards, FasterBoardsHaveLargerShares) {
  const Outcome tuned = run(2, {"tune", "--json"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const json speeds = json::parse(tuned.out)["boards"];
  ASSERT_EQ(speeds.size(), 2u);
  for (const json& one : speeds) EXPECT_GT(one["read_gb_per_s"], 0);
  const fs::path kept = home.path / "pinion" / "boards";
  ASSERT_TRUE(fs::is_directory(kept));
  const std::string file = fs::directory_iterator(kept)->path().filename();
  EXPECT_GT(read_json(kept / file)["read_gb_per_s"], 0);

  // Two boards with the same host name and different home folders.
  std::string job;
  const auto arguments =
      generate(kDemo, {"--prompt", "Once upon a time", "--max-tokens", "4", "--json", "--seed", "5", "--threads", "1"});
  for (const auto& [name, speed] : {std::pair("one", 20), std::pair("other", 5)}) {
    fs::create_directories(home.path / name / "pinion" / "boards");
    write_file(home.path / name / "pinion" / "boards" / file, json{{"format", 1}, {"read_gb_per_s", speed}}.dump());
    job += (job.empty() ? "" : " : -n ") + ("1 env XDG_CONFIG_HOME=" + quoted(home / name)) + " " +
           command_line(arguments);
  }
  const json alone = run_json(arguments);
  const Outcome outcome = run_job(job);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json answer = json::parse(outcome.out, nullptr, false);
  EXPECT_EQ(answer["stats"]["logits_hash"], alone["stats"]["logits_hash"]);
  const double part =
      answer["stats"]["bytes_per_token"].get<double>() / alone["stats"]["bytes_per_token"].get<double>();
  EXPECT_GT(part, 0.6);
  EXPECT_EQ(run(2, {"tune", "--forget"}).status, 0);
  EXPECT_FALSE(fs::exists(kept / file));
}

TEST_F(Boards, BenchReportsCostOfExchanges) {
  const Outcome outcome = run(3, {"bench", "--model", kDemo, "-p", "0", "-n", "4", "-r", "1", "-o", "json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json boards = json::parse(outcome.out)[0]["boards"];
  EXPECT_EQ(boards["boards"], 3);
  const json config = read_json(fs::path(kDemo) / "config.json");
  EXPECT_EQ(boards["messages"], 4 * config["num_hidden_layers"].get<int>() + 1);
  for (const char* name : {"compute_ms", "exchange_ms", "received_bytes", "latency_ms", "network_mb_per_s"}) {
    EXPECT_GT(boards[name], 0) << name;
  }
  EXPECT_NEAR(
      boards["compute_ms"].get<double>() + boards["exchange_ms"].get<double>() + boards["waiting_ms"].get<double>(),
      boards["ms_per_token"].get<double>(), boards["exchange_ms"].get<double>());
  const Outcome table = run(2, {"bench", "--model", kDemo, "-p", "0", "-n", "2", "-r", "1"});
  EXPECT_NE(table.out.find("2 boards are faster than one from"), std::string::npos) << table.out;
}

TEST_F(Boards, BenchShowsStagesOfBoards) {
  const std::vector<std::string> arguments = {"bench", "--model", kDemo, "-p", "0", "-n", "6", "-r", "1", "--profile"};
  std::vector<std::string> as_json = arguments;
  as_json.insert(as_json.end(), {"-o", "json"});
  const Outcome outcome = run(3, as_json);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json profile = json::parse(outcome.out)[0]["profile"], boards = profile["boards"];
  ASSERT_EQ(boards.size(), 3u);
  const double ms = profile["ms_per_token"];
  for (const json& board : boards) {
    double all = 0;
    for (const auto& [stage, time] : board["stages_ms_per_token"].items()) all += time.get<double>();
    for (const char* stage : {"qkv", "attention", "down", "head"}) EXPECT_GT(board["stages_ms_per_token"][stage], 0);
    EXPECT_LT(all, ms * 1.01);
    EXPECT_NEAR(all + board["outside_ms_per_token"].get<double>(), ms, ms * 0.01);
    EXPECT_GT(board["exchanging_ms_per_token"], 0);
    EXPECT_LT(board["exchanging_ms_per_token"], all);
  }
  const json& own = boards[0]["stages_ms_per_token"];
  for (const json& stage : profile["stages"]) {
    EXPECT_NEAR(own[stage["stage"].get<std::string>()], stage["ms_per_token"], ms * 1e-3);
  }
  const Outcome table = run(2, arguments);
  EXPECT_NE(table.out.find("| ms/token | board 0 | board 1 |\n"), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find("state_out", table.out.find("board 0")), std::string::npos) << "no board has such a stage";
  EXPECT_EQ(run_pinion(arguments).out.find("board 0"), std::string::npos);
}

TEST_F(Boards, UnsupportedOptionsAreRefused) {
  const std::string mtp = PINION_TEST_DATA "/families/qwen3_5_mtp";
  const Outcome drafts = run(2, {"generate", "--model", mtp, "--prompt-ids", "1,2", "--speculate", "mtp"});
  EXPECT_EQ(drafts.status, 1);
  EXPECT_EQ(pinion_lines(drafts), 1) << drafts.err;
  EXPECT_NE(drafts.err.find("not supported on several boards"), std::string::npos) << drafts.err;
  const Outcome saved = run(2, {"chat", "--model", kDemo}, "Tell me a story.\n/save " + home / "talk.json" + "\n");
  EXPECT_EQ(saved.status, 1) << saved.err;
  EXPECT_NE(saved.err.find("several boards"), std::string::npos) << saved.err;
  EXPECT_EQ(read_json(home / "talk.json").size(), 2u) << "the conversation is there, without its cache";
}

}  // namespace
}  // namespace pinion
