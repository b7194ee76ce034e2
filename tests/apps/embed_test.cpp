// Vectors and scores of texts are those of sentence-transformers.
#include <cstring>

#include "tests/apps/embedding.h"

namespace pinion {
namespace {

// FNV-1a.
uint64_t fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

TEST(Embed, VectorsEqualThoseOfTheReference) {
  for (const char* name : {"qwen3_last", "gemma3_mean", "mistral_base"}) {
    const json expected = read_json(kModels + name + "/expected.json");
    for (const auto& [quant, least] : {std::pair("none", 0.99999), {"w8a8", 0.998}}) {
      for (const std::string prompt : {"", "query"}) {
        std::vector<std::string> options = {"--quant", quant};
        if (!prompt.empty()) options.insert(options.end(), {"--prompt-name", prompt});
        const auto lines = lines_of(run_pinion(embed(kModels + name, with_texts(options, texts_of(expected, prompt)))));
        size_t i = 0;
        for (const json& row : expected["vectors"]) {
          if (row["prompt_name"] != prompt) continue;
          ASSERT_LT(i, lines.size());
          EXPECT_GE(cosine(lines[i++]["embedding"], row["vector"]), least) << name << " " << quant << " " << prompt;
        }
      }
    }
  }
}

TEST(Embed, ScoresEqualThoseOfTheReference) {
  for (const char* name : {"qwen2_score", "qwen3_logit_score"}) {
    const json expected = read_json(kModels + name + "/expected.json");
    const auto lines = lines_of(run_pinion(
        embed(kModels + name, with_texts({"--quant", "none", "--query", expected["query"]}, expected["documents"]))));
    ASSERT_EQ(lines.size(), expected["scores"].size());
    for (size_t i = 0; i < lines.size(); ++i) {
      EXPECT_NEAR(lines[i]["scores"][0].get<double>(), expected["scores"][i].get<double>(), 2e-4) << name;
    }
    for (const json& pair : expected.value("cut", json::array())) {
      const auto cut = lines_of(run_pinion(embed(kModels + name, {"--quant", "none", "--query", pair["query"], "--text",
                                                                  pair["document"].get<std::string>()})));
      EXPECT_NEAR(cut[0]["scores"][0].get<double>(), pair["score"].get<double>(), 2e-4) << pair["document"];
    }
  }
}

// Alone or among others, in any order, with any number of threads and of tokens in a pass; on every kind of machine.
TEST(Embed, VectorsHaveTheSameBits) {
  for (const auto& [name, hash] :
       {std::pair("qwen3_last", 9929896565790677619u), {"gemma3_mean", 4086944226461927357u}}) {
    const json expected = read_json(kModels + name + "/expected.json");
    std::vector<std::string> texts = texts_of(expected, "");
    std::string all;
    for (const json& line : lines_of(run_pinion(embed(kModels + name, with_texts({}, texts))))) {
      all += line["embedding"].dump();
    }
    EXPECT_EQ(fnv1a(all), hash) << name;
    std::ranges::reverse(texts);
    const auto reversed =
        lines_of(run_pinion(embed(kModels + name, with_texts({"--cores", "0", "--prefill-chunk", "7"}, texts))));
    std::string backwards, alone;
    for (const json& line : reversed) backwards = line["embedding"].dump() + backwards;
    EXPECT_EQ(backwards, all);
    for (const std::string& text : texts) {
      alone = lines_of(run_pinion(embed(kModels + name, {"--text", text})))[0]["embedding"].dump() + alone;
    }
    EXPECT_EQ(alone, all);
  }
}

TEST(Embed, LinesDimensionsAndFile) {
  const Folder folder;
  const std::string input = "first line\n\nsecond line\r\nthird";
  const auto lines = lines_of(run_pinion(embed(kModels + "qwen3_last", {"--dimensions", "8"}), input));
  ASSERT_EQ(lines.size(), 3u);
  double length = 0;
  for (const double x : lines[1]["embedding"].get<std::vector<double>>()) length += x * x;
  EXPECT_EQ(lines[1]["embedding"].size(), 8u);
  EXPECT_NEAR(length, 1, 1e-5) << "normalised once more";
  EXPECT_EQ(lines_of(run_pinion(
                embed(kModels + "qwen3_last", {"--dimensions", "8", "--text", "second line"})))[0]["embedding"],
            lines[1]["embedding"]);
  const Outcome saved =
      run_pinion(embed(kModels + "qwen3_last", {"--dimensions", "8", "--out", folder / "v.npy"}), input);
  EXPECT_EQ(saved.status, 0) << saved.err;
  EXPECT_EQ(saved.out, "");
  const std::string file = read_file(folder / "v.npy");
  EXPECT_NE(file.find("'shape': (3, 8)"), std::string::npos);
  float first = 0;
  ASSERT_GE(file.size(), 3 * 8 * sizeof first);
  std::memcpy(&first, file.data() + file.size() - 3 * 8 * sizeof first, sizeof first);
  EXPECT_FLOAT_EQ(first, lines[0]["embedding"][0].get<float>());
}

// Files by llama.cpp's converter (tools/reference/make_gguf_families.py) have no prompts.
TEST(Embed, GgufFilesGiveTheSame) {
  const std::vector<std::string> vector = {"--quant", "none", "--text", "The harbour is quiet.", "--prompt", ""};
  const std::vector<std::string> score = {"--quant", "none", "--text", "The harbour is quiet.", "--query", "Is it?"};
  for (const auto& [name, options] : {std::pair<std::string, std::vector<std::string>>{"qwen3_last", vector},
                                      {"gemma3_mean", vector},
                                      {"qwen3_logit_score", score}}) {
    EXPECT_EQ(lines_of(run_pinion(embed(PINION_TEST_DATA "/gguf/embeddings/" + name + ".gguf", options))),
              lines_of(run_pinion(embed(kModels + name, options))));
  }
}

TEST(Embed, PackedModelsGiveTheSame) {
  for (const auto& [name, options] : {std::pair<std::string, std::vector<std::string>>{"gemma3_mean", {"--text", "a"}},
                                      {"qwen2_score", {"--text", "a", "--query", "b"}}}) {
    const Folder folder;
    const Outcome packed = run_pinion({"pack", "--model", kModels + name, "--out", folder / "packed"});
    EXPECT_EQ(packed.status, 0) << packed.err;
    EXPECT_EQ(lines_of(run_pinion(embed(folder / "packed", options))),
              lines_of(run_pinion(embed(kModels + name, options))));
  }
}

struct ModelCopy : Folder {
  explicit ModelCopy(const std::string& name) {
    fs::copy(kModels + name, path, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
  double score(const std::string& query, const std::string& document) const {
    return lines_of(run_pinion(embed(path, {"--quant", "none", "--query", query, "--text", document})))[0]["scores"][0];
  }
};

// Header and data of a safetensors file.
std::pair<json, std::string> parts_of(const fs::path& file) {
  const std::string text = read_file(file);
  uint64_t size = 0;
  std::memcpy(&size, text.data(), sizeof size);
  return {json::parse(text.substr(8, size)), text.substr(8 + size)};
}

void write_parts(const fs::path& file, const json& header, const std::string& data) {
  const std::string text = header.dump();
  const uint64_t size = text.size();
  write_file(file, std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data);
}

void add_tensor(json* header, std::string* data, const std::string& name, const json& shape, const std::string& bytes) {
  (*header)[name] = {
      {"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {data->size(), data->size() + bytes.size()}}};
  *data += bytes;
}

// As in transformers: the score is that of the last token which is not pad_token_id, and a bias of its head is ignored.
TEST(Embed, ScoresSkipPaddingThatEndsTexts) {
  const ModelCopy plain("qwen2_score"), padded("qwen2_score");
  const std::string end = "<|endoftext|>";
  json tokenizer = read_json(padded.path / "tokenizer.json"), config = read_json(padded.path / "config.json");
  config["pad_token_id"] = 620;
  tokenizer["post_processor"]["single"].push_back({{"SpecialToken", {{"id", end}, {"type_id", 0}}}});
  tokenizer["post_processor"]["special_tokens"][end] = {{"id", end}, {"ids", {620}}, {"tokens", {end}}};
  write_file(padded.path / "tokenizer.json", tokenizer.dump());
  const double last = padded.score("b", "a");
  EXPECT_EQ(last, plain.score("b" + end, "a" + end));
  write_file(padded.path / "config.json", config.dump());
  EXPECT_EQ(padded.score("b", "a"), plain.score("b" + end, "a"));
  EXPECT_NE(padded.score("b", "a"), last);
  auto [header, data] = parts_of(plain.path / "model.safetensors");
  add_tensor(&header, &data, "score.bias", {1}, std::string("\x80\x3f", 2));
  const double before = plain.score("b", "a");
  write_parts(plain.path / "model.safetensors", header, data);
  EXPECT_EQ(plain.score("b", "a"), before);
}

// The head's rows make the scores, also if it is not the embedding.
TEST(Embed, ScoresOfUntiedHeads) {
  const ModelCopy untied("qwen3_logit_score");
  json config = read_json(untied.path / "config.json");
  config["tie_word_embeddings"] = false;
  auto [header, data] = parts_of(untied.path / "model.safetensors");
  const json tied = header["model.embed_tokens.weight"], shape = tied["shape"];
  const size_t begin = tied["data_offsets"][0], size = tied["data_offsets"][1].get<size_t>() - begin;
  const std::string embedding = data.substr(begin, size);
  add_tensor(&header, &data, "lm_head.weight", shape, embedding.substr(size / 2) + embedding.substr(0, size / 2));
  const double before = untied.score("b", "a");
  write_file(untied.path / "config.json", config.dump());
  write_parts(untied.path / "model.safetensors", header, data);
  const double score = untied.score("b", "a");
  EXPECT_NE(score, before);

  const Outcome packed = run_pinion({"pack", "--model", untied.path, "--out", untied / "packed"});
  EXPECT_EQ(packed.status, 0) << packed.err;
  const Outcome again = run_pinion({"pack", "--model", untied / "packed", "--out", untied / "again"});
  EXPECT_EQ(again.status, 0) << again.err;
  const std::vector<std::string> pair = {"--query", "b", "--text", "a"};
  const auto expected = lines_of(run_pinion(embed(untied.path, pair)));
  EXPECT_EQ(lines_of(run_pinion(embed(untied / "packed", pair))), expected);
  EXPECT_EQ(lines_of(run_pinion(embed(untied / "again", pair))), expected);

  json tensors = json::object();
  std::string contents;
  const std::string name = "base_model.model.lm_head.lora_";
  const size_t rows = shape[0], width = shape[1];
  add_tensor(&tensors, &contents, name + "A.weight", {1, width}, std::string(2 * width, '\x3f'));
  add_tensor(&tensors, &contents, name + "B.weight", {rows, 1}, std::string(2 * rows, '\x3f'));
  fs::create_directory(untied.path / "adapter");
  write_parts(untied.path / "adapter/adapter_model.safetensors", tensors, contents);
  write_file(untied.path / "adapter/adapter_config.json", R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1})");
  expect_failure(run_pinion(embed(untied.path, with_texts({"--query", "b", "--lora", untied / "adapter"}, {"a"}))), 1,
                 "an adapter of the head");
}

TEST(Embed, RerankersReadPromptAndActivation) {
  const Folder folder;
  fs::copy(kModels + "qwen3_logit_score", folder.path,
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  const auto score = [&](const std::vector<std::string>& options) {
    return lines_of(run_pinion(embed(folder.path, with_texts(options, {"a"}))))[0];
  };
  const json plain = score({"--query", "b"});
  EXPECT_NE(score({"--query", "b", "--prompt", "other"}), plain);
  write_file(folder.path / "config_sentence_transformers.json",
             R"({"prompts": {"q": "other"}, "default_prompt_name": "q"})");
  EXPECT_EQ(score({"--query", "b"}), score({"--query", "b", "--prompt", "other"}));
  write_file(folder.path / "config_sentence_transformers.json", R"({"activation_fn": "torch.nn.Tanh"})");
  expect_failure(run_pinion(embed(folder.path, {"--query", "b", "--text", "a"})), 1, "Sigmoid or Identity");
  write_file(folder.path / "config_sentence_transformers.json", "{}");
  write_file(folder.path / "chat_template.jinja", "{% if %}");
  expect_failure(run_pinion(embed(folder.path, {"--query", "b", "--text", "a"})), 1, "chat_template.jinja");
}

// The ids that end every text stay, whatever the text begins with; a prompt or query leaves room for a text.
TEST(Embed, LongTextsAreTruncated) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += " word";
  const std::string model = kModels + "qwen3_last";
  const auto vector = [&](const std::string& text) {
    return lines_of(run_pinion(embed(model, {"--text", text})))[0]["embedding"];
  };
  EXPECT_EQ(vector("<|endoftext|>" + words), vector("<|endoftext|>" + words + words));
  EXPECT_NE(vector("<|endoftext|>" + words), vector(words));
  const std::vector<std::string> long_prompt = {"--text", "a", "--prompt", words};
  expect_failure(run_pinion(embed(kModels + "mistral_base", long_prompt)), 1, "prompt: too long");
  for (int i = 0; i < 4; ++i) words += words;
  expect_failure(run_pinion(embed(kModels + "qwen3_logit_score", {"--text", "a", "--query", words})), 1,
                 "query: too long");
}

TEST(Embed, ModelsWithoutHeadGiveNoLogits) {
  const Folder folder;
  expect_failure(run_pinion({"logits", "--model", kModels + "gemma3_mean", "--prompt", "a", "--out", folder / "l.npy"}),
                 1, "vectors or scores only");
  json config = read_json(PINION_TEST_DATA "/families/qwen3_5/config.json");
  config["is_causal"] = false;
  fs::copy(PINION_TEST_DATA "/families/qwen3_5/model.safetensors", folder.path);
  write_file(folder.path / "config.json", config.dump());
  expect_failure(run_pinion({"logits", "--model", folder.path, "--prompt-ids", "5,6", "--out", folder / "l.npy"}), 1,
                 "is_causal");
}

TEST(Embed, ModelWithoutModulesNeedsPooling) {
  expect_failure(run_pinion(embed(kDemo, {"--text", "a"})), 1, "--pooling last or mean");
  EXPECT_EQ(lines_of(run_pinion(embed(kDemo, {"--text", "a", "--pooling", "mean"})))[0]["embedding"].size(), 192u);
  expect_failure(run_pinion(embed(kDemo, {"--text", "a", "--pooling", "sum"})), 1, "weightedmean");
  expect_failure(run_pinion(embed(kModels + "qwen3_last", {"--text", "a", "--query", "b"})), 2, "makes vectors");
  expect_failure(run_pinion(embed(kModels + "qwen2_score", {"--text", "a"})), 2, "give --query");
  expect_failure(run_pinion(embed(kModels + "qwen3_last", {"--text", "a", "--prompt-name", "b"})), 1,
                 "document, query");
  expect_failure(run_pinion(embed(kModels + "qwen3_last", {}), "\n"), 1, "no texts");
}

TEST(Embed, DamagedFoldersAreRefused) {
  const std::string kType = "sentence_transformers.models.";
  const auto modules = [&](const std::string& kind, const std::string& path = "1_Part") {
    return json({{{"path", ""}, {"type", kType + "Transformer"}}, {{"path", path}, {"type", kType + kind}}}).dump();
  };
  const auto in_order = [&](const std::vector<std::string>& kinds) {
    json list = json::array();
    for (const std::string& kind : kinds) list.push_back({{"path", "1_Part"}, {"type", kType + kind}});
    return list.dump();
  };
  const json dense = {{"in_features", 32}, {"out_features", 4}, {"activation_function", "torch.nn.Identity"}};
  const json wide = {{"in_features", 33}, {"out_features", 4}};
  const json relu = {{"in_features", 32}, {"out_features", 4}, {"activation_function", "torch.nn.ReLU"}};
  const json input = {{"in_features", 32}, {"out_features", 4}, {"module_input_name", "token_embeddings"}};
  const json size = read_json(kModels + "qwen3_last/config.json")["hidden_size"];
  for (const auto& [file, text, cause] :
       {std::tuple<std::string, std::string, std::string>{"modules.json", "[", "modules.json"},
        {"modules.json", modules("CNN"), "CNN"},
        {"1_Part/config.json", R"({"pooling_mode": "mean_sqrt_len_tokens"})", "mean_sqrt_len_tokens"},
        {"1_Part/config.json", R"({"pooling_mode": ["mean", "cls"]})", "mean, cls"},
        {"modules.json", modules("Pooling", ""), "path"},
        {"modules.json", modules("Pooling", "../x"), "path"},
        {"modules.json", modules("Pooling", "./x/../../y"), "path"},
        {"modules.json", modules("Pooling", fs::absolute(kModels + "qwen3_last/1_Pooling")), "path"},
        {"modules.json", modules("Pooling", "9_Part/"), "9_Part/config.json"},
        {"modules.json", R"([{"type": "custom_st.Transformer", "path": ""}])", "custom_st.Transformer"},
        {"modules.json", in_order({"Pooling", "Transformer"}), "order"},
        {"modules.json", in_order({"Transformer", "Pooling", "Pooling"}), "order"},
        {"modules.json", in_order({"Transformer", "Pooling", "Normalize", "Dense"}), "order"},
        {"modules.json", in_order({"Transformer", "Pooling", "LogitScore"}), "order"},
        {"config_sentence_transformers.json", R"({"truncate_dim": 8})", "truncate_dim"},
        {"sentence_bert_config.json", R"({"do_lower_case": true})", "do_lower_case"},
        {"config_sentence_transformers.json", R"({"default_prompt_name": "none"})", "default_prompt_name"},
        {"sentence_bert_config.json", R"({"max_seq_length": 0})", "max_seq_length"}}) {
    const Folder folder;
    fs::copy(kModels + "qwen3_last", folder.path, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    write_file(folder.path / "modules.json", modules("Pooling"));
    fs::create_directories(folder.path / "1_Part");
    write_file(folder.path / "1_Part/config.json", "{}");
    write_file(folder.path / file, text);
    expect_failure(run_pinion(embed(folder.path, {"--text", "a"})), 1, cause);
  }
  for (const auto& [config, cause] :
       {std::pair(dense, "model.safetensors"), {wide, "in_features"}, {relu, "ReLU"}, {input, "token_embeddings"}}) {
    const Folder folder;
    fs::copy(kModels + "qwen3_last", folder.path, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    write_file(folder.path / "modules.json", modules("Dense"));
    fs::create_directories(folder.path / "1_Part");
    json fitting = config;
    if (fitting["in_features"] == 32) fitting["in_features"] = size;
    write_file(folder.path / "1_Part/config.json", fitting.dump());
    expect_failure(run_pinion(embed(folder.path, {"--text", "a"})), 1, cause);
  }
}

}  // namespace
}  // namespace pinion
