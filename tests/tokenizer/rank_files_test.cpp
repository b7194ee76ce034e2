// Hand-worked cases of valid and invalid files by rank.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/temp_folder.h"
#include "tests/tokenizer/encoded.h"
#include "tokenizer/tokens/tokenizer_internal.h"

namespace pinion {
namespace {

std::string base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const std::string group = bytes.substr(at, 3);
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < group.size() ? static_cast<unsigned char>(group[i]) : 0);
    for (size_t i = 0; i < 4; ++i) text += i <= group.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

// All single bytes, then `longer`.
std::vector<std::string> ranked(const std::vector<std::string>& longer) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), longer.begin(), longer.end());
  return tokens;
}

std::string rank_list(const std::vector<std::string>& tokens) {
  std::string lines;
  for (size_t rank = 0; rank < tokens.size(); ++rank) lines += base64(tokens[rank]) + " " + std::to_string(rank) + "\n";
  return lines;
}

Json tekken(const std::vector<std::string>& tokens) {
  Json file = {{"config",
                {{"pattern", R"(\w+|\s+|[^\w\s]+)"},
                 {"num_vocab_tokens", tokens.size()},
                 {"default_vocab_size", tokens.size() + 4},
                 {"default_num_special_tokens", 4},
                 {"version", "v11"}}},
               {"vocab", Json::array()},
               {"special_tokens", Json::array()}};
  for (const std::string& token : tokens) {
    file["vocab"].push_back({{"rank", file["vocab"].size()}, {"token_bytes", base64(token)}, {"token_str", nullptr}});
  }
  for (const char* name : {"<unk>", "<s>", "</s>"}) {
    file["special_tokens"].push_back(
        {{"rank", file["special_tokens"].size()}, {"token_str", name}, {"is_control", true}});
  }
  return file;
}

std::string bars(const Tokenizer& tokenizer, const std::string& text) {
  std::string result;
  for (const int32_t id : encoded(tokenizer, text)) result += (result.empty() ? "" : "|") + token_text(tokenizer, id);
  return result;
}

// The tokens of `text`, separated by bars.
std::string list_tokens(const std::vector<std::string>& longer, const std::string& text) {
  Tokenizer tokenizer;
  const Error e = load_rank_list(rank_list(ranked(longer)), "file", {}, &tokenizer);
  EXPECT_FALSE(e) << e.message();
  return bars(tokenizer, text);
}

std::string list_error(const std::string& lines) {
  Tokenizer tokenizer;
  return load_rank_list(lines, "file", {}, &tokenizer).message();
}

std::string tekken_error(const Json& file) {
  Tokenizer tokenizer;
  return load_tekken(file.dump(), "file", {}, &tokenizer).message();
}

TEST(Ranks, LowestRankMergesFirst) {
  EXPECT_EQ(list_tokens({"ab", "bc", "abc"}, "xabc"), "x|abc");
  EXPECT_EQ(list_tokens({"bc", "ab"}, "xabc"), "x|a|bc");
  EXPECT_EQ(list_tokens({"bc", "ab", "abc"}, "xabc"), "x|abc");  // also a merge of a and bc
  EXPECT_EQ(list_tokens({"aa"}, "xaaa"), "x|aa|a");              // leftmost first
  EXPECT_EQ(list_tokens({"abcd", "bc"}, "xabcd"), "x|a|bc|d");   // no merge makes abcd
  EXPECT_EQ(list_tokens({"abcd", "bc"}, "abcd"), "abcd");        // a whole word
  EXPECT_EQ(list_tokens({"\xC3\xA9"}, "\xC3\xA9"), "Ã©");        // é, as byte-level BPE spells it
}

TEST(Ranks, AcceptsAnyOrderAndBlankLines) {
  Tokenizer tokenizer;
  std::string lines;
  const std::vector<std::string> tokens = ranked({"ab"});
  for (size_t rank = tokens.size(); rank-- > 0;) {
    lines += base64(tokens[rank]) + " " + std::to_string(rank) + "\r\n\r\n";
  }
  ASSERT_FALSE(load_rank_list(lines.substr(0, lines.size() - 4), "file", {}, &tokenizer));
  EXPECT_EQ(encoded(tokenizer, "xab<|eot_id|>", {.add_special = false}), (std::vector<int32_t>{'x', 256, 257 + 9}));
  EXPECT_EQ(vocab_size(tokenizer), 257 + 256);
  EXPECT_EQ(token_text(tokenizer, 257 + 255), "<|reserved_special_token_246|>");
}

