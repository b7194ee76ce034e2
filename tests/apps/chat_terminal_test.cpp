// pinion chat on a terminal: typed input and visible output.
#include <sys/stat.h>

#include <csignal>
#include <sstream>

#include "tests/apps/chat.h"
#include "tests/apps/terminal.h"

namespace pinion {
namespace {

// The output of a terminal without carriage returns.
std::string on_terminal(const std::vector<std::string>& arguments, const std::vector<Step>& steps,
                        const Screen& screen = {}) {
  Outcome outcome = run_on_terminal(arguments, steps, screen);
  EXPECT_EQ(outcome.status, 0) << outcome.out;
  std::erase(outcome.out, '\r');
  return outcome.out;
}

std::string on_terminal(const std::vector<std::string>& arguments, const std::string& input,
                        const Screen& screen = {}) {
  return on_terminal(arguments, std::vector<Step>{{"", input}}, screen);
}

std::vector<std::string> chat_with(const Folder& model, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"chat", "--model", model.path, "--no-cache", "--temperature", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Terminal, ThoughtsAreDimmed) {
  const ThinkingModel model(true);
  const std::string shown = on_terminal(chat_with(model, {"--max-tokens", "60"}), "One day \\\na cat sat\n/quit\n");
  const size_t dim = shown.find("\x1b[2m"), plain = shown.find("\x1b[0m");
  EXPECT_NE(shown.find("> One day"), std::string::npos) << shown;
  EXPECT_NE(shown.find("... a cat sat"), std::string::npos) << shown;
  EXPECT_LT(dim + 10, plain) << shown;
  EXPECT_NE(plain, std::string::npos) << shown;
  EXPECT_EQ(shown.substr(dim, plain - dim).find("think>"), std::string::npos) << shown;
}

TEST(Terminal, NoColorDisablesColours) {
  const ThinkingModel model(true);
  const std::vector<std::string> arguments = chat_with(model, {"--max-tokens", "60"});
  const std::string shown = on_terminal(arguments, "One day a cat sat\n/quit\n", {.environment = "NO_COLOR=1"});
  EXPECT_EQ(shown.find("\x1b[2m"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("\x1b[0m"), std::string::npos) << shown;
  EXPECT_NE(shown.find("<think>\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("\n</think>\n\n"), std::string::npos) << shown;
  const std::string empty = on_terminal(arguments, "One day a cat sat\n/quit\n", {.environment = "NO_COLOR="});
  EXPECT_NE(empty.find("\x1b[2m"), std::string::npos) << empty;
}

TEST(Terminal, HelpIsWrapped) {
  const ChatModel model;
  const std::string shown = on_terminal(chat_with(model), "/help\n/quit\n", {.columns = 60});
  std::istringstream lines(shown.substr(shown.find("/reset")));
  for (std::string line; std::getline(lines, line) && !line.starts_with(">");) EXPECT_LE(line.size(), 60u) << line;
  EXPECT_NE(shown.find("as JSON, and the\nmodel's cache of it to FILE.cache\n"), std::string::npos) << shown;
}

TEST(Terminal, AnswersWrapBetweenWords) {
  const ChatModel model;
  const std::string file = model / "talk.json";
  for (const uint16_t columns : {uint16_t{30}, uint16_t{41}}) {
    const std::string shown = on_terminal(chat_with(model, {"--max-tokens", "80"}),
                                          "One day a cat\n/save " + file + "\n/quit\n", {.columns = columns});
    const std::string answer = read_json(file)[1]["content"];
    const size_t begin = shown.find('\n', shown.find("> One day a cat")) + 1;
    std::istringstream lines(shown.substr(begin, shown.find("\n>", begin) - begin));
    std::string joined, longest;
    for (std::string line; std::getline(lines, line);) {
      joined += (joined.empty() ? "" : " ") + line;
      if (line.size() > longest.size()) longest = line;
    }
    std::string expected;  // with every run of blanks collapsed
    std::istringstream words(answer);
    for (std::string word; words >> word;) expected += (expected.empty() ? "" : " ") + word;
    std::string found;
    std::istringstream shown_words(joined);
    for (std::string word; shown_words >> word;) found += (found.empty() ? "" : " ") + word;
    EXPECT_EQ(found, expected) << shown;
    EXPECT_LE(longest.size(), columns) << longest;
    EXPECT_GT(longest.size(), columns / 2u) << shown;
  }
}

TEST(Terminal, BlockIsOneHistoryEntry) {
  const ChatModel model;
  const Folder state;
  const std::string file = model / "talk.json";
  const std::vector<std::string> arguments = chat_with(model, {"--max-tokens", "4"});
  on_terminal(arguments, "\"\"\"\nOne day\n a cat\n\"\"\"\nThe dog \\\nsat\n/quit\n", {.state_home = state.path});
  const std::string history = read_file(state.path / "pinion/history");
  EXPECT_EQ(std::ranges::count(history, '\n'), 1 + 3) << history;
  // Four entries up in the history is the block; Enter sends it unchanged.
  on_terminal(arguments, "\x10\x10\x10\n\x10\x10\x10\n/save " + file + "\n/quit\n", {.state_home = state.path});
  const json saved = read_json(file);
  ASSERT_EQ(saved.size(), 4u) << saved;
  EXPECT_EQ(saved[0]["content"], "One day\n a cat");
  EXPECT_EQ(saved[2]["content"], "The dog \nsat") << saved;
}

TEST(Terminal, HistoryIsAppended) {
  const ChatModel model;
  const Folder state;
  const fs::path file = state.path / "pinion/history";
  const std::vector<std::string> arguments = chat_with(model, {"--max-tokens", "4"});
  const Screen screen = {.state_home = state.path};
  on_terminal(arguments, "One\n/quit\n", screen);
  const auto inode = [&] {
    struct stat status = {};
    EXPECT_EQ(stat(file.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    return status.st_ino;
  };
  const ino_t before = inode();
  const auto other_chat = [&] { on_terminal(arguments, "Other\n/quit\n", screen); };
  on_terminal(arguments,
              std::vector<Step>{{"> ", "Two\n"}, {"> ", "Three\n", other_chat}, {"> ", "Three\n"}, {"> ", "/quit\n"}},
              screen);
  EXPECT_EQ(read_file(file), "_HiStOrY_V2_\nOne\n/quit\nTwo\nOther\n/quit\nThree\n/quit\n");
  EXPECT_EQ(inode(), before) << "no moment without the file";
}

TEST(Terminal, HistoryIsCutAtStart) {
  const ChatModel model;
  const Folder state;
  const fs::path file = state.path / "pinion/history";
  fs::create_directory(state.path / "pinion");
  const auto lines_after = [&](const std::string& text) {
    write_file(file, text);
    on_terminal(chat_with(model), "/quit\n", {.state_home = state.path});
    EXPECT_EQ(std::distance(fs::directory_iterator(state.path / "pinion"), {}), 1);
    EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
    const std::string after = read_file(file);
    EXPECT_TRUE(after.starts_with("_HiStOrY_V2_\n")) << after;
    EXPECT_TRUE(after.ends_with("/quit\n")) << after;
    return std::ranges::count(after, '\n') - 2;
  };
  std::string text = "_HiStOrY_V2_\n";
  for (int i = 1; i <= 2000; ++i) text += std::to_string(i) + "\n";
  EXPECT_EQ(lines_after(text), 2000);
  EXPECT_EQ(lines_after(text + "2001\n"), 1000);
  EXPECT_NE(read_file(file).find("\n1002\n"), std::string::npos) << "the newest stay";
  EXPECT_EQ(lines_after("no history\n"), 0);
}

// At the prompt libedit controls the terminal and disables echo.
TEST(Terminal, SignalsRestoreTerminal) {
  const ChatModel model;
  const std::string run = model / "run", pid = model / "pid";
  write_file(run, "sh -c 'echo $$ >" + pid + "; exec \"$@\"' sh \"$@\"\necho status $?\nstty -a\n");
  for (const int signal : {SIGTERM, SIGHUP, SIGQUIT}) {
    const auto end = [&] { EXPECT_EQ(kill(std::stoi(read_file(pid)), signal), 0); };
    const std::string shown = on_terminal(chat_with(model), {{"> ", "", end}}, {.environment = "sh " + quoted(run)});
    EXPECT_NE(shown.find("status " + std::to_string(128 + signal)), std::string::npos) << shown;
    for (const char* mode : {" icanon", " echo ", "isig"}) EXPECT_NE(shown.find(mode), std::string::npos) << shown;
    for (const char* mode : {"-icanon", "-echo ", "-isig"}) EXPECT_EQ(shown.find(mode), std::string::npos) << shown;
  }
}

TEST(Terminal, CtrlCDiscardsBlock) {
  const ChatModel model;
  const Folder state;
  const std::string file = model / "talk.json";
  // ^C is a key only while a line is edited.
  on_terminal(chat_with(model, {"--max-tokens", "4"}),
              std::vector<Step>{{"> ", "\"\"\"\n"},
                                {"... ", "One day\n"},
                                {"... ", " a c\x03"},
                                {"> ", "/save " + file + ".empty\n"},
                                {"> ", "The dog \\\n"},
                                {"... ", "is\x03"},
                                {"> ", "nothing\x03"},
                                {"> ", "\x03"},
                                {"> ", "Hi\n"},
                                {"> ", "/save " + file + "\n"},
                                {"> ", "/quit\n"}},
              {.state_home = state.path});
  EXPECT_EQ(read_json(file + ".empty"), json::array());
  const json saved = read_json(file);
  ASSERT_EQ(saved.size(), 2u) << saved;
  EXPECT_EQ(saved[0]["content"], "Hi");
  EXPECT_EQ(read_file(state.path / "pinion/history").find("dog"), std::string::npos);
}

TEST(Terminal, QuietShowsConversationOnly) {
  const ChatModel model;
  const std::vector<std::string> arguments = chat_with(model, {"--max-tokens", "4", "--quiet"});
  EXPECT_EQ(on_terminal(arguments, "/quit\n").find("parameters"), std::string::npos);
}

}  // namespace
}  // namespace pinion
