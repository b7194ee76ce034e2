// pinion chat with input from a pipe: each line is a turn.
#include "tests/apps/chat.h"

#include <sstream>

#include "engine/session/session_image.h"

namespace pinion {
namespace {

TEST(Chat, TurnPrefillsNewTokensOnly) {
  const ChatModel model;
  const Outcome outcome = chat(model, "One day a cat sat.\n/stats\nThe cat was big.\n/stats\n/reset\nA dog.\n/stats\n");
  const std::vector<Figures> turns = figures(outcome.out);
  ASSERT_EQ(turns.size(), 3u) << outcome.out << outcome.err;
  EXPECT_EQ(turns[0].reused, 0);
  EXPECT_GE(turns[1].reused, turns[0].prefilled);
  EXPECT_LE(turns[1].prefilled, 20);
  EXPECT_LE(turns[2].reused, 2);  // BOS
}

TEST(Chat, AnswersDependOnWholeConversation) {
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
  const Outcome outcome = chat(model, "/help\n\n/system Be kind.\nHello\n/stats\n/quit\nnever read\n");
  EXPECT_NE(outcome.out.find("/reset"), std::string::npos);
  EXPECT_EQ(figures(outcome.out).size(), 1u);
}

TEST(Chat, WrongCommandFailsPipedChatAtItsEnd) {
  const ChatModel model;
  const Outcome outcome = chat(model, "/nonsense\n/statz\nHello\n/stats\n", {}, 1);
  EXPECT_NE(outcome.err.find("unknown command /nonsense (/help lists them)"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("unknown command /statz; did you mean /stats?"), std::string::npos) << outcome.err;
  EXPECT_EQ(figures(outcome.out).size(), 1u);
}

TEST(Chat, RegenAndUndoRemoveOneTurn) {
  const ChatModel model;
  const std::string file = model / "talk.json", greedy = "--temperature";
  const Outcome outcome = chat(model,
                               "/regen\n/undo\n/system Be kind.\nOne day\nThe cat\n/regen\n/save " + file +
                                   "\n/undo\n/undo\n/undo\n/save " + file + ".undone\n",
                               {greedy, "0"}, 1);
  EXPECT_NE(outcome.err.find("no answer to regenerate"), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("no question"), outcome.err.find("no question to undo")) << outcome.err;
  const json saved = read_json(file);
  ASSERT_EQ(saved.size(), 5u) << saved;
  EXPECT_EQ(saved[1], (json{{"role", "user"}, {"content", "One day"}}));
  // Greedy decoding repeats the answer after the same conversation.
  std::vector<std::string> lines;
  std::istringstream out(outcome.out);
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 3u) << outcome.out;
  EXPECT_EQ(lines[0], saved[2]["content"].get<std::string>());
  EXPECT_EQ(lines[1], saved[4]["content"].get<std::string>());
  EXPECT_EQ(lines[2], lines[1]);
  EXPECT_EQ(read_json(file + ".undone"), (json{{{"role", "system"}, {"content", "Be kind."}}}));
}

TEST(Chat, ContinuesTheLastAnswer) {
  const Folder folder;
  const std::string file = folder / "talk.json";
  const auto talk = [&](const std::string& input, const char* tokens) {
    return run_pinion({"chat", "--model", kDemo, "--temperature", "0", "--max-tokens", tokens}, input).out;
  };
  EXPECT_EQ(talk("Who are you?\n/continue\n/save " + file + "\n", "6"), "I am Pinion's small\n demo model.\n");
  const json saved = read_json(file);
  ASSERT_EQ(saved.size(), 2) << saved;
  EXPECT_EQ(saved[1]["content"], "I am Pinion's small demo model.");
  write_file(file, R"([{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am "}])");
  EXPECT_EQ(talk("/load " + file + "\n/continue\n/save " + file + "\n", "12"),
            "loaded 2 messages\n Pinion's small demo model.\n");
  EXPECT_EQ(read_json(file)[1]["content"], "I am Pinion's small demo model.");
  write_file(file, R"([{"role": "user", "content": "Who?"}, {"role": "assistant", "content": [1]}])");
  const std::string input = "/continue\nHello\n/undo\n/continue\n";
  const Outcome outcome = run_pinion({"chat", "--model", kDemo, "--max-tokens", "2"}, input);
  EXPECT_EQ(outcome.status, 1);
  const size_t first = outcome.err.find("no answer to continue");
  EXPECT_NE(outcome.err.find("no answer to continue", first + 1), std::string::npos) << outcome.err;
}

