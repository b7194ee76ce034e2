// Hand-worked cases of valid and invalid tokenizer.json files.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/tokenizer/encoded.h"
#include "tokenizer/tokens/tokenizer_internal.h"

namespace pinion {
namespace {

const Json kNone = Json::object();

// A file with a character-level model; `fields` replaces top-level fields, `model` fields of the model.
std::string make_file(const Json& fields = kNone, const Json& model = kNone) {
  Json vocabulary = Json::object();
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyz .,0123456789AB")) {
    vocabulary[std::string(1, c)] = vocabulary.size();
  }
  for (const char* token : {"ab", "cd", "abcd", "bc", "▁", "▁a"}) vocabulary[token] = vocabulary.size();
  Json file = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", "c d", "ab cd", "b c"}}}}};
  file.update(fields);
  file["model"].update(model);
  return file.dump();
}

// The tokens of `text`, separated by bars.
std::string tokens(const std::string& file, const std::string& text, EncodeOptions options = {}) {
  Tokenizer tokenizer;
  const Error e = load_tokenizer_json(file, "file", &tokenizer);
  EXPECT_FALSE(e) << e.message();
  std::string result;
  for (const int32_t id : encoded(tokenizer, text, options)) {
    if (!result.empty()) result += '|';
    result += token_text(tokenizer, id);
  }
  return result;
}

std::string components_error(const std::string& file) {
  Tokenizer tokenizer;
  return load_tokenizer_json(file, "file", &tokenizer).message();
}

Json split(const std::string& pattern, const std::string& behavior, bool invert = false) {
  const Json step = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", invert}};
  return {{"pre_tokenizer", step}};
}

TEST(Bpe, MergeOrder) {
  EXPECT_EQ(tokens(make_file(), "abcd"), "abcd");
  EXPECT_EQ(tokens(make_file(), "abc"), "ab|c");
  EXPECT_EQ(tokens(make_file(), "xbcd"), "x|b|cd");  // "c d" comes before "b c"
  EXPECT_EQ(tokens(make_file(), "ababcdcd"), "ab|abcd|cd");
  EXPECT_EQ(tokens(make_file(kNone, {{"merges", Json::array({{"b", "c"}, {"a", "b"}})}}), "abcd"), "a|bc|d");
  EXPECT_EQ(tokens(make_file(), ""), "");
}

// A text, since Json keeps neither the order of members nor duplicates.
std::string model_file(const std::string& members) { return R"({"model": {"type": "BPE", )" + members + "}}"; }

TEST(Bpe, AnyOrderOfMembers) {
  const std::string vocabulary = R"("vocab": {"abc": 9, "c": 2, "b": 1, "ab": 3, "a": 0})";
  const std::string merges = R"("merges": ["#version: 0.2", "a b", ["ab", "c"]])";
  EXPECT_EQ(tokens(model_file(vocabulary + ", " + merges), "abcab"), "abc|ab");
  EXPECT_EQ(tokens(model_file(merges + ", " + vocabulary), "abcab"), "abc|ab");
}

TEST(Bpe, LastDuplicateCounts) {
  Tokenizer tokenizer;
  const std::string file = R"({"model": 5, "model": {"vocab": {"a": 7}, "merges": [],
    "vocab": {"a": 9, "b": -1, "a": 1, "b": 1, "c": 3}}})";
  ASSERT_EQ(load_tokenizer_json(file, "file", &tokenizer).message(), "");
  EXPECT_EQ(vocab_size(tokenizer), 4);
  EXPECT_EQ(token_id(tokenizer, "a"), 1);
  EXPECT_EQ(token_id(tokenizer, "b"), 1);
  EXPECT_EQ(token_text(tokenizer, 1), "b");  // the greater of two tokens
  EXPECT_EQ(token_text(tokenizer, 2), "");
  EXPECT_EQ(token_text(tokenizer, 3), "c");
  EXPECT_EQ(components_error(model_file(R"("vocab": {"a": 1}, "vocab": [1], "merges": [])")),
            "file: model: vocab: missing or wrong type: want an object");
  EXPECT_EQ(components_error(R"({"model": {"vocab": {"a": 1}}, "model": {"merges": []}})"),
            "file: model: vocab: missing or wrong type: want an object");
}

