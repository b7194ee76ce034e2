// A grammar compiled for a tokenizer of the fixtures, and the texts that it takes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/tokenizer/encoded.h"
#include "tokenizer/grammar/grammar.h"

namespace pinion {

inline std::shared_ptr<const Tokenizer> load_named(const std::string& name) {
  std::shared_ptr<const Tokenizer> tokenizer;
  const Error e = load_tokenizer(PINION_TEST_DATA "/tokenizers/" + name, &tokenizer);
  EXPECT_FALSE(e) << e.message();
  return tokenizer;
}

using GrammarKind = GrammarSource::Kind;

class Compiled {
 public:
  explicit Compiled(const std::string& tokenizer = "qwen2")
      : tokenizer_(load_named(tokenizer)), compiler_(tokenizer_) {}

  std::string error_of(GrammarKind kind, const std::string& source, bool is_trusted = true) {
    return compiler_.compile({.kind = kind, .text = source}, "g", is_trusted, &grammar_).message();
  }
  void compile(GrammarKind kind, const std::string& source) { EXPECT_EQ(error_of(kind, source), ""); }

  // True if the grammar accepts the whole text, both in the tokens of encode() and byte by byte.
  bool takes(const std::string& text) {
    const bool whole = takes_ids(encoded(*tokenizer_, text, {.add_special = false, .parse_special = false}));
    const bool bytes = takes_ids(bytes_of(text));
    EXPECT_EQ(whole, bytes) << text;
    return whole && bytes;
  }
  bool takes_bytes(const std::string& text) { return takes_ids(bytes_of(text)); }
  // The tokens that may follow a text.
  std::vector<std::string> next_after(const std::string& text) {
    GrammarMatcher matcher(*grammar_, {});
    std::vector<uint32_t> bits(words());
    EXPECT_FALSE(matcher.fill_mask(bits));
    for (const int32_t id : bytes_of(text)) EXPECT_FALSE(matcher.accept(id));
    std::vector<std::string> tokens;
    if (Error e = matcher.fill_mask(bits)) return {"error: " + e.message()};
    for (int32_t id = 0; id < vocab_size(*tokenizer_); ++id) {
      if (has(bits, id)) tokens.push_back(token_bytes(*tokenizer_, id));
    }
    return tokens;
  }
  std::string jump_after(const std::string& text) {
    GrammarMatcher matcher(*grammar_, {});
    for (const int32_t id : bytes_of(text)) EXPECT_FALSE(matcher.accept(id));
    return matcher.jump_forward();
  }

  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }
  size_t words() const { return static_cast<size_t>((vocab_size(*tokenizer_) + 31) / 32); }

 private:
  static bool has(const std::vector<uint32_t>& bits, int32_t id) {
    return (bits[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  }

  std::vector<int32_t> bytes_of(const std::string& text) const {
    std::vector<int32_t> ids;
    for (const char byte : text) {
      int32_t id = 0;
      while (token_bytes(*tokenizer_, id) != std::string{byte}) ++id;
      ids.push_back(id);
    }
    return ids;
  }

  bool takes_ids(const std::vector<int32_t>& ids) {
    constexpr int32_t kEnd = 7;  // a token that no grammar here allows
    GrammarMatcher matcher(*grammar_, std::vector<int32_t>{kEnd});
    std::vector<uint32_t> bits(words());
    for (const int32_t id : ids) {
      if (matcher.fill_mask(bits) || !has(bits, id)) return false;
      EXPECT_FALSE(matcher.accept(id));
    }
    return !matcher.fill_mask(bits) && has(bits, kEnd);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  GrammarCompiler compiler_;
  std::shared_ptr<const Grammar> grammar_;
};

}  // namespace pinion