TEST(Ranks, SettingsNameSpecialTokens) {
  const int32_t first = 256;
  TokenizerSettings settings;
  settings.eos_token = "<|done|>";
  settings.added = {{.content = "<|done|>", .id = first + 5, .special = true},
                    {.content = "<|image|>", .id = first + 256, .special = true},
                    {.content = "<|done|>", .special = true}};
  Tokenizer tokenizer;
  ASSERT_FALSE(load_rank_list(rank_list(ranked({})), "file", settings, &tokenizer));
  EXPECT_EQ(tokenizer.eos, first + 5);
  EXPECT_EQ(tokenizer.bos, first);
  EXPECT_EQ(token_id(tokenizer, "<|step_id|>"), -1);
  EXPECT_EQ(encoded(tokenizer, "<|done|><|image|>", {.add_special = false}),
            (std::vector<int32_t>{first + 5, first + 256}));
  EXPECT_EQ(vocab_size(tokenizer), first + 257);
  settings.bos_token = "<bos>";
  Tokenizer other;
  EXPECT_EQ(load_rank_list(rank_list(ranked({})), "file", settings, &other).message(),
            "file: no such token: \"<bos>\"");
}

TEST(Ranks, BadListsAreRejected) {
  const std::vector<std::string> tokens = ranked({"ab"});
  const std::string lines = rank_list(tokens), start = rank_list(ranked({}));
  EXPECT_EQ(list_error(lines), "");
  for (const char* line : {"YWI=", "YWI= ", "YWI= x", "YWI= 256 1", "YWI= -1", "YWI= 257", "YWI= 99999999999999999999",
                           "YWI=  256", "YWI=\t256", "version https://git-lfs.github.com/spec/v1"}) {
    const std::string message = list_error(start + line);
    EXPECT_NE(message.find("file: token 256: bad line: want BASE64 RANK"), std::string::npos) << message;
  }
  for (const char* line : {" 256", "Y 256", "YW= 256", "YWI 256", "Y*I= 256", "==== 256", "=YWI 256", "YWI=YWI= 256"}) {
    const std::string message = list_error(start + line);
    EXPECT_NE(message.find("file: token 256: bad token: want base64"), std::string::npos) << message;
  }
  EXPECT_NE(list_error(rank_list(ranked({std::string(513, 'a')}))).find("bad token"), std::string::npos);
  EXPECT_EQ(list_error(rank_list(ranked({std::string(512, 'a')}))), "");
  EXPECT_EQ(list_error(start + "YWI= 255"), "file: token 256: rank given twice: 255");
  EXPECT_EQ(list_error(start + "YQ== 256"), "file: token given twice: \"a\"");
  EXPECT_EQ(list_error("YWI= 0\n"), "file: no token for byte 0");
  std::string many;
  for (int i = 0; i <= 128000; ++i) many += "YQ== 0\n";
  EXPECT_EQ(list_error(many), "file: not Llama 3's list of ranks: want at most 128000 tokens");
  for (size_t length = 0; length < lines.size(); length += 7) EXPECT_NE(list_error(lines.substr(0, length)), "");
}

TEST(Ranks, TooManyMergesAreRejected) {
  std::string word;  // all its substrings of three or more letters differ
  for (char a = 'a'; a < 'z'; ++a) {
    for (char b = static_cast<char>(a + 1); b <= 'z'; ++b) word += {a, b};
  }
  std::vector<std::string> longer;
  for (size_t begin = 0; begin < word.size(); ++begin) {
    for (size_t bytes = 3; bytes <= 100 && begin + bytes <= word.size(); ++bytes) {
      longer.push_back(word.substr(begin, bytes));
    }
  }
  EXPECT_EQ(list_error(rank_list(ranked(longer))), "file: too many merges: want at most 2000000");
}

TEST(Tekken, SpecialTokensComeFirst) {
  Json file = tekken(ranked({"ab", "unused"}));
  file["config"]["default_vocab_size"] = 4 + 257;
  Tokenizer tokenizer;
  const Error e = load_tekken(file.dump(), "file", {}, &tokenizer);
  ASSERT_FALSE(e) << e.message();
  EXPECT_EQ(vocab_size(tokenizer), 4 + 257);
  EXPECT_EQ(tokenizer.bos, 1);
  EXPECT_EQ(tokenizer.eos, 2);
  EXPECT_EQ(encoded(tokenizer, "ab</s>unused<SPECIAL_3>", {.add_special = false}),
            (std::vector<int32_t>{4 + 256, 2, 4 + 'u', 4 + 'n', 4 + 'u', 4 + 's', 4 + 'e', 4 + 'd', 3}));
}

TEST(Tekken, OldVersionsHaveDefaultSpecialTokens) {
  Json file = tekken(ranked({}));
  file["config"]["default_num_special_tokens"] = 20;
  file["config"]["default_vocab_size"] = 20 + 256;
  file["config"]["version"] = "v3";
  file["special_tokens"] = nullptr;
  Tokenizer tokenizer;
  ASSERT_FALSE(load_tekken(file.dump(), "file", {}, &tokenizer));
  EXPECT_EQ(token_id(tokenizer, "[INST]"), 3);
  EXPECT_EQ(token_id(tokenizer, "[TOOL_CONTENT]"), 19);
  file["config"]["version"] = "v11";
  EXPECT_EQ(tekken_error(file), "file: special_tokens: missing or wrong type: want a list");
}

