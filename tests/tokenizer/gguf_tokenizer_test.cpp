// Tokenizers of GGUF files against those of the folders that the files are made from, and against the reference library
// (tools/reference/make_gguf_tokenizers.py).
#include "loader/gguf/gguf_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "configs/families.h"
#include "tests/loader/gguf_files.h"
#include "tests/temp_folder.h"
#include "tests/tokenizer/encoded.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {
namespace {

using Ids = std::vector<int32_t>;

const std::filesystem::path kData = PINION_TEST_DATA;
const std::string kKey = "tokenizer.ggml.";

Json read(const std::filesystem::path& path) {
  Json json;
  const Error e = read_json_file(path, &json);
  EXPECT_FALSE(e) << e.message();
  return json;
}

std::shared_ptr<const Tokenizer> load(const std::filesystem::path& folder) {
  std::shared_ptr<const Tokenizer> tokenizer;
  const Error e = load_tokenizer(folder.string(), &tokenizer);
  EXPECT_FALSE(e) << e.message();
  return tokenizer;
}

void write_texts(const Json& metadata, const TempFolder& folder) {
  std::map<std::string, std::string> texts;
  const Error e = make_tokenizer_texts(metadata, "model.gguf", &texts);
  EXPECT_FALSE(e) << e.message();
  for (const auto& [name, text] : texts) folder.write(name, text);
}

std::shared_ptr<const Tokenizer> load_metadata(const Json& metadata) {
  const TempFolder folder;
  write_texts(metadata, folder);
  return load(folder);
}

std::string failure(const Json& metadata) {
  std::map<std::string, std::string> texts;
  return make_tokenizer_texts(metadata, "model.gguf", &texts).message();
}

// The keys that llama.cpp's converter writes for a tokenizer.json.
Json metadata_of(const Json& file, const std::string& model, const std::string& pre) {
  const Json& vocabulary = file["model"]["vocab"];
  std::map<int, std::string> tokens;
  std::map<int, int> types;
  for (const auto& [text, id] : vocabulary.items()) tokens[id] = text;
  for (const Json& added : file["added_tokens"]) {
    tokens[added["id"]] = added["content"];
    types[added["id"]] = added["special"].get<bool>() ? 3 : 4;
  }
  Json metadata = {{kKey + "model", model}, {kKey + "pre", pre}, {kKey + "merges", Json::array()}};
  for (const auto& [id, text] : tokens) {
    const bool is_byte = model == "gemma4" && text.size() == 6 && text.starts_with("<0x");
    metadata[kKey + "tokens"].push_back(text);
    metadata[kKey + "token_type"].push_back(types.contains(id) ? types[id] : is_byte ? 6 : 1);
  }
  for (const Json& merge : file["model"]["merges"]) {
    const bool is_text = merge.is_string();
    metadata[kKey + "merges"].push_back(is_text ? merge.get<std::string>()
                                                : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return metadata;
}

Json folder_file(const std::string& name) {
  Json file = read(kData / "tokenizers" / name / "tokenizer.json");
  // A GGUF file does not hold these.
  for (Json& added : file["added_tokens"]) added["lstrip"] = added["rstrip"] = false;
  return file;
}

void expect_same(const Tokenizer& tokenizer, const Tokenizer& wanted) {
  EXPECT_EQ(vocab_size(tokenizer), vocab_size(wanted));
  for (const Json& item : read(kData / "tokenizers/texts.json")) {
    const auto text = item.get<std::string>();
    const Ids ids = encoded(wanted, text);
    EXPECT_EQ(encoded(tokenizer, text), ids) << text;
    EXPECT_EQ(decode(tokenizer, ids), decode(wanted, ids)) << text;
    EXPECT_EQ(decode(tokenizer, ids, false), decode(wanted, ids, false)) << text;
    const EncodeOptions plain{.add_special = false, .parse_special = false};
    EXPECT_EQ(encoded(tokenizer, text, plain), encoded(wanted, text, plain)) << text;
  }
}

struct GgufKind {
  const char* folder;
  const char* model;
  const char* pre;
  int64_t bos_id;  // -1: none
};

class GgufKinds : public testing::TestWithParam<GgufKind> {};

TEST_P(GgufKinds, EqualsTheFolders) {
  const GgufKind& kind = GetParam();
  const Json file = folder_file(kind.folder);
  const TempFolder folder;
  folder.write("tokenizer.json", file.dump());
  Json metadata = metadata_of(file, kind.model, kind.pre);
  if (kind.bos_id >= 0) metadata[kKey + "bos_token_id"] = kind.bos_id;
  if (std::string(kind.pre) == "deepseek-v3") metadata[kKey + "add_bos_token"] = true;  // others: the default
  if (std::string(kind.model) == "gemma4") metadata[kKey + "unknown_token_id"] = 3;
  expect_same(*load_metadata(metadata), *load(folder));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GgufKinds,
    testing::Values(GgufKind{"llama3", "gpt2", "llama-bpe", 625}, GgufKind{"qwen2", "gpt2", "qwen2", -1},
                    GgufKind{"qwen35", "gpt2", "qwen35", -1}, GgufKind{"tekken", "gpt2", "tekken", 621},
                    GgufKind{"o200k", "gpt2", "gpt-4o", -1}, GgufKind{"gpt2", "gpt2", "gpt-2", -1},
                    GgufKind{"deepseek", "gpt2", "deepseek-v3", 620}, GgufKind{"gemma", "gemma4", "default", 2}),
    [](const auto& kind) { return std::string(kind.param.folder); });

TEST(GgufTokenizer, EveryPreTokenizerEqualsTheReference) {
  constexpr size_t kTextsInHash = 10;
  const Json texts = read(kData / "tokenizers/texts.json");
  const Json expected = read(kData / "gguf/tokenizers.json")["pre_tokenizers"];
  Json rows;
  ASSERT_FALSE(parse_json(gguf_pretokenizers_text(), "rows", &rows));
  ASSERT_EQ(rows.size(), expected.size());
  for (const Json& row : rows) {
    const bool has_bytes = !row["tokenizer"].contains("decoder");
    Json file = folder_file(has_bytes ? "gpt2" : "gemma");
    file["added_tokens"].clear();
    const std::string name = row["names"][0];
    Json metadata = metadata_of(file, "gpt2", name);
    if (!has_bytes) metadata[kKey + "unknown_token_id"] = 3;
    const auto tokenizer = load_metadata(metadata);
    ASSERT_TRUE(tokenizer) << name;
    const EncodeOptions plain{.add_special = false, .parse_special = false};
    uint32_t hash = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i % kTextsInHash == 0) hash = 2166136261;
      const Ids ids = encoded(*tokenizer, texts[i].get<std::string>(), plain);
      hash = (hash ^ static_cast<uint32_t>(ids.size())) * 16777619;
      for (const int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 16777619;
      if (i % kTextsInHash != kTextsInHash - 1 && i + 1 != texts.size()) continue;
      EXPECT_EQ(hash, expected[name][i / kTextsInHash].get<uint32_t>()) << name << ": texts up to " << i;
    }
  }
}

TEST(GgufTokenizer, Gemma4OfOtherConverters) {
  Json metadata = metadata_of(folder_file("gemma"), "gemma4", "gemma4");
  metadata[kKey + "bos_token_id"] = 2;
  metadata[kKey + "unknown_token_id"] = 3;
  metadata["general.architecture"] = "gemma4";
  const auto wanted = load_metadata(metadata);
  metadata[kKey + "model"] = "llama";  // in Ollama's files
  metadata[kKey + "add_bos_token"] = false;
  expect_same(*load_metadata(metadata), *wanted);
}

TEST(GgufTokenizer, OldFilesArePreTokenizedAsTheirArchitecture) {
  Json metadata = metadata_of(folder_file("qwen2"), "gpt2", "qwen2");
  const auto wanted = load_metadata(metadata);
  metadata.erase(kKey + "pre");
  metadata["general.architecture"] = "qwen2";
  expect_same(*load_metadata(metadata), *wanted);
  metadata["general.architecture"] = "unheard";
  const Ids as_default = encoded(*load_metadata(metadata), "12345");
  metadata[kKey + "pre"] = "default";
  EXPECT_EQ(encoded(*load_metadata(metadata), "12345"), as_default);
}

Json sentencepiece_metadata() { return read(kData / "gguf/tokenizers.json")["sentencepiece"]; }

// Appends a token and returns its id.
int32_t append_token(Json* metadata, const std::string& text, int type) {
  (*metadata)[kKey + "tokens"].push_back(text);
  (*metadata)[kKey + "token_type"].push_back(type);
  (*metadata)[kKey + "scores"].push_back(-1000);
  return static_cast<int32_t>((*metadata)[kKey + "tokens"].size()) - 1;
}

TEST(GgufTokenizer, SentencepieceEqualsTheModelFile) {
  const auto wanted = load(kData / "tokenizers/sentencepiece_bpe");
  expect_same(*load_metadata(sentencepiece_metadata()), *wanted);
  // Llama 2's ids of special tokens are the defaults.
  Json metadata = sentencepiece_metadata();
  for (const char* name : {"bos", "eos", "unknown"}) metadata.erase(kKey + name + "_token_id");
  metadata[kKey + "add_bos_token"] = true;
  expect_same(*load_metadata(metadata), *wanted);
}

TEST(GgufTokenizer, SentencepieceSettings) {
  Json metadata = sentencepiece_metadata();
  metadata[kKey + "add_bos_token"] = false;
  metadata[kKey + "add_eos_token"] = true;
  metadata[kKey + "add_space_prefix"] = false;
  const int32_t spaces = append_token(&metadata, "  ", 4);  // Gemma's runs of spaces
  append_token(&metadata, "\u2581\u2581\u2581", 1);
  const int32_t taken = append_token(&metadata, "   ", 4);  // as a piece, it would be the token before
  const int32_t control = append_token(&metadata, "<turn>", 3);
  const int32_t empty = append_token(&metadata, "", 5);
  auto tokenizer = load_metadata(metadata);
  const auto river = token_id(*tokenizer, "r");
  EXPECT_EQ(encoded(*tokenizer, "r  r<turn>"), (Ids{river, spaces, river, control, 2}));
  EXPECT_EQ(decode(*tokenizer, Ids{river, spaces, river, control}), "r  r");
  EXPECT_EQ(decode(*tokenizer, Ids{river, spaces, river, control}, false), "r  r<turn>");
  EXPECT_EQ(encoded(*tokenizer, "r \u2581r"), (Ids{river, spaces, river, 2}));
  EXPECT_EQ(encoded(*tokenizer, "r   r"), (Ids{river, taken, river, 2}));
  EXPECT_EQ(decode(*tokenizer, Ids{river, taken, river}), "r   r");
  EXPECT_EQ(vocab_size(*tokenizer), empty + 1);
  // Only Phi-3's tokens take the white space behind them.
  const Ids with_space = encoded(*tokenizer, "<turn> r");
  metadata["general.architecture"] = "phi3";
  tokenizer = load_metadata(metadata);
  EXPECT_EQ(encoded(*tokenizer, "<turn> r"), (Ids{control, river, 2}));
  EXPECT_NE(with_space, (Ids{control, river, 2}));
  // Gemma 3's files mark the unknown token as a control token.
  metadata[kKey + "token_type"][0] = 3;
  EXPECT_EQ(encoded(*load_metadata(metadata), "<turn> r"), (Ids{control, river, 2}));
}

TEST(GgufTokenizer, SpecialTokensOfTheFile) {
  Json metadata = metadata_of(folder_file("qwen2"), "gpt2", "qwen2");
  metadata[kKey + "eos_token_id"] = 622;
  metadata[kKey + "bos_token_id"] = 620;
  metadata[kKey + "eot_token_id"] = 621;
  metadata[kKey + "token_type"].push_back(5);
  metadata[kKey + "tokens"].push_back("[PAD625]");  // rows of the embedding without a token
  auto tokenizer = load_metadata(metadata);
  EXPECT_EQ(eos_id(*tokenizer), 622);
  EXPECT_EQ(bos_id(*tokenizer), 620);
  EXPECT_EQ(vocab_size(*tokenizer), 625);
  EXPECT_EQ(encoded(*tokenizer, ""), Ids{});  // no add_bos_token
  EXPECT_TRUE(is_special(*tokenizer, 621));
  EXPECT_FALSE(is_special(*tokenizer, 623));  // <think>
  metadata[kKey + "add_bos_token"] = metadata[kKey + "add_eos_token"] = true;
  EXPECT_EQ(encoded(*load_metadata(metadata), ""), (Ids{620, 622}));
  // Without types, the tokens with a role are special.
  metadata.erase(kKey + "token_type");
  tokenizer = load_metadata(metadata);
  EXPECT_TRUE(is_special(*tokenizer, 621));
  EXPECT_TRUE(is_special(*tokenizer, 622));
}

TEST(GgufTokenizer, ChatTemplates) {
  Json metadata = sentencepiece_metadata();
  const TempFolder folder;
  write_texts(metadata, folder);
  std::shared_ptr<const ChatTemplate> chat_template;
  ASSERT_FALSE(load_chat_template(folder.string(), &chat_template));
  EXPECT_FALSE(chat_template);
  metadata["tokenizer.chat_template"] = "{{ bos_token }}default";
  metadata["tokenizer.chat_templates"] = {"rag", "absent"};
  metadata["tokenizer.chat_template.rag"] = "{{ eos_token }}rag";
  write_texts(metadata, folder);
  ASSERT_FALSE(load_chat_template(folder.string(), &chat_template));
  ASSERT_TRUE(chat_template);
  std::string text;
  Conversation conversation{.messages = nlohmann::ordered_json::array()};
  ASSERT_FALSE(render(*chat_template, conversation, &text));
  EXPECT_EQ(text, "<s>default");
  conversation.template_name = "rag";
  ASSERT_FALSE(render(*chat_template, conversation, &text));
  EXPECT_EQ(text, "</s>rag");
  conversation.template_name = "absent";
  EXPECT_TRUE(render(*chat_template, conversation, &text));
}

std::string gguf_file(const Json& metadata) {
  GgufWriter writer;
  for (const auto& [key, value] : metadata.items()) {
    if (value.is_string()) writer.add(key, value.get<std::string>());
    if (value.is_boolean()) writer.add(key, value.get<bool>());
    if (value.is_number()) writer.add(key, value.get<uint32_t>());
    if (!value.is_array()) continue;
    if (value[0].is_string()) writer.add(key, value.get<std::vector<std::string>>());
    if (value[0].is_number_integer()) writer.add(key, value.get<std::vector<int32_t>>());
    if (value[0].is_number_float()) writer.add(key, value.get<std::vector<float>>());
  }
  return writer.file();
}

// The texts of the last file are kept. A vocabulary is dropped after it was read.
TEST(GgufTokenizer, LoadsFromAFile) {
  const TempFolder folder;
  const std::filesystem::path bpe = folder / "bpe.gguf", pieces = folder / "pieces.gguf";
  const auto folder_bpe = load(kData / "tokenizers/qwen2"),
             folder_pieces = load(kData / "tokenizers/sentencepiece_bpe");
  const Json metadata = metadata_of(folder_file("qwen2"), "gpt2", "qwen2");
  folder.write("bpe.gguf", gguf_file(metadata));
  folder.write("pieces.gguf", gguf_file(sentencepiece_metadata()));
  for (int i = 0; i < 2; ++i) {
    expect_same(*load(bpe), *folder_bpe);
    expect_same(*load(bpe), *folder_bpe);
    expect_same(*load(pieces), *folder_pieces);
  }
  EXPECT_EQ(tokenizer_file(bpe.string()), bpe / "tokenizer.json");
  EXPECT_EQ(tokenizer_file(pieces.string()), pieces / "tokenizer.model");
  EXPECT_FALSE(has_model_text(bpe, "added_tokens.json"));
  std::string text;
  EXPECT_TRUE(read_model_text(bpe, "tokenizer.model", 1000, &text));
  folder.write("pieces.gguf", gguf_file(metadata));
  expect_same(*load(pieces), *folder_bpe);
  folder.write("pieces.gguf", gguf_file({{kKey + "model", "bert"}}));
  std::shared_ptr<const Tokenizer> tokenizer;
  EXPECT_EQ(load_tokenizer(pieces.string(), &tokenizer).message(),
            pieces.string() +
                ": tokenizer.ggml.model: this kind of tokenizer is not supported: want gpt2, llama or "
                "gemma4, have \"bert\"");
}

TEST(GgufTokenizer, FilesWithoutTokenizer) {
  for (const Json& metadata : {Json::object(), Json{{kKey + "model", "none"}}, Json{{kKey + "model", "no_vocab"}}}) {
    std::map<std::string, std::string> texts{{"tokenizer.json", "old"}};
    EXPECT_FALSE(make_tokenizer_texts(metadata, "model.gguf", &texts));
    EXPECT_TRUE(texts.empty());
  }
}

TEST(GgufTokenizer, MalformedMetadata) {
  const struct {
    const char* key;  // without "tokenizer.ggml."
    Json value;       // null: no such key
    const char* failure;
  } cases[] = {
      {"model", "bert", "model: this kind of tokenizer is not supported: want gpt2, llama or gemma4, have \"bert\""},
      {"model", "t5", "model: this kind of tokenizer is not supported: want gpt2, llama or gemma4, have \"t5\""},
      {"model", "rwkv", "model: this kind of tokenizer is not supported: want gpt2, llama or gemma4, have \"rwkv\""},
      {"model", 5, "model: wrong type: want a string, have 5"},
      {"pre", "unheard", "pre: unknown pre-tokenizer; use the model's Hugging Face folder: \"unheard\""},
      {"pre", Json::array(), "pre: wrong type: want a string, have an array of 0"},
      {"tokens", nullptr, "tokens: no tokens"},
      {"tokens", Json::array(), "tokens: no tokens"},
      {"tokens", {"a", 1}, "tokens: wrong type: want strings, have 1"},
      {"tokens", {"a", "a"}, "token_type: wrong length: want 2, have 625"},
      {"token_type", {1, 1}, "token_type: wrong length: want 625, have 2"},
      {"token_type", "1", "token_type: wrong type: want an integer from 0 to 6, have \"1\""},
      {"token_type", {7}, "token_type: out of range: want an integer from 0 to 6, have 7"},
      {"token_type", {-1}, "token_type: out of range: want an integer from 0 to 6, have -1"},
      {"merges", nullptr, "merges: missing or wrong type: want a list"},
      {"merges", 1, "merges: missing or wrong type: want a list"},
      {"bos_token_id", 625, "bos_token_id: out of range: want an integer from 0 to 624, have 625"},
      {"eos_token_id", -1, "eos_token_id: out of range: want an integer from 0 to 624, have -1"},
      {"eot_token_id", 1e9, "eot_token_id: wrong type: want an integer from 0 to 624, have 1000000000.0"},
      {"eom_token_id", 4294967295, "eom_token_id: out of range: want an integer from 0 to 624, have 4294967295"},
      {"unknown_token_id", "0", "unknown_token_id: wrong type: want an integer from 0 to 624, have \"0\""},
      {"add_bos_token", 1, "add_bos_token: wrong type: want true or false, have 1"},
  };
  const Json whole = metadata_of(folder_file("qwen2"), "gpt2", "qwen2");
  EXPECT_EQ(failure(whole), "");
  for (const auto& [key, value, wanted] : cases) {
    Json metadata = whole;
    metadata[kKey + key] = value;
    EXPECT_EQ(failure(metadata), "model.gguf: tokenizer.ggml." + std::string(wanted)) << value;
  }
  Json repeated = whole;
  repeated[kKey + "tokens"][7] = repeated[kKey + "tokens"][9];
  EXPECT_EQ(failure(repeated), "model.gguf: tokenizer.ggml.tokens: repeated token: \"*\"");
}

TEST(GgufTokenizer, MalformedSentencepiece) {
  const struct {
    const char* key;
    Json value;
    const char* failure;
  } cases[] = {
      {"scores", nullptr, "scores: wrong length: want 560, have 0"},
      {"scores", {1, 2}, "scores: wrong length: want 560, have 2"},
      {"scores", {"a"}, "scores: wrong type: want a number, have \"a\""},
      {"token_type", Json(std::vector<int>(560, 6)), "token_type: byte tokens: want 256, have 560"},
      {"precompiled_charsmap", {256}, "precompiled_charsmap: out of range: want an integer from -128 to 255, have 256"},
      {"add_space_prefix", "yes", "add_space_prefix: wrong type: want true or false, have \"yes\""},
  };
  for (const auto& [key, value, wanted] : cases) {
    Json metadata = sentencepiece_metadata();
    metadata[kKey + key] = value;
    EXPECT_EQ(failure(metadata), "model.gguf: tokenizer.ggml." + std::string(wanted)) << value;
  }
}

}  // namespace
}  // namespace pinion
