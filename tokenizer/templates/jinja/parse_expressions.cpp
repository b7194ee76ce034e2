// The parser of expressions. See parser.h.
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "tokenizer/templates/jinja/parser.h"

namespace pinion::jinja {
namespace {

constexpr int kMaxTreeDepth = 500;      // also bounds chains such as 1+1+1+..., whose trees nest without brackets
constexpr int kLevelsOfExpression = 4;  // DepthGuard levels that one pair of brackets costs

}  // namespace

Token TokenStream::take() {
  Token token = current();
  if (token.kind != Token::Kind::kEnd) ++at_;
  return token;
}

void TokenStream::expect_sign(std::string_view sign) {
  if (!accept_sign(sign)) fail_here("expected '" + std::string(sign) + "'");
}

void TokenStream::expect_name(std::string_view name) {
  if (!accept_name(name)) fail_here("expected '" + std::string(name) + "'");
}

Token TokenStream::expect(Token::Kind kind, const char* description) {
  if (!is(kind)) fail_here("expected " + std::string(description));
  return take();
}

void TokenStream::fail_here(const std::string& message) const {
  using enum Token::Kind;
  const Token& token = current();
  std::string found = "'" + token.text + "'";
  if (token.kind == kEnd) found = "the end of the template";
  if (token.kind == kVariableEnd || token.kind == kBlockEnd) found = "the end of the tag";
  if (token.kind == kString) found = "a string";
  throw SyntaxFailure(message + ", got " + found, token.offset);
}

ExpressionPtr ExpressionParser::make(Kind kind, size_t offset, std::vector<ExpressionPtr> operands) {
  auto made = std::make_unique<Expression>(Expression{.kind = kind, .offset = offset});
  for (const ExpressionPtr& operand : operands) {
    if (operand) made->depth = std::max(made->depth, operand->depth + 1);
  }
  if (made->depth > kMaxTreeDepth) throw SyntaxFailure("an expression nests too deep", offset);
  made->operands = std::move(operands);
  return made;
}

ExpressionPtr ExpressionParser::parse_expression(bool with_condition) {
  const DepthGuard guard(kLevelsOfExpression);
  ExpressionPtr value = parse_or();
  while (with_condition && tokens_.is_name("if")) {
    const size_t offset = tokens_.take().offset;
    ExpressionPtr condition = parse_or();
    ExpressionPtr otherwise = tokens_.accept_name("else") ? parse_expression() : nullptr;
    value = make_of(Kind::kConditional, offset, std::move(condition), std::move(value), std::move(otherwise));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_words(std::string_view word, Kind kind, Level next) {
  ExpressionPtr left = (this->*next)();
  while (tokens_.is_name(word)) {
    const size_t offset = tokens_.take().offset;
    left = make_of(kind, offset, std::move(left), (this->*next)());
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_signs(std::initializer_list<std::string_view> signs, Level next) {
  ExpressionPtr left = (this->*next)();
  while (std::ranges::any_of(signs, [&](std::string_view sign) { return tokens_.is_sign(sign); })) {
    const Token sign = tokens_.take();
    left = make_of(Kind::kBinary, sign.offset, std::move(left), (this->*next)());
    left->name = sign.text;
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_or() { return parse_words("or", Kind::kOr, &ExpressionParser::parse_and); }
ExpressionPtr ExpressionParser::parse_and() { return parse_words("and", Kind::kAnd, &ExpressionParser::parse_not); }

ExpressionPtr ExpressionParser::parse_not() {
  if (!tokens_.is_name("not")) return parse_compare();
  const DepthGuard guard;
  const size_t offset = tokens_.take().offset;
  return make_of(Kind::kNot, offset, parse_not());
}

ExpressionPtr ExpressionParser::parse_compare() {
  const size_t offset = tokens_.current().offset;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> operators;
  operands.push_back(parse_sum());
  for (;; operands.push_back(parse_sum())) {
    static constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
    if (std::ranges::any_of(kSigns, [&](std::string_view sign) { return tokens_.is_sign(sign); })) {
      operators.push_back(tokens_.take().text);
    } else if (tokens_.accept_name("in")) {
      operators.emplace_back("in");
    } else if (tokens_.is_name("not") && tokens_.following().kind == Token::Kind::kName &&
               tokens_.following().text == "in") {
      tokens_.take();
      tokens_.take();
      operators.emplace_back("not in");
    } else {
      break;
    }
  }
  if (operators.empty()) return std::move(operands.front());
  ExpressionPtr made = make(Kind::kCompare, offset, std::move(operands));
  made->operators = std::move(operators);
  return made;
}

ExpressionPtr ExpressionParser::parse_sum() { return parse_signs({"+", "-"}, &ExpressionParser::parse_concat); }

ExpressionPtr ExpressionParser::parse_concat() {
  const size_t offset = tokens_.current().offset;
  std::vector<ExpressionPtr> operands;
  do {
    operands.push_back(parse_product());
  } while (tokens_.accept_sign("~"));
  return operands.size() == 1 ? std::move(operands.front()) : make(Kind::kConcat, offset, std::move(operands));
}

ExpressionPtr ExpressionParser::parse_product() {
  return parse_signs({"*", "/", "//", "%"}, &ExpressionParser::parse_filtered_unary);
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  const DepthGuard guard;
  ExpressionPtr made;
  if (tokens_.is_sign("-") || tokens_.is_sign("+")) {
    const Token sign = tokens_.take();
    made = make_of(sign.text == "-" ? Kind::kNegative : Kind::kPositive, sign.offset, parse_unary(false));
  } else {
    made = parse_primary();
  }
  made = parse_postfix(std::move(made));
  return with_filters ? parse_filters_and_tests(std::move(made)) : std::move(made);
}

ExpressionPtr ExpressionParser::parse_primary(bool with_namespace) {
  const size_t offset = tokens_.current().offset;
  if (tokens_.is(Token::Kind::kName)) return parse_name(with_namespace);
  if (tokens_.is(Token::Kind::kNumber)) return parse_number();
  if (tokens_.is(Token::Kind::kString)) {
    std::string text;
    while (tokens_.is(Token::Kind::kString)) text += tokens_.take().text;
    ExpressionPtr made = make(Kind::kConstant, offset);
    made->value = std::move(text);
    return made;
  }
  if (tokens_.accept_sign("(")) {
    ExpressionPtr made = parse_tuple(true, true);
    tokens_.expect_sign(")");
    return made;
  }
  if (tokens_.is_sign("[")) return parse_list();
  if (tokens_.is_sign("{")) return parse_mapping();
  tokens_.fail_here("expected an expression");
}

ExpressionPtr ExpressionParser::parse_name(bool with_namespace) {
  const Token name = tokens_.take();
  ExpressionPtr made = make(Kind::kConstant, name.offset);
  if (name.text == "true" || name.text == "True") {
    made->value = true;
  } else if (name.text == "false" || name.text == "False") {
    made->value = false;
  } else if (name.text == "none" || name.text == "None") {
    made->value = Value();
  } else if (with_namespace && tokens_.accept_sign(".")) {
    made->kind = Kind::kNamespaceAttribute;
    made->name = name.text;
    made->operators.push_back(tokens_.expect(Token::Kind::kName, "a name").text);
  } else {
    made->kind = Kind::kName;
    made->name = name.text;
    const auto has_parameter = [&](const Macro* macro) { return std::ranges::count(macro->parameters, name.text) > 0; };
    if ((name.text == "varargs" || name.text == "kwargs") && !open_macros.empty() &&
        std::ranges::none_of(open_macros, has_parameter)) {
      throw SyntaxFailure(name.text + " of a macro is not supported", name.offset);
    }
    for (Macro* macro : open_macros) macro->uses_caller |= name.text == "caller";
  }
  return made;
}

ExpressionPtr ExpressionParser::parse_number() {
  const Token token = tokens_.take();
  ExpressionPtr made = make(Kind::kConstant, token.offset);
  if (token.text.find_first_of(".eE") != std::string::npos) {
    made->value = std::strtod(token.text.c_str(), nullptr);
    return made;
  }
  errno = 0;
  made->value = int64_t{std::strtoll(token.text.c_str(), nullptr, 10)};
  if (errno != 0) throw SyntaxFailure("a number is too large", token.offset);
  return made;
}

// One item, or a tuple of items with a comma behind each but perhaps the last.
template <class Item>
ExpressionPtr ExpressionParser::parse_items(std::string_view end, bool may_be_empty, Item parse_item) {
  const size_t offset = tokens_.current().offset;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!tokens_.is(Token::Kind::kVariableEnd) && !tokens_.is(Token::Kind::kBlockEnd) && !tokens_.is_sign(")") &&
         (end.empty() || !tokens_.is_name(end))) {
    items.push_back(parse_item());
    if (!tokens_.accept_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !may_be_empty) tokens_.fail_here("expected an expression");
  return make(Kind::kTuple, offset, std::move(items));
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_condition, bool in_brackets) {
  return parse_items({}, in_brackets, [&] { return parse_expression(with_condition); });
}

ExpressionPtr ExpressionParser::parse_list() {
  const size_t offset = tokens_.take().offset;
  std::vector<ExpressionPtr> items;
  tokens_.take_list("]", [&] { items.push_back(parse_expression()); });
  return make(Kind::kList, offset, std::move(items));
}

ExpressionPtr ExpressionParser::parse_mapping() {
  const size_t offset = tokens_.take().offset;
  std::vector<ExpressionPtr> pairs;
  tokens_.take_list("}", [&] {
    pairs.push_back(parse_expression());
    tokens_.expect_sign(":");
    pairs.push_back(parse_expression());
  });
  return make(Kind::kMapping, offset, std::move(pairs));
}

ExpressionPtr ExpressionParser::parse_target(std::string_view end, bool with_namespace) {
  ExpressionPtr target = parse_items(end, false, [&] { return parse_primary(with_namespace); });
  const auto can_assign = [](const auto& self, const Expression& part) -> bool {
    if (part.kind == Kind::kNamespaceAttribute || part.kind == Kind::kName) return true;
    return part.kind == Kind::kTuple &&
           std::ranges::all_of(part.operands, [&](const auto& inner) { return self(self, *inner); });
  };
  if (!can_assign(can_assign, *target)) throw SyntaxFailure("cannot assign to that", target->offset);
  return target;
}

// Attributes, subscripts and calls.
ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr object) {
  for (;;) {
    if (tokens_.is_sign(".")) {
      object = parse_attribute(std::move(object));
    } else if (tokens_.is_sign("[")) {
      object = parse_subscript(std::move(object));
    } else if (tokens_.is_sign("(")) {
      object = parse_call(std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr value) {
  for (;;) {
    if (tokens_.is_sign("|")) {
      value = parse_filters(std::move(value));
    } else if (tokens_.is_name("is")) {
      value = parse_test(std::move(value));
    } else if (tokens_.is_sign("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_attribute(ExpressionPtr object) {
  const size_t offset = tokens_.take().offset;
  if (tokens_.is(Token::Kind::kNumber)) return make_of(Kind::kItem, offset, std::move(object), parse_number());
  ExpressionPtr made = make_of(Kind::kAttribute, offset, std::move(object));
  made->name = tokens_.expect(Token::Kind::kName, "a name or number").text;
  return made;
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const size_t offset = tokens_.take().offset;
  std::vector<ExpressionPtr> indices;
  const auto ends = [&] { return tokens_.is_sign("]") || tokens_.is_sign(",") || tokens_.is_sign(":"); };
  while (!tokens_.is_sign("]")) {
    if (!indices.empty()) tokens_.expect_sign(",");
    ExpressionPtr first = tokens_.is_sign(":") ? nullptr : parse_expression();
    if (!tokens_.accept_sign(":")) {
      indices.push_back(std::move(first));
      continue;
    }
    ExpressionPtr stop = ends() ? nullptr : parse_expression();
    ExpressionPtr step = tokens_.accept_sign(":") && !ends() ? parse_expression() : nullptr;
    tokens_.expect_sign("]");
    return make_of(Kind::kSlice, offset, std::move(object), std::move(first), std::move(stop), std::move(step));
  }
  tokens_.take();
  ExpressionPtr index =
      indices.size() == 1 ? std::move(indices.front()) : make(Kind::kTuple, offset, std::move(indices));
  return make_of(Kind::kItem, offset, std::move(object), std::move(index));
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  tokens_.expect_sign("(");
  const auto check_order = [&](bool is_allowed) {
    if (!is_allowed) tokens_.fail_here("arguments of a call in a wrong order");
  };
  tokens_.take_list(")", [&] {
    if (tokens_.accept_sign("*")) {
      check_order(!arguments.all_positional && !arguments.all_named);
      arguments.all_positional = parse_expression();
    } else if (tokens_.accept_sign("**")) {
      check_order(!arguments.all_named);
      arguments.all_named = parse_expression();
    } else if (tokens_.is(Token::Kind::kName) && tokens_.following().kind == Token::Kind::kSign &&
               tokens_.following().text == "=") {
      check_order(!arguments.all_named);
      const std::string name = tokens_.take().text;
      tokens_.take();
      arguments.named.emplace_back(name, parse_expression());
    } else {
      check_order(!arguments.all_positional && !arguments.all_named && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  });
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr callee) {
  ExpressionPtr made = make_of(Kind::kCall, tokens_.current().offset, std::move(callee));
  made->arguments = parse_arguments();
  return made;
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value, bool first_is_bare) {
  while (std::exchange(first_is_bare, false) || tokens_.accept_sign("|")) {
    const Token name = tokens_.expect(Token::Kind::kName, "a name");
    value = make_of(Kind::kFilter, name.offset, std::move(value));
    value->name = name.text;
    if (tokens_.is_sign("(")) value->arguments = parse_arguments();
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr value) {
  using enum Token::Kind;
  const size_t offset = tokens_.take().offset;
  const bool is_negated = tokens_.accept_name("not");
  ExpressionPtr made = make_of(Kind::kTest, offset, std::move(value));
  made->name = tokens_.expect(kName, "a name").text;
  const bool begins_value =
      tokens_.is(kName) || tokens_.is(kString) || tokens_.is(kNumber) || tokens_.is_sign("[") || tokens_.is_sign("{");
  if (tokens_.is_sign("(")) {
    made->arguments = parse_arguments();
  } else if (begins_value && !tokens_.is_name("else") && !tokens_.is_name("or") && !tokens_.is_name("and")) {
    if (tokens_.is_name("is")) tokens_.fail_here("tests cannot be chained");
    made->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  return is_negated ? make_of(Kind::kNot, offset, std::move(made)) : std::move(made);
}

}  // namespace pinion::jinja
