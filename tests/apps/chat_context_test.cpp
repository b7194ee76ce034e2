// A chat whose context is full: its notes, the dropped turns, and that later answers depend on the rest only.
#include "tests/apps/chat.h"

namespace pinion {
namespace {

const std::string kTurn = "Tom and Mia went to the big park to play.\n";

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

int lines_with(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Compares the last saved answer with the output of `generate` for the prompt of the messages before it.
void expect_the_answer_of_a_fresh_run(const Folder& model, const std::string& file,
                                      const std::vector<std::string>& sampling) {
  json messages = read_json(file);
  ASSERT_EQ(messages.back()["role"], "assistant");
  const std::string answer = messages.back()["content"];
  messages.erase(messages.size() - 1);
  write_file(model / "shortened.json", messages.dump());
  const Outcome ids = run_pinion({"template", "--model", model.path, "--messages", model / "shortened.json", "--ids"});
  ASSERT_EQ(ids.status, 0) << ids.err;
  std::vector<std::string> arguments = {"generate", "--model", model.path,     "--prompt-ids",
                                        ids.out,    "--json",  "--max-tokens", "12"};
  arguments.insert(arguments.end(), sampling.begin(), sampling.end());
  EXPECT_EQ(run_json(arguments)["text"], answer);
}

TEST(FullContext, AnswerAfterDropEqualsFreshRun) {
  const ChatModel model;
  const std::string file = model / "talk.json";
  const struct {
    std::vector<std::string> chat, fresh;
  } kWays[] = {{{"--temperature", "0"}, {"--temperature", "0"}},
               // Each turn uses the next seed.
               {{"--temperature", "1", "--seed", "5"}, {"--temperature", "1", "--seed", "11"}}};
  for (const auto& way : kWays) {
    std::vector<std::string> options = {"--context", "130", "--system", "You tell stories."};
    options.insert(options.end(), way.chat.begin(), way.chat.end());
    const Outcome outcome = chat(model, repeated(kTurn, 7) + "/save " + file + "\n/stats\n", options);
    EXPECT_EQ(std::ranges::count(outcome.out, '\n'), 7 + 4) << outcome.out;
    const json saved = read_json(file);
    EXPECT_EQ(saved[0], (json{{"role", "system"}, {"content", "You tell stories."}})) << "stays";
    EXPECT_EQ(saved[1]["role"], "user");
    EXPECT_LT(saved.size(), 1u + 2 * 7);
    EXPECT_GT(saved.size(), 1u + 2);
    EXPECT_GE(lines_with(outcome.err, "the context is full: dropped the "), 1) << outcome.err;
    expect_the_answer_of_a_fresh_run(model, file, way.fresh);
  }
}

TEST(FullContext, NearlyFullContextIsNotedOnce) {
  const ChatModel model;
  const Outcome outcome = chat(model, repeated(kTurn, 3) + "Hi\nHi\n", {"--context", "85", "--max-tokens", "4"});
  EXPECT_EQ(lines_with(outcome.err, "% of the context's 85 tokens are used; soon the oldest turns are dropped"), 1)
      << outcome.err;
  const Outcome stops =
      chat(model, repeated(kTurn, 3) + "Hi\nHi\n", {"--context", "85", "--max-tokens", "4", "--overflow", "stop"});
  EXPECT_EQ(lines_with(stops.err, "tokens are used; /reset starts a new"), 1) << stops.err;
  const Outcome quiet =
      chat(model, repeated(kTurn, 3) + "Hi\nHi\n", {"--context", "85", "--max-tokens", "4", "--quiet"});
  EXPECT_EQ(quiet.err, "");
}

TEST(FullContext, OverflowStopRefusesQuestions) {
  const ChatModel model;
  const Outcome outcome =
      chat(model, repeated(kTurn, 3) + "/reset\nHi\n/stats\n", {"--context", "40", "--overflow", "stop"}, 1);
  EXPECT_NE(outcome.err.find("/reset starts a new"), std::string::npos) << outcome.err;
  ASSERT_EQ(figures(outcome.out).size(), 1u);
  EXPECT_GT(figures(outcome.out)[0].generated, 0);
}

TEST(FullContext, TooLongQuestionChangesNothing) {
  const ChatModel model;
  const std::string file = model / "talk.json";
  const std::string longest = repeated("Tom and Mia went to the big park. ", 12) + "\n";
  for (const char* before : {"Hi\n", ""}) {
    for (const char* overflow : {"drop", "stop"}) {
      const Outcome outcome = chat(model, before + longest + "/save " + file + "\n",
                                   {"--context", "60", "--system", "Be kind.", "--overflow", overflow}, 1);
      expect_failure(outcome, 1,
                     "context: this question is too long; give a shorter one, or --context N up to this model's 512: "
                     "want at most 50 tokens, have 180");
      EXPECT_EQ(read_json(file).size(), *before ? 3u : 1u);
    }
  }
  // The message must not suggest a context that the model does not have.
  expect_failure(chat(model, repeated("Tom and Mia. ", 100) + "\n", {"--context", "60"}, 1), 1,
                 "this question is too long; give a shorter one: want at most 57 tokens, have 700");
}

TEST(FullContext, SystemMessageWithoutRoomIsRefused) {
  const ChatModel model;
  const std::string file = model / "talk.json", system = repeated("Be kind. ", 20);
  const std::string refusal = "context: the system message leaves no room for a question; give a shorter one";
  expect_failure(chat(model, "Hi\n", {"--context", "40", "--system", system}, 1), 1,
                 refusal + ", or --context N up to this model's 512: want at most 38 tokens, have 125");
  expect_failure(chat(model, "Hi\n", {"--system", repeated(system, 10)}, 1), 1,
                 refusal + ": want at most 510 tokens, have 1205");
  expect_failure(chat(model, "Hi\n", {"--context", "1"}, 1), 1,
                 "context: no room for a question; give --context N up to this model's 512: want at least 4 tokens, "
                 "have 1");
  const std::string input = "Hi\n/system " + system + "\nHi\n/save " + file + "\n";
  expect_failure(chat(model, input, {"--context", "80", "--system", "Hi"}, 1), 1,
                 refusal + ", or --context N up to this model's 512: want at most 78 tokens, have 124");
  const json saved = read_json(file);
  EXPECT_EQ(saved.size(), 5u) << "the conversation goes on";
  EXPECT_EQ(saved[0]["content"], "Hi");
}

TEST(FullContext, ContextBeyondModelIsNoted) {
  const ChatModel model;
  const Outcome outcome = chat(model, "Hi\n/stats\n", {"--context", "600"});
  EXPECT_EQ(outcome.err, "pinion: --context 600 is more than this model's: the context is 512 tokens\n");
  EXPECT_NE(outcome.out.find("of 512 tokens"), std::string::npos) << outcome.out;
  EXPECT_EQ(chat(model, "Hi\n", {"--context", "512"}).err, "");
}

TEST(FullContext, LongSavedConversationIsShortened) {
  const ChatModel model;
  const std::string file = model / "talk.json";
  chat(model, repeated(kTurn, 5) + "/save " + file + "\n", {"--context", "400"});
  ASSERT_EQ(read_json(file).size(), 10u);
  const std::string again = model / "again.json";
  const Outcome outcome =
      chat(model, "/load " + file + "\n" + kTurn + "/save " + again + "\n", {"--context", "120", "--temperature", "0"});
  EXPECT_EQ(lines_with(outcome.err, "dropped the "), 1) << outcome.err;
  EXPECT_LT(read_json(again).size(), 10u);
  expect_the_answer_of_a_fresh_run(model, again, {"--temperature", "0"});
  const Outcome refused = chat(model, "/load " + file + "\nHi\n", {"--context", "120", "--overflow", "stop"}, 1);
  EXPECT_NE(refused.err.find("no longer fits"), std::string::npos) << refused.err;
}

// An answer at the end of the context is cut, and the next question has room again.
TEST(FullContext, AnswerEndsButConversationContinues) {
  const ChatModel model;
  const std::string file = model / "talk.json";
  const Outcome outcome = chat(model, repeated(kTurn, 4) + "/save " + file + "\n",
                               {"--context", "48", "--max-tokens", "40", "--temperature", "0"});
  EXPECT_GE(lines_with(outcome.err, "the answer ends here: the context is full; the next question drops"), 1)
      << outcome.err;
  EXPECT_GE(lines_with(outcome.err, "dropped the oldest turn, "), 1) << outcome.err;
  EXPECT_EQ(read_json(file).back()["role"], "assistant");
}

}  // namespace
}  // namespace pinion
