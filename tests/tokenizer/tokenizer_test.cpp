// Ids and decoded text against the reference libraries; fixtures from tools/reference/make_tokenizers.py.
#include "tokenizer/tokens/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "loader/files/json.h"
#include "tests/temp_folder.h"
#include "tests/tokenizer/encoded.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

const std::filesystem::path kData = std::filesystem::path(PINION_TEST_DATA) / "tokenizers";

using Ids = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> load(const std::filesystem::path& folder) {
  std::shared_ptr<const Tokenizer> tokenizer;
  const Error e = load_tokenizer(folder.string(), &tokenizer);
  EXPECT_FALSE(e) << e.message();
  return tokenizer;
}

Json read(const std::filesystem::path& path) {
  Json json;
  const Error e = read_json_file(path, &json);
  EXPECT_FALSE(e) << e.message();
  return json;
}

std::string decode_incrementally(const std::shared_ptr<const Tokenizer>& tokenizer, const Ids& ids, bool skip_special) {
  IncrementalDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder.put(id);
    EXPECT_EQ(to_utf8(piece), piece) << "half a character";
    text += piece;
  }
  return text + decoder.finish();
}

class Fixture : public testing::TestWithParam<const char*> {
 protected:
  Json texts = read(kData / "texts.json");
  Json expected = read(kData / GetParam() / "expected.json");
  std::shared_ptr<const Tokenizer> tokenizer = load(kData / GetParam());
};

TEST_P(Fixture, TypedSpecialTokensAreText) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    nlohmann::ordered_json messages = {{{"role", "user"}, {"content", text}}}, tools;
    EncodeOptions options{.add_special = false};
    const std::vector<AddedToken> tokens = special_tokens(*tokenizer);
    for (const AddedToken& token : tokens) options.guarded.push_back(token.id);
    const Error e = escape_special_tokens(tokens, text, &messages, &tools, &options.escapes);
    EXPECT_FALSE(e) << e.message();
    const Json& plain_ids = expected["plain_ids"][i].is_null() ? expected["ids"][i] : expected["plain_ids"][i];
    EXPECT_EQ(encoded(*tokenizer, messages[0]["content"].get<std::string>(), options), plain_ids.get<Ids>())
        << texts[i];
  }
}

TEST_P(Fixture, EncodesLikeTheReference) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto text = texts[i].get<std::string>();
    auto ids = expected["ids"][i].get<Ids>();
    const auto plain_ids = expected["plain_ids"][i].is_null() ? ids : expected["plain_ids"][i].get<Ids>();
    EXPECT_EQ(encoded(*tokenizer, text, {.add_special = false}), ids) << texts[i];
    EXPECT_EQ(encoded(*tokenizer, text, {.add_special = false, .parse_special = false}), plain_ids) << texts[i];
    const auto before = expected["before"].get<Ids>(), after = expected["after"].get<Ids>();
    ids.insert(ids.begin(), before.begin(), before.end());
    ids.insert(ids.end(), after.begin(), after.end());
    EXPECT_EQ(encoded(*tokenizer, text), ids) << texts[i];
  }
}

TEST_P(Fixture, DecodesLikeTheReference) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const Json& text = expected["decoded"][i].is_null() ? texts[i] : expected["decoded"][i];
    const auto ids = expected["ids"][i].get<Ids>();
    EXPECT_EQ(decode(*tokenizer, ids), text.get<std::string>()) << texts[i];
  }
  for (const Json& item : expected["random"]) {
    const auto ids = item[0].get<Ids>();
    EXPECT_EQ(decode(*tokenizer, ids), item[1].get<std::string>()) << item[0];
    if (item.size() > 2) {
      EXPECT_EQ(decode(*tokenizer, ids, false), item[2].get<std::string>()) << item[0];
    }
  }
}

TEST_P(Fixture, IncrementalDecodingEqualsDecode) {
  for (const Json& item : expected["ids"]) {
    const auto ids = item.get<Ids>();
    EXPECT_EQ(decode_incrementally(tokenizer, ids, true), decode(*tokenizer, ids)) << item;
  }
  for (const Json& item : expected["random"]) {
    const auto ids = item[0].get<Ids>();
    EXPECT_EQ(decode_incrementally(tokenizer, ids, true), decode(*tokenizer, ids)) << item[0];
    EXPECT_EQ(decode_incrementally(tokenizer, ids, false), decode(*tokenizer, ids, false)) << item[0];
  }
}

