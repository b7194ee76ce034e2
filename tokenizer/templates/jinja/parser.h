// Tokens of a template, and the parser of expressions that statements use.
#pragma once

#include <algorithm>
#include <initializer_list>
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

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// The methods are named after those of Jinja's parser.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  ExpressionPtr parse_expression(bool with_condition = true);  // x if y else z
  // One expression, or a tuple without brackets.
  ExpressionPtr parse_tuple(bool with_condition = true, bool in_brackets = false);
  // The left side of `set` (with_namespace: may be the attribute of a namespace), or of `for`, up to the name `end`.
  ExpressionPtr parse_target(std::string_view end, bool with_namespace);
  // Filters after |, applied to `value`. `first_is_bare`: no | stands before the first one. Returns `value` if there
  // are none.
  ExpressionPtr parse_filters(ExpressionPtr value, bool first_is_bare = false);

  std::vector<Macro*> open_macros;  // macros whose bodies are being parsed; their uses_caller is set here

 private:
  using Kind = Expression::Kind;
  using Level = ExpressionPtr (ExpressionParser::*)();

  static ExpressionPtr make(Kind kind, size_t offset, std::vector<ExpressionPtr> operands = {});
  template <class... Operands>
  static ExpressionPtr make_of(Kind kind, size_t offset, Operands... operands) {
    std::vector<ExpressionPtr> all;
    (all.push_back(std::move(operands)), ...);
    return make(kind, offset, std::move(all));
  }

  // Operands of the `next` tighter level, with this word or one of these signs between them.
  ExpressionPtr parse_words(std::string_view word, Kind kind, Level next);
  ExpressionPtr parse_signs(std::initializer_list<std::string_view> signs, Level next);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_filtered_unary() { return parse_unary(true); }
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary(bool with_namespace = false);
  ExpressionPtr parse_name(bool with_namespace);
  ExpressionPtr parse_number();
  ExpressionPtr parse_list();
  ExpressionPtr parse_mapping();
  ExpressionPtr parse_postfix(ExpressionPtr object);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr value);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  ExpressionPtr parse_test(ExpressionPtr value);
  CallArguments parse_arguments();
  template <class Item>
  ExpressionPtr parse_items(std::string_view end, bool may_be_empty, Item parse_item);

  TokenStream& tokens_;
};

}  // namespace pinion::jinja
