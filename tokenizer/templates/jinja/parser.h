// The part of the parser that expressions and statements share: the tokens, and how a template is refused.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/templates/jinja/lexer.h"
#include "tokenizer/templates/jinja/syntax.h"

namespace pinion::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool sees(Token::Kind kind) const { return current().kind == kind; }
  bool sees_sign(std::string_view sign) const { return sees(Token::Kind::kSign) && current().text == sign; }
  bool sees_name(std::string_view name) const { return sees(Token::Kind::kName) && current().text == name; }
  bool take_sign(std::string_view sign);
  bool take_name(std::string_view name);
  void need_sign(std::string_view sign);
  void need_name(std::string_view name);
  Token need(Token::Kind kind, const char* what);
  [[noreturn]] void refuse(const std::string& message) const;
  [[noreturn]] void refuse_token() const;  // the current one

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// The methods are named after those of Jinja's parser.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}

  ExpressionPointer parse_expression(bool with_condition = true);
  // One expression, or a tuple of some without brackets. `end` is a name that ends it.
  ExpressionPointer parse_tuple(bool with_condition = true, std::string_view end = {}, bool in_brackets = false);
  // What `set` and `for` assign to.
  ExpressionPointer parse_target(std::string_view end, bool with_namespace);
  // Filters behind |; `inline_first`: the first one has no |. Null where there are none.
  ExpressionPointer parse_filters(ExpressionPointer of, bool inline_first = false);

  // Macros whose bodies are being parsed: told of the names that have a meaning there.
  std::vector<Macro*> open_macros;

 private:
  ExpressionPointer make(Expression::Kind kind, size_t place, std::vector<ExpressionPointer> parts) const;
  ExpressionPointer pair(Expression::Kind kind, size_t place, ExpressionPointer left, ExpressionPointer right) const;
  using Level = ExpressionPointer (ExpressionParser::*)();
  // Operands of the next level with this word, or one of these signs, between them.
  ExpressionPointer parse_joined(std::string_view word, Expression::Kind kind, Level next);
  ExpressionPointer parse_joined(std::initializer_list<std::string_view> signs, Level next);
  ExpressionPointer parse_conditional();
  ExpressionPointer parse_or();
  ExpressionPointer parse_and();
  ExpressionPointer parse_not();
  ExpressionPointer parse_compare();
  ExpressionPointer parse_sum();
  ExpressionPointer parse_concat();
  ExpressionPointer parse_product();
  ExpressionPointer parse_power();
  ExpressionPointer parse_unary(bool with_filters = true);
  ExpressionPointer parse_primary(bool with_namespace = false);
  ExpressionPointer parse_name(bool with_namespace);
  ExpressionPointer parse_number();
  ExpressionPointer parse_list();
  ExpressionPointer parse_mapping();
  ExpressionPointer parse_postfix(ExpressionPointer of);
  ExpressionPointer parse_filters_and_tests(ExpressionPointer of);
  ExpressionPointer parse_attribute(ExpressionPointer of);
  ExpressionPointer parse_subscript(ExpressionPointer of);
  ExpressionPointer parse_call(ExpressionPointer of);
  ExpressionPointer parse_test(ExpressionPointer of);
  std::string parse_dotted_name();
  CallArguments parse_arguments();
  ExpressionPointer parse_targets(std::string_view end, bool with_namespace);

  TokenStream& tokens_;
};

}  // namespace pinion::jinja
