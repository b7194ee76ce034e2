// Input of commands: pipes and standard input are read like files; the lines of --prompts.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/apps/program.h"

namespace pinion {
namespace {

Outcome generate(std::vector<std::string> options, const std::string& input = "") {
  const std::vector<std::string> all = {"generate", "--model", kStories, "--max-tokens", "4", "--temperature", "0"};
  options.insert(options.begin(), all.begin(), all.end());
  return run_pinion(options, input);
}

// A named pipe, like the shell's for <(command), with a thread that writes to it.
struct Pipe : Folder {
  explicit Pipe(const std::string& text) {
    std::signal(SIGPIPE, SIG_IGN);  // the program may close the pipe early
    EXPECT_EQ(mkfifo(name().c_str(), S_IRUSR | S_IWUSR), 0);
    writer = std::jthread([text, path = name()] { write_file(path, text); });
  }
  ~Pipe() {
    const int reader = open(name().c_str(), O_RDONLY | O_NONBLOCK);  // unblocks a writer without a reader
    writer.join();
    close(reader);
  }
  std::string name() const { return path / "pipe"; }
  std::jthread writer;
};

TEST(Input, PipeIsReadLikeFile) {
  const Outcome expected = generate({"--prompt", "Once upon"});
  EXPECT_EQ(expected.status, 0) << expected.err;
  const Pipe prompt("Once upon\n"), prompts("{\"prompt\": \"Once upon\"}\n"),
      messages(R"([{"role": "user", "content": "Hi"}])");
  EXPECT_EQ(generate({"--prompt-file", prompt.name()}).out, expected.out);
  const json line = json::parse(generate({"--prompts", prompts.name()}).out, nullptr, false);
  EXPECT_EQ(line.value("text", "") + "\n", expected.out);
  const Pipe goldens(R"(["Once upon"])");
  const Outcome golden = run_pinion({"golden", "record", "--model", kStories, "--prompts", goldens.name(), "--out",
                                     goldens / "golden.json", "--max-tokens", "2"});
  EXPECT_EQ(golden.status, 0) << golden.err;
  const Outcome talk = run_pinion({"template", "--model", kDemo, "--messages", messages.name()});
  EXPECT_EQ(talk.out, "<s><|user|>Hi<|end|><|assistant|>") << talk.err;
}

TEST(Input, MinusIsStandardInput) {
  const Outcome expected = generate({"--prompt", "Once upon"});
  EXPECT_EQ(generate({"--prompt-file", "-"}, "Once upon\n").out, expected.out);
  const json line = json::parse(generate({"--prompts", "-"}, "{\"prompt\": \"Once upon\"}").out, nullptr, false);
  EXPECT_EQ(line.value("text", "") + "\n", expected.out);
}

TEST(Input, DeviceIsRefused) {
  expect_failure(generate({"--prompt-file", "/dev/zero"}), 1, "/dev/zero: not a regular file");
}

TEST(Prompts, IgnoredFieldsAreNoted) {
  const std::string line = R"({"prompt": "Once", "temperature": 2, "id": 7, "x\u001b": null})";
  const Outcome outcome = generate({"--prompts", "-"}, line + "\n" + R"({"prompt_ids": [1], "stop": "."})");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.err.find(", which may have prompt or prompt_ids, and max_tokens: \"id\", \"stop\", "
                             "\"temperature\"\n"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(generate({"--prompts", "-"}, R"({"prompt": "Once"})").err.find("ignored"), std::string::npos);
}

// The seed makes random text reproducible.
TEST(Prompts, LinesHaveTheSeed) {
  const auto texts = [](const std::vector<std::string>& seed) {
    std::vector<std::string> arguments = {"generate", "-m", kStories, "--prompts", "-", "-n", "20", "--temp", "1.5"};
    arguments.insert(arguments.end(), seed.begin(), seed.end());
    return run_pinion(arguments, "{\"prompt\": \"Once\"}\n{\"prompt\": \"A\"}\n");
  };
  const Outcome first = texts({});
  const json line = json::parse(first.out.substr(0, first.out.find('\n')), nullptr, false);
  ASSERT_TRUE(line.contains("seed")) << first.out << first.err;
  const std::string seed = line["seed"].dump();
  EXPECT_EQ(texts({"--seed", seed}).out, first.out);
  EXPECT_EQ(generate({"--prompts", "-"}, R"({"prompt": "Once"})").out.find("seed"), std::string::npos) << "greedy";
  EXPECT_NE(first.err.find(", seed " + seed + "\n"), std::string::npos) << first.err;
}

TEST(Prompts, ParallelNeedsPrompts) {
  expect_failure(generate({"--prompt", "a", "--parallel", "4"}), 2, "--parallel is for --prompts");
}

}  // namespace
}  // namespace pinion
