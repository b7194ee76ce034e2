// lm-eval against a running server: its log likelihoods equal those of `generate --logprobs`.
#include "tests/apps/server.h"

namespace pinion {
namespace {

// The stories model with "." as end of sequence, which is likely after whole sentences.
struct EndingStories : Folder {
  EndingStories() {
    copy_stories(*this);
    const json ids = run_json({"tokenize", "--model", kStories, "--text", "a.", "--json"})["ids"];
    full_stop = ids.back();
    write_file(path / "generation_config.json", json({{"eos_token_id", full_stop}}).dump());
  }
  int full_stop = 0;
};

// lm-eval requests one token and an echo, and takes the last entry of the lists for that token.
TEST(ServeLmEval, EndOfSequenceIsInLogprobs) {
  const EndingStories model;
  const Server server(model.path);
  const json asked = {{"prompt", "The dog ran to the park. It was very happy"},
                      {"max_tokens", 1},
                      {"temperature", 0},
                      {"logprobs", 1},
                      {"echo", true}};
  const json choice = server.post("/v1/completions", asked)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["text"], asked["prompt"]) << "it is no text";
  const json here = run_json(generate(
      kStories, {"--prompt", asked["prompt"], "--temperature", "0", "--max-tokens", "1", "--json", "--logprobs", "1"}));
  EXPECT_EQ(here["ids"][0], model.full_stop);
  const json& lists = choice["logprobs"];
  ASSERT_EQ(lists["tokens"].size(), here["prompt_ids"].size() + 1);
  EXPECT_EQ(lists["tokens"].back(), ".");
  EXPECT_EQ(lists["token_logprobs"].back(), here["logprobs"][0]["logprob"]);
  EXPECT_EQ(lists["top_logprobs"].back().size(), 1u);
  json last;
  for (const json& chunk : server.stream("/v1/completions", asked)) last = chunk["choices"][0]["logprobs"];
  EXPECT_EQ(last["tokens"], lists["tokens"]);
}

TEST(ServeLmEval, LogLikelihoodsEqualGenerate) {
  const EndingStories model;
  const Server server(model.path);
  const Folder folder;
  const std::string command = "no_proxy=127.0.0.1 PATH=" PINION_SOURCE_DIR
                              "/build/deps/evals/bin:$PATH python3 " PINION_SOURCE_DIR
                              "/tests/apps/run_lm_eval.py http://127.0.0.1:" +
                              std::to_string(server.port()) + " " + quoted(model.path) + " >" + quoted(folder / "out") +
                              " 2>" + quoted(folder / "err");
  const int status = std::system(command.c_str());
  const std::string out = read_file(folder / "out");
  if (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127) {
    GTEST_SKIP() << out << "`tools/setup evals` installs it";
  }
  ASSERT_EQ(status, 0) << read_file(folder / "err") << server.errors();
  const json results = json::parse(out.substr(out.rfind('\n', out.size() - 2) + 1));
  EXPECT_EQ(results["ends"].size(), 14u);
  EXPECT_EQ(results["acc"], 1.0);
  for (const json& one : results["ends"]) {
    const std::string begin = one["begin"], whole = begin + one["end"].get<std::string>();
    const auto generated = [&](const std::string& prompt) {
      return run_json(generate(kStories, {"--prompt", prompt, "--max-tokens", "1", "--json", "--logprobs", "1"}));
    };
    const json here = generated(whole);
    const size_t first = generated(begin)["prompt_ids"].size() - 1;  // the prompt's first token has none
    double sum = 0;
    bool is_greedy = true;
    for (size_t i = first; i < here["prompt_logprobs"].size(); ++i) {
      const json& token = here["prompt_logprobs"][i];
      sum += token["logprob"].get<double>();
      is_greedy = is_greedy && token["logprob"] == token["top"][0]["logprob"];
    }
    EXPECT_EQ(one["loglikelihood"].get<double>(), sum) << whole;
    EXPECT_EQ(one["is_greedy"], is_greedy) << whole;
  }
}

}  // namespace
}  // namespace pinion
