// pinion generate --speculate: the text is the same with every source of drafts; failures and refusals.
#include <set>

#include "tests/apps/program.h"

namespace pinion {
namespace {

TEST(Speculate, SpeculationChangesFiguresOnly) {
  const std::vector<std::string> options = {
      "--prompt", "The cat sat. The cat sat. The cat", "--max-tokens", "60", "--json", "--temperature", "0"};
  const json plain = run_json(generate(kStories, options));
  std::vector<std::string> speculating = options;
  speculating.insert(speculating.end(), {"--speculate", "ngram"});
  const json with = run_json(generate(kStories, speculating));
  for (const char* field : {"ids", "text", "finish_reason"}) EXPECT_EQ(with[field], plain[field]);
  EXPECT_EQ(with["stats"]["logits_hash"], plain["stats"]["logits_hash"]);
  EXPECT_EQ(plain["stats"]["speculate"], "off");
  EXPECT_EQ(plain["stats"]["tokens_per_pass"], 1.0);
  EXPECT_EQ(with["stats"]["speculate"], "ngram");
  EXPECT_GE(with["stats"]["tokens_per_pass"], 1.0);
  EXPECT_LE(with["stats"]["accepted_tokens"], with["stats"]["drafted_tokens"]);
  const Outcome dynamic =
      run_pinion(generate(PINION_TEST_DATA "/families/llama_dynamic",
                          {"--prompt-ids", "5,6,5,6,5", "--max-tokens", "4", "--speculate", "ngram"}));
  EXPECT_NE(dynamic.err.find("--speculate has no effect: "), std::string::npos) << dynamic.err;
}

TEST(Speculate, DraftModelKeepsText) {
  std::vector<std::string> options = {"--prompt", "Once upon a time", "--max-tokens", "60", "--json", "--seed",
                                      "3",        "--temperature",    "0.9"};
  const json plain = run_json(generate(kStories, options));
  options.insert(options.end(), {"--speculate", kStories});
  const json with = run_json(generate(kStories, options));
  EXPECT_EQ(with["ids"], plain["ids"]);
  EXPECT_EQ(with["stats"]["logits_hash"], plain["stats"]["logits_hash"]);
  EXPECT_EQ(with["stats"]["speculate"], kStories);
  EXPECT_EQ(with["stats"]["accepted_tokens"], with["stats"]["drafted_tokens"]);
}

TEST(Speculate, MtpLayerKeepsText) {
  const std::string folder = PINION_TEST_DATA "/families/qwen3_5_mtp";
  for (const std::string quant : {"none", "w8a8", "w4a8"}) {
    const Folder home;
    std::vector<std::string> options = {"--prompt-ids",    "5,60,7,60,7", "--max-tokens",  "80",  "--json",
                                        "--seed",          "3",           "--temperature", "0.7", "--ignore-eos",
                                        "--prefill-chunk", "20",          "--quant",       quant};
    const json plain = json::parse(run_pinion(generate(folder, options), "", home.path).out);
    options.insert(options.end(), {"--speculate", "mtp"});
    for (const bool was_kept : {false, true}) {
      const json with = json::parse(run_pinion(generate(folder, options), "", home.path).out);
      EXPECT_EQ(with["ids"], plain["ids"]);
      EXPECT_EQ(with["stats"]["logits_hash"], plain["stats"]["logits_hash"]);
      EXPECT_EQ(with["stats"]["speculate"], "mtp");
      EXPECT_GT(with["stats"]["drafted_tokens"], 0);
      // The model's cache file is the same with and without the layer, which has a file of its own.
      EXPECT_TRUE(with["stats"]["weights_from_cache"]) << was_kept;
      EXPECT_EQ(std::distance(fs::directory_iterator(home.path / "pinion"), {}), 2);
    }
  }
}

// Damage makes the drafts worse, not the text.
TEST(Speculate, DamagedDraftModelIsNotAFailure) {
  const Folder home, small;
  copy_stories(small);
  const auto run = [&](const std::string& speculate) {
    return run_pinion(generate(kStories, {"--prompt", "Once", "-n", "8", "--quant", "none", "--speculate", speculate}),
                      "", home.path);
  };
  const Outcome plain = run("off");
  std::set<fs::path> of_model;
  for (const auto& entry : fs::directory_iterator(home.path / "pinion")) of_model.insert(entry.path());
  run(small.path);
  for (const auto& entry : fs::directory_iterator(home.path / "pinion")) {
    if (of_model.contains(entry.path())) continue;
    std::string text = read_file(entry.path());
    text[20'000] = static_cast<char>(text[20'000] ^ 1);
    write_file(entry.path(), text);
  }
  const Outcome damaged = run(small.path);
  EXPECT_EQ(damaged.status, 0) << damaged.err;
  EXPECT_EQ(damaged.out, plain.out);
  EXPECT_NE(damaged.err.find("damaged weights, repacked at the next start: 1 of 1 segments\n"), std::string::npos)
      << damaged.err;
}

TEST(Speculate, UnsuitableDraftModelsAreRefused) {
  const auto refuses = [](const std::string& small, const char* why) {
    expect_failure(run_pinion(generate(kStories, {"--prompt", "a", "--speculate", small})), 1, why);
  };
  refuses("ngrm", "--speculate ngrm: no such folder: want off, ngram, mtp, or the folder");
  refuses("mtp", "MTP layer: this llama model has none; `--speculate ngram` needs none\n");
  refuses(PINION_TEST_DATA "/families/qwen3_5", "cannot draft: it has a recurrent state");
  const Folder folder;
  copy_stories(folder);
  json tokenizer = read_json(folder / "tokenizer.json");
  json& vocab = tokenizer["model"]["vocab"];
  std::swap(vocab["▁the"], vocab["▁they"]);
  write_file(folder / "tokenizer.json", tokenizer.dump());
  refuses(folder.path, "a draft model must have the vocabulary of the model; token");
}

}  // namespace
}  // namespace pinion