TEST(Bpe, RejectsBadVocabulariesAndMerges) {
  const auto vocabulary_error = [](const std::string& members) {
    return components_error(model_file("\"vocab\": {" + members + "}, \"merges\": []"));
  };
  const std::string want = "want an integer from 0 to 1048575, have ";
  EXPECT_EQ(vocabulary_error(R"("b": -1, "a": 1048576)"),
            "file: model: vocab: \"a\": bad token id: " + want + "1048576");
  EXPECT_EQ(vocabulary_error(R"("b": [1, [2]], "a": 0)"),
            "file: model: vocab: \"b\": bad token id: " + want + "an array of 2");
  EXPECT_EQ(vocabulary_error(R"("b": 0, "b": 1.0)"), "file: model: vocab: \"b\": bad token id: " + want + "1.0");
  EXPECT_EQ(vocabulary_error(R"("b": "\n")"), "file: model: vocab: \"b\": bad token id: " + want + "\"\\n\"");
  EXPECT_EQ(vocabulary_error(""), "file: model: vocab: no tokens");
  const auto merge_error = [](const std::string& merges) {
    return components_error(model_file(R"("vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b", )" + merges + "]"));
  };
  const std::string bad = "file: model: merges: 1: bad merge: want two tokens, have ";
  for (const auto& [merge, have] : std::map<std::string, std::string>{{R"("a")", R"("a")"},
                                                                      {R"("a b c")", R"("a b c")"},
                                                                      {R"(["a"])", "an array of 1"},
                                                                      {R"(["a", ["b"]])", "an array of 2"},
                                                                      {R"([["a"], "b"])", "an array of 2"},
                                                                      {R"(["a", "b", "c"])", "an array of 3"},
                                                                      {"{}", "an object"},
                                                                      {"null", "null"}}) {
    EXPECT_EQ(merge_error(merge), bad + have);
  }
  const std::string unknown = "file: model: merges: 1: merge of tokens that are not in the vocabulary: ";
  EXPECT_EQ(merge_error(R"("a c")"), unknown + R"("a c")");
  EXPECT_EQ(merge_error(R"(["b", "a"])"), unknown + "an array of 2");
}

TEST(Bpe, UnknownCharacters) {
  EXPECT_EQ(tokens(make_file(), "aéb"), "ab");  // dropped before the merges
  EXPECT_EQ(tokens(make_file(kNone, {{"unk_token", "."}}), "aéüb"), "a|.|.|b");
  EXPECT_EQ(tokens(make_file(kNone, {{"unk_token", "."}, {"fuse_unk", true}}), "aéüb"), "a|.|b");
}

// Tokens do not merge across a split: a b | c d.
TEST(Split, EveryBehavior) {
  EXPECT_EQ(tokens(make_file(split("b", "Isolated")), "abcd"), "a|b|cd");
  EXPECT_EQ(tokens(make_file(split("x", "Removed")), "axbxab"), "a|b|ab");
  EXPECT_EQ(tokens(make_file(split("x", "MergedWithPrevious")), "xabxcd"), "x|ab|x|cd");
  EXPECT_EQ(tokens(make_file(split("a", "MergedWithPrevious")), "abab"), "a|b|a|b");
  EXPECT_EQ(tokens(make_file(split("a", "MergedWithNext")), "abab"), "ab|ab");
  EXPECT_EQ(tokens(make_file(split("[ab]", "Contiguous")), "abcd"), "ab|cd");
  EXPECT_EQ(tokens(make_file(split("[ab]+", "Removed", true)), "abxxab"), "ab|ab");
  EXPECT_EQ(tokens(make_file(split("", "Isolated")), "abcd"), "a|b|c|d");  // an empty match between characters
}

TEST(Split, RegexesFollowOniguruma) {
  EXPECT_EQ(tokens(make_file(split("\\s", "Removed")), "a\u180Eb"), "ab");  // U+180E is no white space and unknown
  EXPECT_EQ(tokens(make_file(split("\\s", "Removed")), "a\u0085b\u3000a"), "a|b|a");
  EXPECT_EQ(tokens(make_file(split("\\u0062", "Isolated")), "abab"), "a|b|a|b");
  EXPECT_EQ(tokens(make_file(split("(?i:AB)", "Removed")), "cabd"), "c|d");
  for (const char* pattern :
       {"(", "[a", "[[:nothing:]]", "[a&&]", "a{1,2}+", "\\X", "\\K", "(?m:.)", "(?i)[\\p{Lu}]", "\\p{Nothing}"}) {
    EXPECT_NE(components_error(make_file(split(pattern, "Isolated"))), "") << pattern;
  }
}

