// Grammars as rules of a text: unconstrained text before and instead of it, and its end.
#include "apps/cli/grammar_rules.h"

#include <gtest/gtest.h>

#include "tests/tokenizer/encoded.h"

namespace pinion {
namespace {

constexpr int32_t kEnd = 5;  // a token that none of these grammars uses

class Rules {
 public:
  explicit Rules(const std::string& regex, std::string free_until = {}, std::vector<std::string> openings = {})
      : Rules({.kind = GrammarSource::Kind::kRegex, .text = regex}, 0, std::move(free_until), openings) {}
  Rules(const GrammarSource& source, double max_seconds, std::string free_until = {},
        const std::vector<std::string>& openings = {}, bool may_end_free = false) {
    EXPECT_FALSE(load_tokenizer(PINION_TEST_DATA "/tokenizers/qwen2", &tokenizer_));
    GrammarRulesOptions options{.grammar = {}, .tokenizer = tokenizer_, .free_until = std::move(free_until)};
    const Error e = GrammarCompiler(tokenizer_).compile(source, "g", true, &options.grammar);
    EXPECT_FALSE(e) << e.message();
    for (const std::string& mark : openings) {
      options.openings.push_back({token_id(*tokenizer_, mark), mark == "<think>" ? "</think>" : ""});
    }
    options.max_seconds = max_seconds;
    options.may_end_free = may_end_free;
    rules_ = grammar_rules(std::move(options))();
    const Error begun = rules_->begin(vocab_size(*tokenizer_) + 100, std::vector<int32_t>{kEnd});
    EXPECT_FALSE(begun) << begun.message();
  }

  bool may(int32_t id) const { return is_allowed(*rules_, id); }
  bool may(const std::string& token) const { return may(id_of(token)); }
  bool may_end() const { return may(kEnd); }
  bool is_complete() const { return rules_->is_complete; }
  // Adds a text's tokens while they are allowed; returns the text of the remaining ones.
  std::string add(const std::string& text) {
    std::vector<int32_t> ids = encoded(*tokenizer_, text, {.add_special = false});
    while (!ids.empty() && may(ids.front())) {
      const Error e = rules_->add(ids.front());
      EXPECT_FALSE(e) << e.message();
      ids.erase(ids.begin());
    }
    return decode(*tokenizer_, ids, false);
  }
  Error add_one(const std::string& token) { return rules_->add(id_of(token)); }
  std::string jump_forward() const { return decode(*tokenizer_, rules_->jump_forward(), false); }
  int32_t padding() const { return vocab_size(*tokenizer_) + 50; }

 private:
  int32_t id_of(const std::string& token) const {
    const std::vector<int32_t> ids = encoded(*tokenizer_, token, {.add_special = false});
    EXPECT_EQ(ids.size(), 1u) << token;
    return ids.at(0);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TextRules> rules_;
};

TEST(GrammarRules, TextMatchesGrammar) {
  Rules rules("(yes|no)!?");
  EXPECT_FALSE(rules.may("x"));
  EXPECT_FALSE(rules.may(rules.padding()));
  EXPECT_FALSE(rules.may_end());
  EXPECT_EQ(rules.add("yes"), "");
  EXPECT_TRUE(rules.may_end());
  EXPECT_FALSE(rules.is_complete());
  EXPECT_EQ(rules.add("!"), "");
  EXPECT_TRUE(rules.is_complete());
  EXPECT_TRUE(rules.add_one("x"));
}

TEST(GrammarRules, ThoughtMayComeFirst) {
  Rules opened("[0-9]+", "</think>");
  EXPECT_TRUE(opened.may("x"));
  EXPECT_FALSE(opened.may_end());  // the answer is missing
  EXPECT_EQ(opened.add("any thing at all </think>\n"), "");
  EXPECT_FALSE(opened.may("\n"));  // allowed once only
  EXPECT_FALSE(opened.may("x"));
  EXPECT_EQ(opened.add("12x"), "x");
  EXPECT_TRUE(opened.may_end());
  Rules closed("[0-9]+", "", {"<think>"});
  EXPECT_TRUE(closed.may("<think>"));
  EXPECT_TRUE(closed.may("1"));
  EXPECT_FALSE(closed.may("x"));
  EXPECT_EQ(closed.add("<think>why </think>7"), "");
  EXPECT_FALSE(closed.may("<think>"));
  EXPECT_TRUE(closed.may_end());
}

TEST(GrammarRules, ToolCallMayReplaceAnswer) {
  Rules rules("[0-9]+", "", {"<|im_start|>"});
  EXPECT_EQ(rules.add("<|im_start|>{\"name\": 1} and more"), "");
  EXPECT_TRUE(rules.may_end());
  EXPECT_FALSE(rules.is_complete());
  EXPECT_TRUE(rules.jump_forward().empty());
}

// In the Harmony format, calls are in the position of other formats' thoughts.
TEST(GrammarRules, ToolCallMayEndTextBeforeAnswer) {
  Rules rules({.kind = GrammarSource::Kind::kRegex, .text = "[0-9]+"}, 0, "final:", {}, true);
  EXPECT_EQ(rules.add("a call"), "");
  EXPECT_TRUE(rules.may_end());
  EXPECT_EQ(rules.add(" final:7x"), "x");
}

TEST(GrammarRules, DeterminedTextIsDrafted) {
  Rules rules("(a|b) long text that has no other way");
  EXPECT_EQ(rules.add("a"), "");
  EXPECT_EQ(rules.jump_forward(), " long text that has no other wa");  // the last token might go on
}

TEST(GrammarRules, SlowGrammarFails) {
  Rules quick("(a|a)*b"),
      slow({.kind = GrammarSource::Kind::kGbnf, .text = "root ::= s \"b\"\ns ::= s s | \"a\" | \"aa\""}, 0.3);
  Error e;
  int tokens = 0;
  while (!e && tokens < 3000) {
    e = slow.add_one("a");
    EXPECT_FALSE(quick.add_one("a"));
    ++tokens;
  }
  EXPECT_EQ(e.message(), "grammar: takes too long: the grammar is too ambiguous");
  EXPECT_GT(tokens, 5);
}

}  // namespace
}  // namespace pinion
