// pinion chat from a pipe: each line is a turn.
#include <regex>

#include "tests/apps/program.h"

namespace pinion {
namespace {

struct Figures {
  int prefilled = -1, reused = -1, generated = -1;
};

// What each /stats printed.
std::vector<Figures> figures(const std::string& out) {
  static const std::regex kPattern("prefilled (\\d+) tokens at [^,]*, reused (\\d+), generated (\\d+)");
  std::vector<Figures> list;
  for (std::sregex_iterator match(out.begin(), out.end(), kPattern), end; match != end; ++match) {
    list.push_back({std::stoi((*match)[1]), std::stoi((*match)[2]), std::stoi((*match)[3])});
  }
  return list;
}

// The stories model with a template: it never saw a chat, but nothing here asks what it says.
struct ChatModel : Folder {
  ChatModel() {
    copy_stories(*this);
    write_file(path / "chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' and m.content == 'refuse' %}"
               "{{ raise_exception('no such role') }}{% endif %}{{ m.content }}\n{% endfor %}");
  }
};

Outcome chat(const Folder& model, const std::string& input, const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments = {"chat", "--model", model.path, "--max-tokens", "12"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome outcome = run_pinion(arguments, input);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome;
}

TEST(Chat, EachTurnPrefillsOnlyWhatIsNew) {
  const ChatModel model;
  const Outcome outcome = chat(model, "One day a cat sat.\n/stats\nThe cat was big.\n/stats\n/reset\nA dog.\n/stats\n");
  const std::vector<Figures> turns = figures(outcome.out);
  ASSERT_EQ(turns.size(), 3u) << outcome.out << outcome.err;
  EXPECT_EQ(turns[0].reused, 0);
  EXPECT_GE(turns[1].reused, turns[0].prefilled);
  EXPECT_LE(turns[1].prefilled, 20);
  EXPECT_LE(turns[2].reused, 2);  // the BOS that every conversation begins with
}

TEST(Chat, AnswersAreThoseOfTheWholeConversation) {
  const ChatModel model;
  const Outcome two_turns = chat(model, "One day a cat sat.\nThe cat was big.\n");
  const size_t newline = two_turns.out.find('\n');
  const std::string first = two_turns.out.substr(0, newline), second = two_turns.out.substr(newline + 1);
  const std::string prompt = "One day a cat sat.\n" + first + "\nThe cat was big.\n";
  const json whole = run_json({"generate", "--model", model.path, "--prompt", prompt, "--max-tokens", "12", "--json"});
  EXPECT_EQ(second, whole["text"].get<std::string>() + "\n");
}

TEST(Chat, Commands) {
  const ChatModel model;
  const Outcome outcome = chat(model, "/help\n/nonsense\n\n/system Be kind.\nHello\n/stats\n/quit\nnever read\n");
  EXPECT_NE(outcome.out.find("/reset"), std::string::npos);
  EXPECT_NE(outcome.err.find("unknown command /nonsense"), std::string::npos) << outcome.err;
  EXPECT_EQ(figures(outcome.out).size(), 1u);
}

TEST(Chat, ARefusedSystemMessageEndsNothing) {
  const ChatModel model;
  const Outcome outcome = chat(model, "/system refuse\nHello\n/stats\n");
  EXPECT_NE(outcome.err.find("no such role"), std::string::npos) << outcome.err;
  EXPECT_EQ(figures(outcome.out).size(), 1u);
  expect_failure(run_pinion({"chat", "--model", model.path, "--system", "refuse"}), 1, "no such role");
}

TEST(Chat, AFullContextEndsNothing) {
  const ChatModel model;
  const std::string lines = "Tom and Mia went to the big park to play.\n";
  const Outcome outcome = chat(model, lines + lines + lines + "/reset\nHi\n/stats\n", {"--context", "40"});
  EXPECT_NE(outcome.err.find("/reset starts a new"), std::string::npos) << outcome.err;
  ASSERT_EQ(figures(outcome.out).size(), 1u);
  EXPECT_GT(figures(outcome.out)[0].generated, 0);
}

TEST(Chat, AFolderWithoutTemplateIsAnError) {
  expect_failure(run_pinion({"chat", "--model", kStories}, "Hello\n"), 1, "pinion generate");
}

TEST(Chat, TheDemoModelAnswersAndRemembers) {
  const Outcome outcome = run_pinion({"chat", "--model", kDemo, "--temperature", "0"},
                                     "What sound does a cow make?\n/stats\nTell me a story about a fox.\n/stats\n");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("moo"), std::string::npos) << outcome.out;
  const std::vector<Figures> turns = figures(outcome.out);
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_GE(turns[1].reused, turns[0].prefilled + turns[0].generated - 1);
}

}  // namespace
}  // namespace pinion
