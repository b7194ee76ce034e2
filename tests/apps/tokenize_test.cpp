// pinion tokenize and detokenize.
#include "tests/apps/program.h"

namespace pinion {
namespace {

TEST(Tokenize, TextAndInputAgreeAndComeBack) {
  const json story = read_json(kStories + "/expected.json")["generations"][0];
  const std::string prompt = story["prompt"];
  const std::string ids = story["prompt_ids"].dump();
  const std::string list = ids.substr(1, ids.size() - 2) + "\n";
  EXPECT_EQ(run_pinion({"tokenize", "--model", kStories, "--text", prompt}).out, list);
  EXPECT_EQ(run_pinion({"tokenize", "--model", kStories}, prompt).out, list);
  EXPECT_EQ(run_pinion({"detokenize", "--model", kStories, "--ids", ids}).out, prompt + "\n");
  EXPECT_EQ(run_pinion({"detokenize", "--model", kStories}, list).out, prompt + "\n");
}

TEST(Tokenize, JsonAndNoSpecial) {
  const json all = run_json({"tokenize", "--model", kStories, "--text", "Once", "--json"});
  const json bare = run_json({"tokenize", "--model", kStories, "--text", "Once", "--no-special", "--json"});
  EXPECT_EQ(all["tokens"][0], "<s>");
  EXPECT_EQ(all["ids"].size(), bare["ids"].size() + 1);
  EXPECT_EQ(run_json({"detokenize", "--model", kStories, "--ids", all["ids"].dump(), "--json"})["text"], "Once");
}

TEST(Tokenize, JsonLinesGoThereAndBack) {
  const std::vector<std::string> texts = {
      "", "Hello", "two\nlines", "tab\t\"quoted\"", "caf\u00e9 \u4f60\u597d \U0001f600", "  spaces  "};
  std::string lines;
  for (const std::string& text : texts) lines += json(text).dump() + "\n";
  const Outcome ids = run_pinion({"tokenize", "--model", kStories, "--jsonl"}, lines);
  EXPECT_EQ(ids.status, 0) << ids.err;
  const Outcome back = run_pinion({"detokenize", "--model", kStories, "--jsonl"}, ids.out);
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_EQ(back.out, [&] {
    std::string expected;
    for (const std::string& text : texts) expected += json(text).dump() + "\n";
    return expected;
  }());
}

TEST(Tokenize, BadLinesAreNamed) {
  expect_failure(run_pinion({"tokenize", "--model", kStories, "--jsonl"}, "\"a\"\n{\n"), 1, "line 2");
  expect_failure(run_pinion({"tokenize", "--model", kStories, "--jsonl"}, "[1]\n"), 1, "line 1");
  expect_failure(run_pinion({"detokenize", "--model", kStories, "--jsonl"}, "[1, \"x\"]\n"), 1, "line 1");
  expect_failure(run_pinion({"detokenize", "--model", kStories, "--jsonl"}, "[1e30]\n"), 1, "line 1");
}

TEST(Tokenize, IdsOutsideTheVocabularyAreAnError) {
  const std::string cause = "outside the vocabulary: want 0 to 511, have 512";
  const std::vector<std::string> command = {"detokenize", "--model", kStories};
  expect_failure(run_pinion(command, "1,512"), 1, cause);
  for (const char* option : {"--ids", "--jsonl"}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back(option);
    if (arguments.back() == "--ids") arguments.emplace_back("403,512");
    expect_failure(run_pinion(arguments, "[403, 512]\n"), 1, cause);
  }
}

TEST(Tokenize, BytesThatAreNotUtf8BecomeReplacementCharacters) {
  const json ids = run_json({"tokenize", "--model", kStories, "--json"},
                            "a\xff\xfe"
                            "b");
  const json text = run_json({"detokenize", "--model", kStories, "--ids", ids["ids"].dump(), "--json"});
  EXPECT_EQ(text["text"],
            "a\ufffd\ufffd"
            "b");
}

TEST(Tokenize, NeedsNothingButTokenizerFiles) {
  const Folder folder;
  copy_stories(folder);
  fs::remove(folder.path / "config.json");
  fs::remove(folder.path / "model.safetensors");
  EXPECT_EQ(run_pinion({"tokenize", "--model", folder.path, "--text", "Once"}).status, 0);
  fs::remove(folder.path / "tokenizer.json");
  fs::remove(folder.path / "tokenizer.model");
  expect_failure(run_pinion({"tokenize", "--model", folder.path, "--text", "Once"}), 1, "tokenizer");
}

}  // namespace
}  // namespace pinion