// Words of Python's tokenizers 0.23.3.
std::vector<std::string> words(const Json& step, const std::string& text) {
  Pipeline pipeline;
  EXPECT_EQ(read_pre_tokenizer(step, "step", &pipeline.pre_tokenizers).message(), "");
  RegexFinder finder(text.size());
  std::vector<std::string> found;
  EXPECT_FALSE(pre_tokenize(pipeline, text, true, finder, [&](std::string_view word) {
    found.emplace_back(word);
    return Error{};
  }));
  return found;
}

TEST(Whitespace, JoinersAreWordCharacters) {
  using Words = std::vector<std::string>;
  const Json step = {{"type", "Whitespace"}};
  EXPECT_EQ(words(step, "👩\u200d💻"), (Words{"👩", "\u200d", "💻"}));
  EXPECT_EQ(words(step, "क्\u200cष!?"), (Words{"क्\u200cष", "!?"}));
  EXPECT_EQ(words(step, "❤\ufe0f a\u0301²"), (Words{"❤", "\ufe0f", "a\u0301", "²"}));
}

TEST(Punctuation, CharactersOfUnicode8) {
  const Json step = {{"type", "Punctuation"}, {"behavior", "Isolated"}};
  EXPECT_EQ(words(step, "a!b\u00bf、c$"), (std::vector<std::string>{"a", "!", "b", "\u00bf", "、", "c", "$"}));
  EXPECT_EQ(words(step, "a\u061db\u2e43c\u166d"), (std::vector<std::string>{"a\u061db\u2e43c", "\u166d"}));
}

TEST(Metaspace, PrependSchemes) {
  const auto file = [](const char* scheme) {
    const Json step = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}};
    const Json added = {{{"id", 50}, {"content", "<x>"}, {"special", true}}};
    return make_file({{"pre_tokenizer", step}, {"added_tokens", added}}, {{"merges", {"▁ a"}}});
  };
  EXPECT_EQ(tokens(file("always"), "a<x>a a"), "▁a|<x>|▁a|▁a");
  EXPECT_EQ(tokens(file("first"), "a<x>a a"), "▁a|<x>|a|▁a");
  EXPECT_EQ(tokens(file("never"), "a<x>a a"), "a|<x>|a|▁a");
  EXPECT_EQ(tokens(file("first"), " a"), "▁a");
}

TEST(AddedTokens, Flags) {
  const auto file = [](const Json& flags) {
    Json token = {{"content", "cd"}, {"special", true}};
    token.update(flags);
    return make_file({{"added_tokens", {token}}}, {{"merges", Json::array()}});
  };
  EXPECT_EQ(tokens(file(kNone), "a cd b"), "a| |cd| |b");
  EXPECT_EQ(tokens(file({{"lstrip", true}}), "a  cd b"), "a|cd| |b");
  EXPECT_EQ(tokens(file({{"rstrip", true}}), "a cd \n b"), "a| |cd|b");
  EXPECT_EQ(tokens(file({{"single_word", true}}), "acd cd cdcd cd"), "a|c|d| |cd| |c|d|c|d| |cd");
  EXPECT_EQ(tokens(file(kNone), "acd", {.parse_special = false}), "a|c|d");
  const Json longest = {{{"content", "ab"}}, {{"content", "abc"}}, {{"content", "b"}}};
  EXPECT_EQ(tokens(make_file({{"added_tokens", longest}}), "abcabb"), "abc|ab|b");
}

TEST(AddedTokens, Normalized) {
  const Json lower = {{"type", "Lowercase"}};
  const Json added = {{{"content", "Ab"}, {"normalized", true}}, {{"content", "C"}, {"normalized", false}}};
  EXPECT_EQ(tokens(make_file({{"normalizer", lower}, {"added_tokens", added}}), "xABCc"), "x|ab|C|c");
}

