// Vectors and scores over HTTP are those of `pinion embed`.
#include "tests/apps/embedding.h"
#include "tests/apps/server.h"

namespace pinion {
namespace {

TEST(ServeEmbeddings, VectorsEqualThoseOfTheCommand) {
  const std::string model = kModels + "gemma3_mean";
  const json expected = read_json(model + "/expected.json");
  const std::vector<std::string> texts = texts_of(expected, "");
  const auto lines = lines_of(run_pinion(embed(model, with_texts({"--dimensions", "8"}, texts))));
  Server server(model, {"--parallel", "2", "--queue", "2"});
  const json answer = server.post("/v1/embeddings", {{"input", texts}, {"dimensions", 8}});
  ASSERT_EQ(answer["data"].size(), texts.size()) << answer;
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(answer["data"][i]["index"], i);
    EXPECT_EQ(answer["data"][i]["embedding"], lines[i]["embedding"]);
  }
  EXPECT_GT(answer["usage"]["total_tokens"], 0);
  const json one =
      server.post("/v1/embeddings", {{"input", texts[3]}, {"dimensions", 2}, {"encoding_format", "base64"}});
  EXPECT_EQ(one["data"][0]["embedding"].get<std::string>().size(), 12u);
  EXPECT_EQ(server.post("/api/embed", {{"input", texts}, {"dimensions", 8}})["embeddings"][1], lines[1]["embedding"]);
  EXPECT_EQ(server.post("/api/embeddings", {{"prompt", texts[1]}, {"dimensions", 8}})["embedding"],
            lines[1]["embedding"]);
  const auto query = lines_of(run_pinion(embed(model, {"--prompt-name", "query", "--text", texts[0]})));
  for (const json& body : {json{{"input", texts[0]}, {"prompt_name", "query"}},
                           json{{"input", texts[0]}, {"input_type", "search_query"}}}) {
    EXPECT_EQ(server.post("/v1/embeddings", body)["data"][0]["embedding"], query[0]["embedding"]);
  }
  const json ids = server.post("/tokenize", {{"content", "title: none | text: x"}, {"add_special", true}})["tokens"];
  EXPECT_EQ(server.post("/v1/embeddings", {{"input", json::array({ids})}})["data"][0],
            server.post("/v1/embeddings", {{"input", "x"}})["data"][0]);
}

TEST(ServeEmbeddings, LongTextsAreCutUnlessTheRequestForbidsIt) {
  Server server(kModels + "gemma3_mean");
  std::string words;
  for (int i = 0; i < 200; ++i) words += " word";
  EXPECT_EQ(server.post("/api/embed", {{"input", words}}), server.post("/api/embed", {{"input", words + words}}));
  for (const json& forbids : {json(false), json("NONE")}) {
    const json answer = server.post("/api/embed", {{"input", {"a", words}}, {"truncate", forbids}}, 400);
    EXPECT_NE(answer.dump().find("at most 48 tokens"), std::string::npos) << answer;
  }
  EXPECT_EQ(server.post("/api/embed", {{"input", "a"}, {"truncate", false}})["embeddings"].size(), 1u);
  for (const json& nothing : {json::array(), json("")}) {
    EXPECT_EQ(server.post("/api/embed", {{"input", nothing}})["embeddings"], json::array());
  }
  EXPECT_EQ(server.post("/api/embeddings", {{"prompt", ""}})["embedding"], json::array());
  // A text of one token behind one that fills a pass.
  Server narrow(kModels + "gemma3_mean", {"--prefill-chunk", "8", "--parallel", "2"});
  const std::vector<int> full(48, 7), one = {5};
  EXPECT_EQ(narrow.post("/v1/embeddings", {{"input", {full, one}}})["data"].size(), 2u);
  Server pairs(kModels + "qwen2_score");
  pairs.post("/v1/rerank", {{"query", "a"}, {"documents", {words}}});
  pairs.post("/v1/rerank", {{"query", "a"}, {"documents", {words}}, {"truncate", false}}, 400);
}

TEST(ServeEmbeddings, BadRequestsAreRefused) {
  Server server(kModels + "gemma3_mean");
  for (const auto& [body, field] : {std::pair<json, std::string>{json::object(), "input"},
                                    {{{"input", json::array()}}, "input"},
                                    {{{"input", {1, "a"}}}, "input"},
                                    {{{"input", 3}}, "input"},
                                    {{{"input", {1, 100'000}}}, "token id"},
                                    {{{"input", "a"}, {"dimensions", 4096}}, "dimensions"},
                                    {{{"input", "a"}, {"encoding_format", "x"}}, "encoding_format"},
                                    {{{"input", "a"}, {"prompt_name", "x"}}, "prompt_name"},
                                    {{{"input", std::vector<int>(2000, 1)}}, "input"}}) {
    const json answer = server.post("/v1/embeddings", body, 400);
    EXPECT_NE(answer.dump().find(field), std::string::npos) << answer;
  }
  server.post("/v1/rerank", {{"query", "a"}, {"documents", {"b"}}}, 400);
  const json text = server.post("/v1/completions", {{"prompt", "a"}}, 400);
  EXPECT_NE(text.dump().find("/v1/embeddings"), std::string::npos) << text;
  Server chat(kDemo);
  EXPECT_NE(chat.post("/v1/embeddings", {{"input", "a"}}, 400).dump().find("--pooling"), std::string::npos);
  Server pooling(kDemo, {"--pooling", "last"});
  EXPECT_EQ(pooling.post("/v1/embeddings", {{"input", "a"}})["data"][0]["embedding"].size(), 192u);
  EXPECT_EQ(chatted(pooling, kOwlStory), chatted(chat, kOwlStory)) << "a chat model may do both";
}

TEST(ServeEmbeddings, UnusedFieldsAreNamed) {
  Server server(kModels + "gemma3_mean");
  const auto result =
      server.client().Post("/v1/embeddings", R"({"input": "a", "user": "b", "task": "c"})", "application/json");
  ASSERT_TRUE(result);
  EXPECT_EQ(result->get_header_value("X-Pinion-Ignored"), "task");
}

TEST(ServeEmbeddings, DocumentsAreRanked) {
  for (const char* name : {"qwen2_score", "qwen3_logit_score"}) {
    const json expected = read_json(kModels + name + "/expected.json");
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t i = 0; i < std::ssize(expected["scores"]); ++i)
      order.emplace_back(-expected["scores"][i].get<double>(), i);
    std::ranges::sort(order);
    Server server(kModels + name, {"--quant", "none"});
    for (const char* path : {"/v1/rerank", "/v2/rerank", "/rerank"}) {
      const json answer = server.post(path, {{"query", expected["query"]}, {"documents", expected["documents"]}});
      ASSERT_EQ(answer["results"].size(), order.size()) << answer;
      for (size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(answer["results"][i]["index"], order[i].second) << name;
        EXPECT_NEAR(answer["results"][i]["relevance_score"].get<double>(), 1 / (1 + std::exp(order[i].first)), 1e-4);
      }
    }
    const json best = server.post("/v1/rerank", {{"query", expected["query"]},
                                                 {"top_n", 1},
                                                 {"return_documents", true},
                                                 {"documents", {{{"text", expected["documents"][0]}}, "other"}}});
    EXPECT_EQ(best["results"].size(), 1u);
    EXPECT_TRUE(best["results"][0]["document"]["text"].is_string());
    EXPECT_NE(server.post("/v1/rerank", {{"query", "a"}}, 400).dump().find("documents"), std::string::npos);
    EXPECT_NE(server.post("/v1/rerank", {{"query", "a"}, {"documents", {3}}}, 400).dump().find("documents"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace pinion
