// /v1/completions: log probabilities, offsets, fill in the middle.
#include "tests/apps/server.h"

namespace pinion {
namespace {

const std::string kOnce = "Once upon a time";

TEST(ServeCompletions, LogprobsEqualGenerate) {
  Server server(kStories);
  const json want = run_json(
      generate(kStories, {"--prompt", kOnce, "--max-tokens", "5", "--temperature", "0", "--json", "--logprobs", "2"}));
  const json request = {{"prompt", kOnce}, {"max_tokens", 5}, {"temperature", 0}, {"logprobs", 2}, {"echo", true}};
  const json answer = server.post("/v1/completions", request)["choices"][0];
  const json& lists = answer["logprobs"];
  const size_t prompt = want["prompt_ids"].size();
  ASSERT_EQ(lists["tokens"].size(), prompt + 5);
  EXPECT_TRUE(lists["token_logprobs"][0].is_null());
  for (size_t i = 1; i < prompt + 5; ++i) {
    const json& one = i < prompt ? want["prompt_logprobs"][i - 1] : want["logprobs"][i - prompt];
    EXPECT_EQ(lists["token_logprobs"][i], one["logprob"]) << i;
    double best = -1e9;
    for (const auto& [token, logprob] : lists["top_logprobs"][i].items()) best = std::max(best, logprob.get<double>());
    EXPECT_EQ(best, one["top"][0]["logprob"]) << i;
  }
  std::string joined;
  for (const json& token : lists["tokens"]) joined += token;
  EXPECT_TRUE(joined.ends_with(answer["text"].get<std::string>())) << joined;
  // The stream has the same entries; with max_tokens 0 there are only those of the prompt.
  json pieces = json::array();
  for (const json& chunk : server.stream("/v1/completions", request)) {
    for (const json& one : chunk["choices"][0]["logprobs"]["token_logprobs"]) pieces.push_back(one);
  }
  EXPECT_EQ(pieces, lists["token_logprobs"]);
  json none = request;
  none["max_tokens"] = 0;
  EXPECT_EQ(server.post("/v1/completions", none)["choices"][0]["logprobs"]["token_logprobs"].size(), prompt);
}

// text_offset is the position of a token's text in characters.
TEST(ServeCompletions, TextOffsetsCountCharacters) {
  Server server(kStories);
  // Tokens: the beginning of a word, and both halves of a character.
  const int32_t next = server.post("/tokenize", {{"content", "é"}})["tokens"].back();
  json request = {{"prompt", "Café é"}, {"max_tokens", 2}, {"temperature", 0},
                  {"logprobs", 0},      {"echo", true},    {"logit_bias", {{std::to_string(next), 100}}}};
  for (const bool echoes : {true, false}) {
    request["echo"] = echoes;
    const json answer = server.post("/v1/completions", request)["choices"][0];
    std::u32string text;
    for (const char c : answer["text"].get<std::string>()) {
      if ((c & 0xC0) != 0x80) text += static_cast<unsigned char>(c);
    }
    const json& tokens = answer["logprobs"]["tokens"];
    const json& offsets = answer["logprobs"]["text_offset"];
    ASSERT_EQ(tokens.size(), offsets.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == "é") {
        EXPECT_EQ(text.substr(offsets[i], 1), U"\xC3") << i << answer;
      }
    }
    EXPECT_EQ(offsets.back(), text.size() - 1) << answer;
  }
  const json request_of_words = {
      {"prompt", "Once upon a time, there"}, {"max_tokens", 2}, {"temperature", 0}, {"echo", true}, {"logprobs", 0}};
  const json words = server.post("/v1/completions", request_of_words)["choices"][0];
  EXPECT_EQ(words["text"], "Once upon a time, there was a");
  EXPECT_EQ(words["logprobs"]["text_offset"], json({0, 0, 4, 9, 11, 16, 17, 23, 27}));  // the first token is <s>
}

// The stories model; its vocabulary gets the tokens of fill-in-the-middle and one that ends the text.
TEST(ServeCompletions, FillsInTheMiddle) {
  const Folder model;
  copy_stories(model);
  json tokenizer = read_json(model.path / "tokenizer.json");
  const std::pair<std::string, std::string> marks[] = {
      {"<", "▁<PRE>"}, {">", "▁<SUF>"}, {"|", "▁<MID>"}, {"™", "▁<EOT>"}};
  int32_t eot = 0;
  for (const auto& [old, mark] : marks) {
    json added = tokenizer["added_tokens"][0];
    json& vocabulary = tokenizer["model"]["vocab"];
    added["id"] = vocabulary[mark] = eot = vocabulary[old];
    added["content"] = mark;
    vocabulary.erase(old);
    tokenizer["added_tokens"].push_back(added);
  }
  write_file(model.path / "tokenizer.json", tokenizer.dump());
  Server server(model.path);
  const json tokens = server.post("/tokenize", {{"content", "▁<PRE>Once upon▁<SUF>▁<MID>"}, {"add_special", true}});
  json request = {{"prompt", "Once upon"}, {"suffix", "."}, {"max_tokens", 9}, {"temperature", 0}, {"seed", 1}};
  const json filled = server.post("/v1/completions", request);
  // "." is one more token; it has no leading blank.
  EXPECT_EQ(filled["usage"]["prompt_tokens"], tokens["count"].get<int>() + 1) << tokens;
  EXPECT_EQ(filled["usage"]["completion_tokens"], 9);
  const json infill = {{"input_prefix", "Once upon"}, {"input_suffix", "."}, {"n_predict", 9}, {"temperature", 0}};
  EXPECT_EQ(server.post("/infill", infill)["content"], filled["choices"][0]["text"]);
  const json options = {{"num_predict", 9}, {"temperature", 0}};
  json other = {{"prompt", "Once upon"}, {"suffix", "."}, {"stream", false}, {"options", options}};
  EXPECT_EQ(server.post("/api/generate", other)["response"], filled["choices"][0]["text"]);
  EXPECT_EQ(server.post("/api/show", json::object())["capabilities"], json({"completion", "insert"}));
  request["logit_bias"] = {{std::to_string(eot), 100}};
  const json ended = server.post("/v1/completions", request);
  EXPECT_EQ(ended["choices"][0]["text"], "");
  EXPECT_EQ(ended["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(ended["usage"]["completion_tokens"], 1);
}

// The endpoints of llama.cpp's server.
TEST(ServeCompletions, FormatOfLlamaCpp) {
  Server server(kDemo);
  const json request = {{"prompt", kOnce}, {"n_predict", 8}, {"temperature", 0}};
  const json answer = server.post("/completion", request), same = server.post("/v1/completions", request);
  EXPECT_EQ(answer["content"], same["choices"][0]["text"]);
  EXPECT_EQ(answer["tokens_predicted"], 8);
  EXPECT_EQ(answer["tokens"].size(), 8);
  EXPECT_EQ(answer["tokens_evaluated"], same["usage"]["prompt_tokens"]);
  EXPECT_EQ(answer["stop_type"], "limit");
  EXPECT_EQ(answer["timings"]["predicted_n"], 8);
  EXPECT_EQ(answer["generation_settings"]["n_predict"], 8);
  json streamed = request;
  streamed["stream"] = true;
  const std::string events = server.client().Post("/completion", streamed.dump(), "application/json")->body;
  std::string text;
  size_t count = 0;
  for (size_t at = 0; (at = events.find("data: ", at)) != std::string::npos; ++count) {
    const size_t end = events.find("\n\n", at);
    const json part = json::parse(events.substr(at + 6, end - at - 6));
    EXPECT_EQ(part["stop"], end + 2 == events.size());
    text += part["content"];
    at = end;
  }
  EXPECT_EQ(json(text), answer["content"]);
  EXPECT_GT(count, 2u);
  json stopped = request;
  stopped["stop"] = text.substr(5, 4);
  const json word = server.post("/completion", stopped);
  EXPECT_EQ(word["stop_type"], "word");
  EXPECT_EQ(word["stopping_word"], stopped["stop"]);
  stopped["n"] = 2;
  server.post("/completion", stopped, 400);
  server.post("/completion", json::object(), 400);
  server.post("/infill", json::array(), 400);
  const json infill = {{"input_prefix", "a"}, {"input_suffix", "b"}};
  const json refused = server.post("/infill", infill, 400);
  EXPECT_NE(refused["error"]["message"].get<std::string>().find("no fill-in-the-middle tokens"), std::string::npos);

  const json props = json::parse(server.get("/props"));
  EXPECT_EQ(props["model_path"], "demo") << "no path of the server's disk";
  EXPECT_EQ(props["bos_token"], "<s>");
  EXPECT_NE(props["chat_template"].get<std::string>().find("messages"), std::string::npos);
  EXPECT_EQ(json::parse(server.get("/slots")).size(), props["total_slots"].get<size_t>());
  const json talk = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  EXPECT_EQ(server.post("/apply-template", talk)["prompt"], "<s><|user|>Hi<|end|><|assistant|>");
}

}  // namespace
}  // namespace pinion