TEST(Template, SurroundsTheText) {
  const Json single = {
      {{"SpecialToken", {{"id", "B"}}}}, {{"Sequence", {{"id", "A"}}}}, {{"SpecialToken", {{"id", "E"}}}}};
  const Json ids = {{"B", {{"ids", {1, 2}}}}, {"E", {{"ids", {3}}}}};
  const Json step = {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", ids}};
  EXPECT_EQ(tokens(make_file({{"post_processor", step}}), "x"), "b|c|x|d");
  EXPECT_EQ(tokens(make_file({{"post_processor", step}}), "x", {.add_special = false}), "x");
}

TEST(BadFiles, ErrorsNameTheField) {
  const auto has = [](const std::string& file, const std::string& part) {
    EXPECT_NE(components_error(file).find(part), std::string::npos) << components_error(file);
  };
  has("", "invalid JSON");
  has("[]", "an object");
  has("{}", "model");
  has(make_file(kNone, {{"type", "Unigram"}}), "Unigram");
  has(make_file(kNone, {{"vocab", {{"a", 1000000000}}}}), "vocab");
  has(make_file(kNone, {{"vocab", {{"a", -1}}}}), "vocab");
  has(make_file(kNone, {{"vocab", {{"a", "1"}}}}), "vocab");
  has(make_file(kNone, {{"vocab", Json::array()}}), "vocab");
  has(make_file(kNone, {{"merges", {"a"}}}), "merges: 0");
  has(make_file(kNone, {{"merges", {"a b", "a z"}}}), "not in the vocabulary");
  has(make_file(kNone, {{"merges", {1}}}), "merges: 0");
  has(make_file(kNone, {{"dropout", 0.1}}), "dropout");
  has(make_file(kNone, {{"end_of_word_suffix", "</w>"}}), "end_of_word_suffix");
  has(make_file(kNone, {{"byte_fallback", 1}}), "byte_fallback");
  has(make_file({{"normalizer", {{"type", "Precompiled"}}}}), "Precompiled");
  has(make_file({{"normalizer", "NFC"}}), "normalizer");
  has(make_file({{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}), "UnicodeScripts");
  has(make_file({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {1}}}}}), "pre_tokenizer");
  has(make_file(split("a", "Sideways")), "Sideways");
  has(make_file({{"decoder", {{"type", "WordPiece"}}}}), "WordPiece");
  has(make_file({{"decoder", {{"type", "Strip"}, {"content", ""}, {"start", 1}, {"stop", 0}}}}), "one character");
  has(make_file({{"post_processor", {{"type", "BertProcessing"}}}}), "BertProcessing");
  has(make_file({{"added_tokens", {{{"id", 1}}}}}), "content");
  std::string deep = "{\"type\":\"NFC\"}";
  for (int i = 0; i < 100; ++i) deep = "{\"type\":\"Sequence\",\"normalizers\":[" + deep + "]}";
  has("{\"normalizer\":" + deep + "}", "deep");
}

TEST(BadFiles, SlowTextsAreRejected) {
  Tokenizer tokenizer;
  ASSERT_FALSE(load_tokenizer_json(make_file(split("(a+)+$", "Isolated")), "file", &tokenizer));
  std::vector<int32_t> ids;
  EXPECT_FALSE(encode(tokenizer, "aaab", {}, &ids));
  const Error e = encode(tokenizer, std::string(60, 'a') + "b", {}, &ids);
  EXPECT_NE(e.message().find("too much time"), std::string::npos) << e.message();
}

// Each pre-tokeniser calls the next one.
TEST(BadFiles, TooManyComponentsAreRejected) {
  Json steps = Json::array();
  for (int i = 0; i < 1000; ++i) steps.push_back({{"type", "WhitespaceSplit"}});
  const std::string e =
      components_error(make_file({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}}}));
  EXPECT_NE(e.find("at most 64"), std::string::npos) << e;
}

TEST(BadFiles, EveryPrefixIsRejected) {
  const std::string file = make_file(split("\\s", "Removed"));
  for (size_t length = 0; length < file.size(); ++length)
    EXPECT_NE(components_error(file.substr(0, length)), "") << length;
}

TEST(Decoder, StripLongerThanTheToken) {
  const Json step = {{"type", "Strip"}, {"content", "a"}, {"start", 3}, {"stop", 3}};
  Tokenizer tokenizer;
  ASSERT_FALSE(load_tokenizer_json(make_file({{"decoder", step}}), "file", &tokenizer));
  EXPECT_EQ(decode(tokenizer, encoded(tokenizer, "aba")), "b");  // "ab" loses its a, "a" becomes empty
}

TEST(Unicode, ReplacesIllFormedParts) {
  EXPECT_EQ(to_utf8("a\xC0\xAF"), "a\uFFFD\uFFFD");                    // overlong
  EXPECT_EQ(to_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(to_utf8("\xF0\x9F\x98 x"), "\uFFFD x");                    // truncated: one part
  EXPECT_EQ(to_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(to_utf8("é\U0001F600"), "é\U0001F600");
}

TEST(Unicode, SortsManyMarksQuickly) {
  std::string marks = "a";
  for (int i = 0; i < 200000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0323";
  EXPECT_EQ(normalize(marks, NormalForm::kNfc).substr(0, 3), "\u1EA1");
}

}  // namespace
}  // namespace pinion
