// Hostile environments: full and closed outputs, a small stack, little memory, control characters, weights that
// overflow, files that are shortened while in use.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/apps/overflowing.h"
#include "tests/apps/terminal.h"

namespace pinion {
namespace {

// A folder whose template prints control characters of every kind.
constexpr std::string_view kTemplate =
    "a\x07"
    "b\x1b[2J{{ '\\r' }}c\x7f"
    "d\u009be\tf\x01\u202eg\u2066";
constexpr std::string_view kControls =
    "a\x07"
    "b\x1b[2J\rc\x7f"
    "d\u009be\tf\x01\u202eg\u2066";
constexpr std::string_view kShown = "a\u2407b\u241b[2J\u240dc\u2421d<9B>e\tf\u2401<202E>g<2066>";

struct ControlModel : Folder {
  ControlModel() {
    copy_stories(*this);
    write_file(path / "chat_template.jinja", std::string(kTemplate));
    write_file(path / "messages.json", R"([{"role": "user", "content": "Hi"}])");
  }
};

// All commands with arguments that let them finish quickly.
std::vector<std::vector<std::string>> all_commands(const Folder& folder) {
  const std::string ids = "1,2,3", golden = folder / "golden.json";
  write_file(folder / "prompts.json", R"(["Once"])");
  write_file(folder / "text.txt", "Once upon a time there was a dog. It was big.");
  std::vector<std::vector<std::string>> commands = {
      {"generate", "--prompt", "Once", "--max-tokens", "2"},
      {"chat", "--max-tokens", "2"},
      {"logits", "--prompt-ids", ids, "--out", folder / "logits.npy"},
      {"tokenize", "--text", "Once"},
      {"detokenize", "--ids", ids},
      {"template", "--messages", folder / "messages.json"},
      {"bench", "-p", "2", "-n", "1", "-r", "1", "-t", "1"},
      {"golden", "record", "--prompts", folder / "prompts.json", "--out", golden, "--max-tokens", "2"},
      {"golden", "check", "--golden", golden},
      {"quality", "--file", folder / "text.txt", "--tokens", "8"},
      {"inspect"},
      {"pack"},
      {"tune", "--seconds", "1", "--dry-run"}};
  for (auto& command : commands) command.insert(command.end(), {"--model", folder.path});
  commands.push_back({"cpu"});
  commands.push_back({"--version"});
  commands.push_back({"--help"});
  return commands;
}

// `before` and `behind` are shell text around the command.
Outcome run_shell(const std::string& before, const std::vector<std::string>& arguments, const std::string& behind) {
  const Folder folder;
  const std::string homes = "XDG_CACHE_HOME=" + quoted(folder.path) + " XDG_CONFIG_HOME=" + quoted(folder.path) + " ";
  const std::string command = before + homes + command_line(arguments) + " <" + quoted(folder / "in") + " >" +
                              quoted(folder / "out") + " 2>" + quoted(folder / "err") + " " + behind;
  write_file(folder / "in", "Hello\n");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(folder / "out"), read_file(folder / "err")};
}

TEST(Outputs, FullOutputIsAnError) {
  const ControlModel model;
  for (const auto& command : all_commands(model)) {
    if (command[0] == "logits" || command[0] == "tune") continue;  // may print nothing
    const Outcome outcome = run_shell("", command, ">/dev/full");
    EXPECT_EQ(outcome.status, 1) << command[0];
    EXPECT_NE(outcome.err.find("pinion: standard output: No space left on device\n"), std::string::npos)
        << command[0] << ": " << outcome.err;
  }
}

// An opened file must not get the descriptor of a closed output.
TEST(Outputs, ClosedOutputGetsNoFile) {
  const ControlModel model;
  all_commands(model);  // writes the prompts
  const std::vector<std::string> record = {
      "golden", "record", "--model", model.path, "--prompts", model / "prompts.json", "--out", model / "out.json"};
  EXPECT_EQ(run_shell("", record, "<&- >&- 2>&-").status, 1);
  EXPECT_EQ(read_json(model / "out.json")["prompts"].size(), 1u);
  const Outcome outcome = run_shell("", {"--version"}, ">&-");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "pinion: standard output: Bad file descriptor\n");
}