// A fine-tune that names its end of turn in one file only.
TEST(Chat, EveryFileEndsTurns) {
  const json config = read_json(kDemo + "/tokenizer_config.json");
  const auto answer = [&](const json& tokenizer_config, const char* map = "{}") {
    const Folder model;
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.model"}) {
      fs::copy_file(fs::path(kDemo) / name, model.path / name);
    }
    write_file(model.path / "generation_config.json", R"({"eos_token_id": 2})");
    write_file(model.path / "tokenizer_config.json", tokenizer_config.dump());
    write_file(model.path / "special_tokens_map.json", map);
    const std::string prompt = "<|user|>Who are you?<|end|><|assistant|>";
    const json text = run_json({"generate", "--model", model.path, "--prompt", prompt, "--max-tokens", "40", "--json"});
    return text["text"].get<std::string>();
  };
  const std::string whole = "I am Pinion's small demo model.";
  json other = config;
  EXPECT_EQ(answer(config), whole) << "the template's";
  other["chat_template"] = "{{ raise_exception('no') }}";
  const std::string too_long = answer(other);
  EXPECT_TRUE(too_long.starts_with(whole) && too_long.size() > whole.size()) << too_long;
  EXPECT_EQ(answer(other, R"({"eos_token": "<|end|>"})"), whole);
  other["eos_token"] = {{"content", "<|end|>"}};
  EXPECT_EQ(answer(other), whole);
  other["eos_token"] = "<|end|>";
  EXPECT_EQ(answer(other), whole);
  other.erase("eos_token");
  other["chat_template"] = "{% broken";
  EXPECT_EQ(answer(other, R"({"eos_token": "<|end|>"})"), whole);
}

TEST(Chat, SavedConversationContinues) {
  const ChatModel model;
  const std::string file = model / "talk.json", greedy = "--temperature";
  const Outcome whole =
      chat(model, "One day a cat sat.\n/save " + file + "\nThe cat was big.\n/stats\n", {greedy, "0"});
  const std::vector<Figures> at_once = figures(whole.out);
  ASSERT_EQ(at_once.size(), 1u);
  const auto last_answer = [](const std::string& out) {
    const size_t end = out.rfind("\nprompt ");
    return out.substr(out.rfind('\n', end - 1) + 1, end - out.rfind('\n', end - 1));
  };
  const auto go_on = [&](const char* expected_note) {
    const Outcome parts = chat(model, "/load " + file + "\n/stats\nThe cat was big.\n/stats\n", {greedy, "0"});
    const std::vector<Figures> loaded = figures(parts.out);
    EXPECT_EQ(loaded.size(), 2u) << parts.out << parts.err;
    EXPECT_TRUE(parts.out.starts_with("loaded 2 messages\n")) << parts.out;
    EXPECT_EQ(loaded[1].reused, loaded[0].prefilled + loaded[0].reused);
    EXPECT_EQ(loaded[1].generated, at_once[0].generated);
    EXPECT_EQ(last_answer(parts.out), last_answer(whole.out));
    EXPECT_NE(parts.err.find(expected_note), std::string::npos) << parts.err;
    return loaded[0].prefilled;
  };
  EXPECT_LE(go_on(""), 3) << "the last token, the newline after it and what the answer's tokens merge to";
  write_file(file + ".cache", "damaged");
  EXPECT_GT(go_on("not a session image; the conversation is evaluated again"), 3);
  fs::remove(file + ".cache");
  EXPECT_GT(go_on(""), 3);
}