TEST(Tekken, BadFilesAreRejected) {
  const Json good = tekken(ranked({"ab"}));
  EXPECT_EQ(tekken_error(good), "");
  const struct {
    const char *at, *value, *message;
  } cases[] = {
      {"", "[]", "file: wrong type: want an object"},
      {"/config", "3", "file: config: wrong type"},
      {"/config/pattern", "null", "config: pattern: null, but the field is required"},
      {"/config/pattern", "\"(\"", "config: pattern: regular expression does not compile"},
      {"/config/pattern", "\"a$\"", "regular expression uses $"},
      {"/config/pattern", "\"[^a]|^a\"", "regular expression uses ^ outside"},
      {"/config/pattern", "\"[a--b]\"", "regular expression uses --"},
      {"/config/pattern", "\"[[:alpha:]]\"", "regular expression uses [:"},
      {"/config/pattern", "\"a\\\\b\"", "regular expression uses \\b"},
      {"/config/default_vocab_size", "4", "default_vocab_size: out of range"},
      {"/config/default_vocab_size", "1e9", "default_vocab_size: wrong type"},
      {"/config/default_vocab_size", "18446744073709551615", "default_vocab_size: out of range"},
      {"/config/default_vocab_size", "262", "vocab: too few tokens: want 258, have 257"},
      {"/config/default_vocab_size", "100", "no token for byte 96"},
      {"/config/default_num_special_tokens", "0", "default_num_special_tokens: out of range"},
      {"/config/default_num_special_tokens", "2", "special_tokens: too many tokens: want at most 2, have 3"},
      {"/config/version", "7", "version: wrong type"},
      {"/vocab", "null", "vocab: missing or wrong type"},
      {"/vocab", "{}", "vocab: missing or wrong type"},
      {"/vocab/5", "\"x\"", "vocab: 5: wrong type"},
      {"/vocab/5/rank", "4", "vocab: 5: rank given twice: 4"},
      {"/vocab/5/rank", "-1", "rank: out of range"},
      {"/vocab/5/rank", "257", "rank: out of range"},
      {"/vocab/5/rank", "null", "rank: null, but the field is required"},
      {"/vocab/5/token_bytes", "null", "token_bytes: null, but the field is required"},
      {"/vocab/5/token_bytes", "7", "token_bytes: wrong type"},
      {"/vocab/5/token_bytes", "\"\"", "vocab: 5: bad token"},
      {"/vocab/5/token_bytes", "\"Y*==\"", "vocab: 5: bad token"},
      {"/vocab/5/token_bytes", "\"YQ==\"", "vocab: token given twice: \"a\""},
      {"/vocab/5/token_bytes", "\"Y2I=\"", "no token for byte 5"},
      {"/special_tokens", "null", "special_tokens: missing or wrong type"},
      {"/special_tokens/1", "1", "special_tokens: 1: wrong type"},
      {"/special_tokens/1/rank", "2", "special_tokens: 1: rank: out of range"},
      {"/special_tokens/1/token_str", "null", "token_str: null, but the field is required"},
      {"/special_tokens/1/token_str", "\"\"", "special token without text: 1"},
      {"/special_tokens/1/token_str", "\"</s>\"", "special token given twice: \"</s>\""},
      {"/special_tokens/1/token_str", "\"<SPECIAL_3>\"", "special token given twice: \"<SPECIAL_3>\""},
      {"/special_tokens/1/token_str", "\"<bos>\"", "no such token: \"<s>\""},
      {"/special_tokens/2/token_str", "\"<eos>\"", "no such token: \"</s>\""},
  };
  for (const auto& item : cases) {
    Json file = good;
    file[Json::json_pointer(item.at)] = Json::parse(item.value);
    const std::string message = tekken_error(file);
    EXPECT_NE(message.find(item.message), std::string::npos) << item.at << " " << item.value << ": " << message;
  }
}

TEST(TokenizerFiles, Precedence) {
  const TempFolder folder;
  const auto size = [&] {
    std::shared_ptr<const Tokenizer> tokenizer;
    const Error e = load_tokenizer(folder.string(), &tokenizer);
    EXPECT_FALSE(e) << e.message();
    return e ? -1 : vocab_size(*tokenizer);
  };
  EXPECT_EQ(tokenizer_file(folder.string()), "");
  std::ofstream(folder / "tokenizer.model", std::ios::binary) << rank_list(ranked({}));
  EXPECT_EQ(size(), 256 + 256);
  std::ofstream(folder / "tekken.json") << tekken(ranked({})).dump();
  EXPECT_EQ(size(), 4 + 256);
  std::ofstream(folder / "tokenizer.json") << R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";
  EXPECT_EQ(size(), 1);
  std::filesystem::remove(folder / "tokenizer.json");
  std::shared_ptr<const Tokenizer> tokenizer;
  std::ofstream(folder / "tokenizer_config.json") << R"({"add_bos_token": false, "add_eos_token": true})";
  ASSERT_FALSE(load_tokenizer(folder.string(), &tokenizer));
  EXPECT_EQ(encoded(*tokenizer, "a"), (std::vector<int32_t>{4 + 'a', 2}));
}

}  // namespace
}  // namespace pinion
