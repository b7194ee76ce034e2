// Tokens of a template, and the parser of expressions.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/templates/jinja/syntax.h"

namespace pinion::jinja {

struct Token {
  enum class Kind { kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd, kName, kString, kNumber, kSign, kEnd };
  Kind kind;
  std::string text;  // of a string: its value
  size_t offset;     // in the source, bytes
};

// With trim_blocks and lstrip_blocks. The last token is kEnd. Throws a SyntaxFailure.
std::vector<Token> tokenize(const std::string& source);

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(Token::Kind::kSign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(Token::Kind::kName) && current().text == name; }
  Token take();
  // Skip the token if it is current.
  bool accept_sign(std::string_view sign) { return is_sign(sign) ? (++at_, true) : false; }
  bool accept_name(std::string_view name) { return is_name(name) ? (++at_, true) : false; }
  // Fail if it is not.
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  Token expect(Token::Kind kind, const char* description);
  // Calls take_item() for each of the items that stand between commas, up to the sign `close`, which is skipped.
  template <class Item>
  void take_list(std::string_view close, Item take_item) {
    while (!is_sign(close)) {
      take_item();
      if (!is_sign(close)) expect_sign(",");
    }
    take();
  }
  [[noreturn]] void fail_here(const std::string& message) const;  // adds the current token

  std::vector<Macro*> open_macros;  // macros whose bodies are being parsed; their uses_caller is set by expressions

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

ExpressionPtr parse_expression(TokenStream& tokens, bool with_condition = true);  // x if y else z
// One expression, or a tuple without brackets.
ExpressionPtr parse_tuple(TokenStream& tokens, bool with_condition = true, bool in_brackets = false);
// The left side of `set` (with_namespace: may be the attribute of a namespace), or of `for`, up to the name `end`.
ExpressionPtr parse_target(TokenStream& tokens, std::string_view end, bool with_namespace);
// Filters after |, applied to `value`. `first_is_bare`: no | stands before the first one. Returns `value` if there are
// none.
ExpressionPtr parse_filters(TokenStream& tokens, ExpressionPtr value, bool first_is_bare = false);

}  // namespace pinion::jinja