// The joined text of prompt and answer equals that of all tokens, wherever the prompt ends.
TEST_P(Fixture, DecodesAfterAPrompt) {
  for (const Json& item : expected["ids"]) {
    const auto ids = item.get<Ids>();
    const std::string whole = decode(*tokenizer, ids);
    for (size_t cut = 0; cut <= ids.size(); cut += 1 + ids.size() / 32) {
      const std::span prompt(ids.data(), cut);
      const std::string before = decode(*tokenizer, prompt);
      if (before.ends_with("\uFFFD") || !whole.starts_with(before)) continue;  // the cut may split a character
      if (before.empty() && cut > 0) continue;                                 // maybe dropped blanks
      IncrementalDecoder decoder(tokenizer, true, !has_text(*tokenizer, prompt));
      std::string text = before;
      for (size_t i = cut; i < ids.size(); ++i) text += decoder.put(ids[i]);
      EXPECT_EQ(text + decoder.finish(), whole) << item << " cut at " << cut;
    }
  }
}

TEST_P(Fixture, InvalidUtf8) {
  const std::string bad = "a\xFF\xE4\xBD z\xC3";
  EXPECT_EQ(encoded(*tokenizer, bad), encoded(*tokenizer, "a\uFFFD\uFFFD z\uFFFD"));
}

TEST_P(Fixture, IgnoresUnknownIds) {
  const Ids inside = encoded(*tokenizer, "the river");
  Ids ids{-1, 1 << 30};
  for (const int32_t id : inside) ids.insert(ids.end(), {id, vocab_size(*tokenizer)});
  EXPECT_EQ(decode(*tokenizer, ids), decode(*tokenizer, inside));
  EXPECT_EQ(decode_incrementally(tokenizer, ids, true), decode(*tokenizer, inside));
}