// A limit on the size of files neither kills the program nor leaves half a file. The limit is in blocks of 512 bytes.
// Clang's OpenMP runtime writes 1 KB at the start and complains on stderr if it cannot.
#if defined(__clang__)
constexpr const char* kFileLimit = "ulimit -f 2; ";
#else
constexpr const char* kFileLimit = "ulimit -f 1; ";
#endif

TEST(Outputs, LimitedFileSizeIsAnError) {
  const ControlModel model;
  all_commands(model);  // writes the prompts
  const std::string logits = model / "logits.npy", golden = model / "out.json";
  const std::vector<std::vector<std::string>> commands = {
      {"logits", "--model", model.path, "--prompt-ids", "1,2", "--out", logits, "--no-cache"},
      {"golden", "record", "--model", model.path, "--prompts", model / "prompts.json", "--out", golden, "--no-cache"},
      {"pack", "--model", model.path}};
  for (const auto& command : commands) {
    expect_failure(run_shell(kFileLimit, command, ""), 1, "File too large");
  }
  for (const auto& entry : fs::directory_iterator(model.path)) {
    EXPECT_EQ(entry.path().string().find("partial"), std::string::npos) << entry.path();
  }
  EXPECT_FALSE(fs::exists(logits) || fs::exists(golden));
}

// A read error is not the end of the input.
TEST(Inputs, UnreadableInputIsAnError) {
  const ControlModel model;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"tokenize", "--jsonl"}, {"detokenize", "--jsonl"}, {"chat"}}) {
    std::vector<std::string> on_model = command;
    on_model.insert(on_model.end(), {"--model", model.path});
    expect_failure(run_shell("", on_model, "</"), 1, "standard input: cannot read: Is a directory");
  }
}

// A read error after part of a line is an error, too.
TEST(Inputs, PartialLineIsAnError) {
  const ControlModel model;
  // Reading from an empty non-blocking pipe fails.
  int ends[2];
  constexpr int kInput = 9;  // shells support descriptors of one digit
  ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
  ASSERT_EQ(dup2(ends[0], kInput), kInput);
  ASSERT_EQ(write(ends[1], "\"a\"\n\"b\"", 7), 7);
  const Outcome outcome = run_shell("", {"tokenize", "--jsonl", "--model", model.path}, "<&9");
  for (const int end : {ends[0], ends[1], kInput}) close(end);
  expect_failure(outcome, 1, "standard input: cannot read: Resource temporarily unavailable");
  EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 1) << outcome.out;
}

TEST(Stack, SmallStackIsEnough) {
  if (!std::string(PINION_EMULATOR).empty()) GTEST_SKIP() << "the emulator needs a stack of its own";
  const ControlModel model;
  for (const auto& command : all_commands(model)) {
    const Outcome outcome = run_shell("ulimit -s 64; ", command, "");
    EXPECT_EQ(outcome.status, 0) << command[0] << ": " << outcome.err;
  }
}

// Libraries would crash before main with so little stack, so the limit is raised or refused. With less, or with a
// large environment, which is on the stack as well, the dynamic linker itself may crash.
TEST(Stack, TinyStackIsRaisedOrRefused) {
  if (!std::string(PINION_EMULATOR).empty()) GTEST_SKIP() << "the emulator needs a stack of its own";
  const Outcome soft = run_shell("ulimit -S -s 20; env -i ", {"--version"}, "");
  EXPECT_EQ(soft.status, 0) << soft.err;
  const Outcome hard = run_shell("ulimit -s 20; env -i ", {"--version"}, "");
  if (hard.status != 0) expect_failure(hard, 1, "start pinion where `ulimit -s` is 64 or more");  // root can raise it
}