// Neither file contains the removed turn.
TEST(Chat, SavedCacheHoldsConversationOnly) {
  const ChatModel model;
  const auto saved = [&](const std::string& input) {
    const std::string file = model / "talk.json";
    chat(model, input + "/save " + file + "\n", {"--temperature", "0"});
    const std::string cache = fs::exists(file + ".cache") ? read_file(file + ".cache") : "";
    int64_t tokens = 0;
    if (cache.size() > sizeof(ImageHeader)) {
      tokens = reinterpret_cast<const ImageHeader*>(cache.data())->tokens;
    }
    return std::pair(read_json(file).size(), tokens);
  };
  const auto [messages, tokens] = saved("One day a cat sat.\n");
  EXPECT_EQ(messages, 2u);
  EXPECT_GT(tokens, 10);
  const auto [after_undo, tokens_after_undo] = saved("One day a cat sat.\nMy secret is long and old.\n/undo\n");
  EXPECT_EQ(after_undo, 2u);
  EXPECT_LE(tokens_after_undo, tokens + 2) << "the answer's last and the newline after it";
  const auto [after_reset, tokens_after_reset] = saved("My secret is long and old.\n/reset\n");
  EXPECT_EQ(after_reset, 0u);
  EXPECT_EQ(tokens_after_reset, 0) << "the file of before is gone, too";
}

TEST(Chat, InvalidFileNamesKeepConversation) {
  const ChatModel model;
  const std::string loop = model / "loop.json";
  write_file(loop, R"([{"role": "user", "content": "Hi"}])");
  fs::create_symlink("loop.json.cache", loop + ".cache");
  const std::string longest = model / std::string(250, 'n');
  fs::copy_file(loop, longest);
  const Outcome outcome = chat(model, "/load " + loop + "\n/load " + longest + "\nHello\n/stats\n");
  EXPECT_EQ(figures(outcome.out).size(), 1u) << outcome.out << outcome.err;
}

TEST(Chat, FailedLoadChangesNothing) {
  const ChatModel model;
  write_file(model / "text", "no JSON");
  write_file(model / "roles", R"([{"content": "x"}])");
  write_file(model / "refused", R"([{"role": "system", "content": "refuse"}])");
  const std::string input = "One day\n/load\n/save\n/load " + (model / "missing") + "\n/load " + (model / "text") +
                            "\n/load " + (model / "roles") + "\n/load " + (model / "refused") + "\n/save " +
                            (model / "none/talk") + "\n/save " + (model / "talk") + "\n";
  const Outcome outcome = chat(model, input, {}, 1);
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 7) << outcome.err;
  EXPECT_EQ(read_json(model / "talk").size(), 2u);
}

TEST(Chat, QuestionOfSeveralLines) {
  const ChatModel model;
  const std::string file = model / "talk.json";
  chat(model, "One \\\nday\\\n\n\"\"\"\n/a\n\n b\n\"\"\"\n\"\"\"x\"\"\"\n\"\"\"y\nz\"\"\"\n/save " + file +
                  "\n\"\"\"never\nclosed\n");
  const json saved = read_json(file);
  ASSERT_EQ(saved.size(), 8u) << saved;
  EXPECT_EQ(saved[0]["content"], "One \nday");
  EXPECT_EQ(saved[2]["content"], "/a\n\n b");
  EXPECT_EQ(saved[4]["content"], "x");
  EXPECT_EQ(saved[6]["content"], "y\nz");
}

TEST(Chat, BlockIsNotACommand) {
  const ChatModel model;
  const std::string file = model / "talk.json";
  chat(model, "\"\"\"\n/quit\n\"\"\"\n/save " + file + "\n/quit\nnever read\n");
  const json saved = read_json(file);
  ASSERT_EQ(saved.size(), 2u) << saved;
  EXPECT_EQ(saved[0]["content"], "/quit");
}