TEST_P(Fixture, EncodesLongTextsQuickly) {
  constexpr size_t kBytes = 250000;
  std::string text, word;
  while (text.size() < kBytes) {
    for (const Json& item : texts) text += item.get<std::string>().substr(0, 200);
  }
  while (word.size() < kBytes) word += "banana the dog"[word.size() * word.size() % 6];
  for (const std::string& input : {text, word}) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_GT(encoded(*tokenizer, input).size(), 1000);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    // 0.1 s on an idle core; a quadratic loop would take minutes.
    EXPECT_LT(seconds.count(), 60);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Fixture,
                         testing::Values("llama3", "qwen2", "qwen35", "tekken", "o200k", "gpt2", "digits", "deepseek",
                                         "llama2", "phi3", "mistral", "gemma", "metaspace", "sentencepiece_bpe",
                                         "sentencepiece_unigram", "tekken_ranks", "llama3_ranks"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST(BadFolders, AreRejected) {
  const TempFolder folder;
  const auto refused = [&] {
    std::shared_ptr<const Tokenizer> tokenizer;
    return load_tokenizer(folder.string(), &tokenizer).message();
  };
  EXPECT_NE(refused().find("no tokenizer"), std::string::npos);
  std::filesystem::create_directories(folder / "tokenizer.model");
  EXPECT_NE(refused().find("is a folder, not a file"), std::string::npos);
  std::filesystem::remove(folder / "tokenizer.model");
  std::ifstream whole(kData / "sentencepiece_bpe" / "tokenizer.model", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(whole), {});
  for (const size_t length : {size_t{0}, size_t{1}, size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    std::ofstream(folder / "tokenizer.model", std::ios::binary) << bytes.substr(0, length);
    EXPECT_NE(refused().find("not a sentencepiece model"), std::string::npos) << length;
  }
  std::ofstream(folder / "tokenizer.model", std::ios::binary) << bytes;
  EXPECT_EQ(refused(), "");
  for (const char* config :
       {"", "[]", "{\"bos_token\": 1}", "{\"add_bos_token\": 2}", "{\"added_tokens_decoder\": {\"x\": {}}}"}) {
    std::ofstream(folder / "tokenizer_config.json") << config;
    EXPECT_NE(refused().find("tokenizer_config.json"), std::string::npos) << config;
  }
}

TEST(Stories260k, TokensWithoutARowAreRejected) {
  const TempFolder folder;
  const Json whole = read(std::filesystem::path(PINION_TEST_DATA) / "stories260k" / "tokenizer.json");
  const auto message = [&](const auto& change) {
    Json json = whole;
    change(json);
    folder.write("tokenizer.json", json.dump());
    std::shared_ptr<const Tokenizer> tokenizer;
    if (Error e = load_tokenizer(folder.string(), &tokenizer)) return e.message();
    return check_rows(*tokenizer, 512).message();
  };
  const std::string file = folder.string() + "/tokenizer.json";
  EXPECT_EQ(message([](Json&) {}), "");
  EXPECT_EQ(message([](Json& json) { json["model"]["vocab"]["zzz"] = 600; }),
            file +
                ": \"zzz\": token has no embedding row: want an id below 512, config.json's vocab_size, "
                "have 600");
  const auto add_token = [](Json& json) {
    Json token = json["added_tokens"][0];
    token["id"] = 512;
    token["content"] = "<picture>";
    json["added_tokens"].push_back(token);
  };
  EXPECT_EQ(message(add_token), "");  // as in Gemma 3 1B
  const auto surround = [&](Json& json) {
    add_token(json);
    json["post_processor"]["single"][0]["SpecialToken"]["id"] = "<picture>";
    json["post_processor"]["special_tokens"]["<picture>"] = {
        {"id", "<picture>"}, {"ids", {512}}, {"tokens", {"<picture>"}}};
  };
  EXPECT_NE(message(surround).find("\"<picture>\": token has no embedding row"), std::string::npos)
      << message(surround);
  const auto unknown = [](Json& json) {
    for (auto& [name, token] : json["post_processor"]["special_tokens"].items()) token["ids"] = {5000};
  };
  EXPECT_EQ(message(unknown),
            file + ": \"\": token has no embedding row: want an id below 512, config.json's vocab_size, have 5000");
  const auto empty = [](Json& json) {
    json["model"]["vocab"] = Json::object();
    json["model"]["merges"] = Json::array();
  };
  EXPECT_EQ(message(empty), file + ": model: vocab: no tokens");
}

// Some vocabularies hold the empty text. It is not the token that absent settings name.
TEST(Tokenizers, EmptyTokenIsNoSpecialToken) {
  const TempFolder folder;
  Json json = read(kData / "gpt2" / "tokenizer.json");
  json["model"]["vocab"][""] = 700;
  folder.write("tokenizer.json", json.dump());
  const auto tokenizer = load(folder);
  EXPECT_EQ(bos_id(*tokenizer), std::nullopt);
  EXPECT_EQ(eos_id(*tokenizer), std::nullopt);
  EXPECT_TRUE(end_ids(*tokenizer).empty());
  EXPECT_EQ(token_id(*tokenizer, ""), -1);
}

// Added tokens of a sentencepiece folder: flags from tokenizer_config.json, ids from added_tokens.json.
TEST(Sentencepiece, ReadsAddedTokens) {
  const TempFolder folder;
  std::filesystem::copy_file(kData / "sentencepiece_bpe" / "tokenizer.model", folder / "tokenizer.model");
  std::ofstream(folder / "added_tokens.json") << R"({"<end>": 9001})";
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": {"content": "<end>"}, "add_eos_token": true,
    "added_tokens_decoder": {"9000": {"content": "<cut>", "rstrip": true, "special": false}}})";
  const auto tokenizer = load(folder);
  EXPECT_EQ(eos_id(*tokenizer), 9001);
  EXPECT_EQ(vocab_size(*tokenizer), 9002);
  const Ids ids = encoded(*tokenizer, "the<cut>  cat<end>");
  Ids expected = encoded(*tokenizer, "the", {.add_special = false});
  const Ids cat = encoded(*tokenizer, "cat", {.add_special = false});
  expected.insert(expected.begin(), 1);
  expected.push_back(9000);
  expected.insert(expected.end(), cat.begin(), cat.end());
  expected.insert(expected.end(), {9001, 9001});
  EXPECT_EQ(ids, expected);
  EXPECT_EQ(decode(*tokenizer, ids), "the<cut> cat");
  EXPECT_EQ(decode_incrementally(tokenizer, ids, false), "<s> the<cut> cat<end><end>");
}

// The demo model has both files; tokenizer.json takes precedence.
TEST(Stories260k, BothFormats) {
  const std::filesystem::path source = std::filesystem::path(PINION_TEST_DATA) / "stories260k";
  const TempFolder folder;
  for (const char* name : {"tokenizer.model", "tokenizer_config.json"}) {
    std::filesystem::copy_file(source / name, folder / name);
  }
  const Json expected = read(source / "expected.json");
  const auto from_json = load(source), from_model = load(folder);
  for (const auto& tokenizer : {from_json, from_model}) {
    EXPECT_EQ(bos_id(*tokenizer), 1);
    EXPECT_EQ(eos_id(*tokenizer), 2);
    EXPECT_EQ(vocab_size(*tokenizer), 512);
    for (const Json& item : expected["generations"]) {
      EXPECT_EQ(encoded(*tokenizer, item["prompt"].get<std::string>()), item["prompt_ids"].get<Ids>());
      const auto ids = item["greedy_ids"].get<Ids>();
      EXPECT_EQ(decode(*tokenizer, ids), item["text"].get<std::string>());
      EXPECT_EQ(decode_incrementally(tokenizer, ids, true), decode(*tokenizer, ids));
    }
  }
}

}  // namespace
}  // namespace pinion