// From too little memory for anything to enough for the demo, in steps that fail at many points. With still less
// memory, libraries crash before main.
TEST(Memory, LowLimitDoesNotCrash) {
#if defined(PINION_ADDRESS_SANITIZER)
  GTEST_SKIP() << "the sanitizer needs terabytes of address space";
#endif
  if (!std::string(PINION_EMULATOR).empty()) GTEST_SKIP() << "the emulator needs memory of its own";
  const std::vector<std::string> generate = {"generate", "--model", kDemo, "--prompt-ids", "1,2", "-n", "2", "-t", "2"};
  for (int kilobytes = 42000; kilobytes < 78000; kilobytes += 700) {
    const Outcome outcome = run_shell("ulimit -v " + std::to_string(kilobytes) + "; ", generate, "");
    EXPECT_LT(outcome.status, 128) << kilobytes << " kB: " << outcome.err;
    if (outcome.status != 0) expect_failure(outcome, 1, "");  // pinion's message, not OpenMP's about a thread
  }
}

TEST(Outputs, LongNameIsShortened) {
  for (const char* option : {"--model", "--topology"}) {
    const Outcome outcome = run_pinion({option[2] == 'm' ? "inspect" : "cpu", option, std::string(100000, 'a') + "z"});
    expect_failure(outcome, 1, "a ... a");
    EXPECT_LT(outcome.err.size(), 2000u);
  }
}

TEST(Controls, TerminalShowsSigns) {
  const ControlModel model;
  const std::vector<std::string> arguments = {"template", "--model", model.path, "--messages", model / "messages.json"};
  Outcome outcome = run_on_terminal(arguments);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, kShown);
  outcome = run_pinion(arguments);
  EXPECT_EQ(outcome.out, kControls) << "a pipe gets the bytes";
}

TEST(Controls, ErrorsHaveNoControlCharacters) {
  const ControlModel model;
  for (std::vector<std::string> command : all_commands(model)) {
    const auto option = std::ranges::find(command, "--model");
    if (option == command.end() || command[1] == "check") continue;  // reads its golden file first
    option[1] =
        "no\x1b[31m\u009b31m\x9b"
        "31m";
    const Outcome outcome = run_on_terminal(command);
    EXPECT_EQ(outcome.status, 1) << command[0];
    EXPECT_NE(outcome.out.find("no\u241b[31m<9B>31m\uFFFD31m"), std::string::npos) << command[0] << ": " << outcome.out;
    EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << command[0] << ": " << outcome.out;
  }
  const Outcome outcome = run_on_terminal({"no\x1b[31m"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << outcome.out;
}

// A chat with a copy of the demo model whose weights are truncated after the first answer.
TEST(ShortenedFile, IsNamed) {
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

TEST(Overflow, EveryCommandReportsOverflow) {
  const Overflowing model(kStories);
  write_file(model / "prompts.json", R"([{"prompt": "Once", "max_tokens": 8}])");
  write_file(model / "text", "Once upon a time there was a fox.");
  const std::vector<std::vector<std::string>> commands = {
      {"generate", "--prompt", "Once"},
      {"generate", "--prompt", "Once", "--quant", "none"},
      {"generate", "--prompt", "Once", "--temperature", "1", "--json"},
      {"logits", "--prompt", "Once", "--all", "--out", model / "F.npy"},
      {"quality", "--file", model / "text"},
      {"golden", "record", "--prompts", model / "prompts.json", "--out", model / "G.json"},
      {"bench", "-p", "4", "-n", "2", "-r", "1", "-t", "1"},
  };
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--model", model.path});
    expect_failure(run_pinion(command), 1, "logits: NaN or infinity, first from layer 1, o;");
  }
  EXPECT_FALSE(fs::exists(model / "F.npy"));
  EXPECT_FALSE(fs::exists(model / "G.json"));
  const Overflowing talker(kDemo);
  expect_failure(run_pinion({"chat", "--model", talker.path}, "Hi\n"), 1,
                 "logits: NaN or infinity, first from layer 1");
}

}  // namespace
}  // namespace pinion