TEST(Chat, LinesMayEndInCrLf) {
  const ChatModel model;
  const std::string file = model / "talk.json";
  chat(model, "\"\"\"\r\na\r\n\"\"\"\r\nOne \\\r\nday\r\n/save " + file + "\r\n");
  const json saved = read_json(file);
  ASSERT_EQ(saved.size(), 4u) << saved;
  EXPECT_EQ(saved[0]["content"], "a");
  EXPECT_EQ(saved[2]["content"], "One \nday");
}

TEST(Chat, ThoughtsCanBeHiddenOrDisabled) {
  for (const bool special : {false, true}) {
    const ThinkingModel model(special);
    const auto ask = [&](const std::vector<std::string>& more) {
      std::vector<std::string> arguments = {"chat", "--model", model.path, "--temperature", "0", "--max-tokens", "60"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      return run_pinion(arguments, "One day a cat sat\n").out;
    };
    const std::string plain = ask({}), hidden = ask({"--hide-thinking"});
    const size_t mark = plain.find("</think>");
    ASSERT_NE(mark, std::string::npos) << plain;
    static const std::regex kLine("\\[thought \\d+\\.\\d s, \\d+ tokens\\]\n([^]*)");
    std::smatch match;
    ASSERT_TRUE(std::regex_match(hidden, match, kLine)) << hidden;
    EXPECT_EQ(match[1], plain.substr(mark + 8));
    EXPECT_EQ(ask({"--hide-thinking", "--no-thinking"}).find("[thought"), std::string::npos);
  }
}

TEST(Chat, UnfinishedThoughtIsNotAnAnswer) {
  const ThinkingModel model(true);
  const std::string file = model / "talk.json";
  run_pinion({"chat", "--model", model.path, "--temperature", "0", "--max-tokens", "4"},
             "One day a cat sat\n/save " + file + "\n");
  const json saved = read_json(file);
  ASSERT_EQ(saved.size(), 2u) << saved;
  EXPECT_TRUE(saved[1]["content"].get<std::string>().ends_with("\n</think>\n\n")) << saved;
}

// A model with a recurrent state, a tokenizer of single characters, and a template that removes the thoughts of
// earlier answers.
struct RecurrentModel : Folder {
  explicit RecurrentModel(const std::string& family = "qwen3_5") {
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(fs::path(PINION_TEST_DATA "/families") / family / name, path / name);
    }
    fs::copy_file(PINION_TEST_DATA "/templates/im_thinking.jinja", path / "chat_template.jinja");
    json tokenizer = {{"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                      {"decoder", {{"type", "ByteLevel"}}},
                      {"model", {{"type", "BPE"}, {"vocab", json::object()}, {"merges", json::array()}}},
                      {"added_tokens", json::array()}};
    json& vocabulary = tokenizer["model"]["vocab"];
    for (const char* mark : {"<unk>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"}) {
      const size_t id = tokenizer["added_tokens"].size();
      tokenizer["added_tokens"].push_back({{"id", id},
                                           {"content", mark},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", false},
                                           {"special", true}});
      vocabulary[mark] = id;
    }
    const auto add = [&](const std::string& text) { vocabulary[text] = vocabulary.size(); };
    for (char c = '!'; c <= '~'; ++c) add(std::string(1, c));
    add("\u0120");  // a space, a newline
    add("\u010a");
    while (vocabulary.size() < 120) add("x" + std::to_string(vocabulary.size()));
    write_file(path / "tokenizer.json", tokenizer.dump());
  }
};

TEST(Chat, RecurrentModelReprocessesNothing) {
  const RecurrentModel model;
  const std::string file = model / "talk.json";
  const std::vector<std::string> options = {"--temperature", "0"};
  const Outcome talk = chat(model, "Hi\n/stats\nBye\n/stats\n1+1\n/stats\n/save " + file + "\n?\n/stats\n", options);
  EXPECT_NE(talk.out.find("snapshots of the recurrent state"), std::string::npos) << talk.out;
  const std::vector<Figures> turns = figures(talk.out);
  ASSERT_EQ(turns.size(), 4u) << talk.out << talk.err;
  for (size_t i = 1; i < turns.size(); ++i) {
    EXPECT_GE(turns[i].reused, turns[i - 1].reused + turns[i - 1].prefilled - 16) << i;
  }
  const Outcome loaded = chat(model, "/load " + file + "\n?\n/stats\n", options);
  ASSERT_EQ(figures(loaded.out).size(), 1u) << loaded.out << loaded.err;
  EXPECT_EQ(figures(loaded.out)[0].reused, turns[3].reused);
  fs::remove(file + ".cache");
  const Outcome evaluated = chat(model, "/load " + file + "\n?\n/stats\n", options);
  ASSERT_EQ(figures(evaluated.out).size(), 1u) << evaluated.out << evaluated.err;
  EXPECT_EQ(figures(evaluated.out)[0].reused, turns[3].reused);
  const auto last_turn = [](const std::string& out) { return figures(out).back().generated; };
  EXPECT_EQ(last_turn(loaded.out), last_turn(talk.out));
  EXPECT_EQ(last_turn(evaluated.out), last_turn(talk.out));
}

// Turns, /undo, /regen and a saved cache: the answers are the same as without drafts.
void expect_drafts_change_nothing(const Folder& model, const std::string& speculate) {
  const std::string file = model / "talk.json";
  const std::string talk =
      "Hi\nBye\n/regen\n/undo\n1+1\n/save " + file + "\n?\n/reset\nHi you\n/load " + file + "\n?\n";
  const std::vector<std::string> options = {"--temperature", "0.8", "--seed", "5"};
  std::vector<std::string> drafting = options;
  drafting.insert(drafting.end(), {"--speculate", speculate});
  const Outcome alone = chat(model, talk, options), with = chat(model, talk, drafting);
  EXPECT_EQ(with.out, alone.out);
  EXPECT_GT(with.out.size(), 40u);
  const Outcome stats = chat(model, "Hi\n/stats\n", drafting);
  EXPECT_NE(stats.out.find("drafts   "), std::string::npos) << stats.out;
}

TEST(Chat, MtpLayerKeepsAnswersOfTurns) { expect_drafts_change_nothing(RecurrentModel("qwen3_5_mtp"), "mtp"); }

TEST(Chat, DraftModelKeepsAnswersOfTurns) {
  const ChatModel model;
  expect_drafts_change_nothing(model, model.path);
}

TEST(Chat, NgramDraftsKeepAnswersOfTurns) { expect_drafts_change_nothing(ChatModel(), "ngram"); }

TEST(Chat, ResetKeepsSystemMessageInCache) {
  const RecurrentModel model;
  const Outcome talk = chat(model, "Hi\n/reset\nYes?\n/reset\nNo?\n/stats\n",
                            {"--temperature", "0", "--system", "You answer all questions."});
  ASSERT_EQ(figures(talk.out).size(), 1u) << talk.out << talk.err;
  EXPECT_GE(figures(talk.out)[0].reused, 26);  // its characters
}

TEST(Chat, RefusedSystemMessageKeepsConversation) {
  const ChatModel model;
  const Outcome outcome = chat(model, "/system refuse\nHello\n/stats\n", {}, 1);
  EXPECT_NE(outcome.err.find("no such role"), std::string::npos) << outcome.err;
  EXPECT_EQ(figures(outcome.out).size(), 1u);
  expect_failure(run_pinion({"chat", "--model", model.path, "--system", "refuse"}), 1, "no such role");
}

TEST(Chat, FolderWithoutTemplateIsRefused) {
  expect_failure(run_pinion({"chat", "--model", kStories}, "Hello\n"), 1, "pinion generate");
}

TEST(Chat, DemoModelAnswersAndRemembers) {
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
