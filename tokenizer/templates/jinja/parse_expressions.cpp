// The parser of expressions. Its functions are named after those of Jinja's parser. See syntax.h.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>

#include "tokenizer/templates/jinja/syntax.h"

namespace pinion::jinja {

namespace {

using Kind = Expression::Kind;

constexpr int kMaxTreeDepth = 500;      // also bounds chains such as 1+1+1+..., whose trees nest without brackets
constexpr int kLevelsOfExpression = 4;  // DepthGuard levels that one pair of brackets costs

ExpressionPtr make(Kind kind, size_t offset, std::vector<ExpressionPtr> operands = {}) {
  auto made = std::make_unique<Expression>(Expression{.kind = kind, .offset = offset});
  for (const ExpressionPtr& operand : operands) {
    if (operand) made->depth = std::max(made->depth, operand->depth + 1);
  }
  if (made->depth > kMaxTreeDepth) throw SyntaxFailure("an expression nests too deep", offset);
  made->operands = std::move(operands);
  return made;
}

template <class... Operands>
ExpressionPtr make_of(Kind kind, size_t offset, Operands... operands) {
  std::vector<ExpressionPtr> all;
  (all.push_back(std::move(operands)), ...);
  return make(kind, offset, std::move(all));
}

ExpressionPtr parse_number(TokenStream& tokens) {
  const Token token = tokens.take();
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

CallArguments parse_arguments(TokenStream& tokens) {
  CallArguments arguments;
  tokens.expect_sign("(");
  const auto check_order = [&](bool is_allowed) {
    if (!is_allowed) tokens.fail_here("arguments of a call in a wrong order");
  };
  tokens.take_list(")", [&] {
    if (tokens.accept_sign("*")) {
      check_order(!arguments.all_positional && !arguments.all_named);
      arguments.all_positional = parse_expression(tokens);
    } else if (tokens.accept_sign("**")) {
      check_order(!arguments.all_named);
      arguments.all_named = parse_expression(tokens);
    } else if (tokens.is(Token::Kind::kName) && tokens.is_followed_by(Token::Kind::kSign, "=")) {
      check_order(!arguments.all_named);
      const std::string name = tokens.take().text;
      tokens.take();
      arguments.named.emplace_back(name, parse_expression(tokens));
    } else {
      check_order(!arguments.all_positional && !arguments.all_named && arguments.named.empty());
      arguments.positional.push_back(parse_expression(tokens));
    }
  });
  return arguments;
}

ExpressionPtr parse_list(TokenStream& tokens) {
  const size_t offset = tokens.take().offset;
  std::vector<ExpressionPtr> items;
  tokens.take_list("]", [&] { items.push_back(parse_expression(tokens)); });
  return make(Kind::kList, offset, std::move(items));
}

ExpressionPtr parse_mapping(TokenStream& tokens) {
  const size_t offset = tokens.take().offset;
  std::vector<ExpressionPtr> pairs;
  tokens.take_list("}", [&] {
    pairs.push_back(parse_expression(tokens));
    tokens.expect_sign(":");
    pairs.push_back(parse_expression(tokens));
  });
  return make(Kind::kMapping, offset, std::move(pairs));
}

ExpressionPtr parse_name(TokenStream& tokens, bool with_namespace) {
  const Token name = tokens.take();
  ExpressionPtr made = make(Kind::kConstant, name.offset);
  if (name.text == "true" || name.text == "True") {
    made->value = true;
  } else if (name.text == "false" || name.text == "False") {
    made->value = false;
  } else if (name.text == "none" || name.text == "None") {
    made->value = Value();
  } else if (with_namespace && tokens.accept_sign(".")) {
    made->kind = Kind::kNamespaceAttribute;
    made->name = name.text;
    made->operators.push_back(tokens.expect(Token::Kind::kName, "a name").text);
  } else {
    made->kind = Kind::kName;
    made->name = name.text;
    const auto has_parameter = [&](const Macro* macro) { return std::ranges::count(macro->parameters, name.text) > 0; };
    if ((name.text == "varargs" || name.text == "kwargs") && !tokens.open_macros.empty() &&
        std::ranges::none_of(tokens.open_macros, has_parameter)) {
      throw SyntaxFailure(name.text + " of a macro is not supported", name.offset);
    }
    for (Macro* macro : tokens.open_macros) macro->uses_caller |= name.text == "caller";
  }
  return made;
}

ExpressionPtr parse_primary(TokenStream& tokens, bool with_namespace = false) {
  const size_t offset = tokens.current().offset;
  if (tokens.is(Token::Kind::kName)) return parse_name(tokens, with_namespace);
  if (tokens.is(Token::Kind::kNumber)) return parse_number(tokens);
  if (tokens.is(Token::Kind::kString)) {
    std::string text;
    while (tokens.is(Token::Kind::kString)) text += tokens.take().text;
    ExpressionPtr made = make(Kind::kConstant, offset);
    made->value = std::move(text);
    return made;
  }
  if (tokens.accept_sign("(")) {
    ExpressionPtr made = parse_tuple(tokens, true, true);
    tokens.expect_sign(")");
    return made;
  }
  if (tokens.is_sign("[")) return parse_list(tokens);
  if (tokens.is_sign("{")) return parse_mapping(tokens);
  tokens.fail_here("expected an expression");
}

ExpressionPtr parse_attribute(TokenStream& tokens, ExpressionPtr object) {
  const size_t offset = tokens.take().offset;
  if (tokens.is(Token::Kind::kNumber)) return make_of(Kind::kItem, offset, std::move(object), parse_number(tokens));
  ExpressionPtr made = make_of(Kind::kAttribute, offset, std::move(object));
  made->name = tokens.expect(Token::Kind::kName, "a name or number").text;
  return made;
}

ExpressionPtr parse_subscript(TokenStream& tokens, ExpressionPtr object) {
  const size_t offset = tokens.take().offset;
  std::vector<ExpressionPtr> indices;
  const auto ends = [&] { return tokens.is_sign("]") || tokens.is_sign(",") || tokens.is_sign(":"); };
  while (!tokens.is_sign("]")) {
    if (!indices.empty()) tokens.expect_sign(",");
    ExpressionPtr first = tokens.is_sign(":") ? nullptr : parse_expression(tokens);
    if (!tokens.accept_sign(":")) {
      indices.push_back(std::move(first));
      continue;
    }
    ExpressionPtr stop = ends() ? nullptr : parse_expression(tokens);
    ExpressionPtr step = tokens.accept_sign(":") && !ends() ? parse_expression(tokens) : nullptr;
    tokens.expect_sign("]");
    return make_of(Kind::kSlice, offset, std::move(object), std::move(first), std::move(stop), std::move(step));
  }
  tokens.take();
  auto index = indices.size() == 1 ? std::move(indices.front()) : make(Kind::kTuple, offset, std::move(indices));
  return make_of(Kind::kItem, offset, std::move(object), std::move(index));
}

ExpressionPtr parse_call(TokenStream& tokens, ExpressionPtr callee) {
  ExpressionPtr made = make_of(Kind::kCall, tokens.current().offset, std::move(callee));
  made->arguments = parse_arguments(tokens);
  return made;
}

// Attributes, subscripts and calls.
ExpressionPtr parse_postfix(TokenStream& tokens, ExpressionPtr object) {
  for (;;) {
    if (tokens.is_sign(".")) {
      object = parse_attribute(tokens, std::move(object));
    } else if (tokens.is_sign("[")) {
      object = parse_subscript(tokens, std::move(object));
    } else if (tokens.is_sign("(")) {
      object = parse_call(tokens, std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr parse_test(TokenStream& tokens, ExpressionPtr value) {
  using enum Token::Kind;
  const size_t offset = tokens.take().offset;
  const bool is_negated = tokens.accept_name("not");
  ExpressionPtr made = make_of(Kind::kTest, offset, std::move(value));
  made->name = tokens.expect(kName, "a name").text;
  const bool begins_value =
      tokens.is(kName) || tokens.is(kString) || tokens.is(kNumber) || tokens.is_sign("[") || tokens.is_sign("{");
  if (tokens.is_sign("(")) {
    made->arguments = parse_arguments(tokens);
  } else if (begins_value && !tokens.is_name("else") && !tokens.is_name("or") && !tokens.is_name("and")) {
    if (tokens.is_name("is")) tokens.fail_here("tests cannot be chained");
    made->arguments.positional.push_back(parse_postfix(tokens, parse_primary(tokens)));
  }
  return is_negated ? make_of(Kind::kNot, offset, std::move(made)) : std::move(made);
}

// One item, or a tuple of items with a comma behind each but perhaps the last.
template <class Item>
ExpressionPtr parse_items(TokenStream& tokens, std::string_view end, bool may_be_empty, Item parse_item) {
  const size_t offset = tokens.current().offset;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!tokens.is(Token::Kind::kVariableEnd) && !tokens.is(Token::Kind::kBlockEnd) && !tokens.is_sign(")") &&
         (end.empty() || !tokens.is_name(end))) {
    items.push_back(parse_item());
    if (!tokens.accept_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !may_be_empty) tokens.fail_here("expected an expression");
  return make(Kind::kTuple, offset, std::move(items));
}

ExpressionPtr parse_filters_and_tests(TokenStream& tokens, ExpressionPtr value) {
  for (;;) {
    if (tokens.is_sign("|")) {
      value = parse_filters(tokens, std::move(value));
    } else if (tokens.is_name("is")) {
      value = parse_test(tokens, std::move(value));
    } else if (tokens.is_sign("(")) {
      value = parse_call(tokens, std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr parse_unary(TokenStream& tokens, bool with_filters) {
  const DepthGuard guard;
  ExpressionPtr made;
  if (tokens.is_sign("-") || tokens.is_sign("+")) {
    const Token sign = tokens.take();
    made = make_of(sign.text == "-" ? Kind::kNegative : Kind::kPositive, sign.offset, parse_unary(tokens, false));
  } else {
    made = parse_primary(tokens);
  }
  made = parse_postfix(tokens, std::move(made));
  return with_filters ? parse_filters_and_tests(tokens, std::move(made)) : std::move(made);
}

// The binary operators, the loosest level first. Comparisons and ~ are one expression with all operands; the others
// have two, joined from left to right.
struct Level {
  Kind kind;
  std::array<std::string_view, 8> operators;
};
constexpr Level kLevels[] = {
    {Kind::kOr, {"or"}},
    {Kind::kAnd, {"and"}},
    {Kind::kCompare, {"==", "!=", "<", "<=", ">", ">=", "in", "not in"}},
    {Kind::kBinary, {"+", "-"}},
    {Kind::kConcat, {"~"}},
    {Kind::kBinary, {"*", "/", "//", "%"}},
};

// Skips an operator of this level; empty: there is none.
std::string take_operator(TokenStream& tokens, const Level& level) {
  if (level.kind == Kind::kCompare && tokens.is_name("not") && tokens.is_followed_by(Token::Kind::kName, "in")) {
    tokens.take();
    return "not " + tokens.take().text;
  }
  for (const std::string_view op : level.operators) {
    if (tokens.is_sign(op) || tokens.is_name(op)) return tokens.take().text;
  }
  return {};
}

ExpressionPtr parse_level(TokenStream& tokens, const Level* level) {
  if (level == std::end(kLevels)) return parse_unary(tokens, true);
  const size_t offset = tokens.current().offset;
  const bool is_chain = level->kind == Kind::kCompare || level->kind == Kind::kConcat;
  if (level->kind == Kind::kCompare && tokens.accept_name("not")) {
    const DepthGuard guard;
    return make_of(Kind::kNot, offset, parse_level(tokens, level));
  }
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> operators;
  operands.push_back(parse_level(tokens, level + 1));
  for (;;) {
    const size_t at = tokens.current().offset;
    operators.push_back(take_operator(tokens, *level));
    if (operators.back().empty()) break;
    operands.push_back(parse_level(tokens, level + 1));
    if (is_chain) continue;
    ExpressionPtr left = make(level->kind, at, std::exchange(operands, {}));
    left->name = operators.back();
    operands.push_back(std::move(left));
  }
  if (operands.size() == 1) return std::move(operands.front());
  ExpressionPtr made = make(level->kind, offset, std::move(operands));
  operators.pop_back();
  made->operators = std::move(operators);
  return made;
}

}  // namespace

ExpressionPtr parse_expression(TokenStream& tokens, bool with_condition) {
  const DepthGuard guard(kLevelsOfExpression);
  ExpressionPtr value = parse_level(tokens, kLevels);
  while (with_condition && tokens.is_name("if")) {
    const size_t offset = tokens.take().offset;
    ExpressionPtr condition = parse_level(tokens, kLevels);
    ExpressionPtr otherwise = tokens.accept_name("else") ? parse_expression(tokens) : nullptr;
    value = make_of(Kind::kConditional, offset, std::move(condition), std::move(value), std::move(otherwise));
  }
  return value;
}

ExpressionPtr parse_filters(TokenStream& tokens, ExpressionPtr value, bool first_is_bare) {
  while (std::exchange(first_is_bare, false) || tokens.accept_sign("|")) {
    const Token name = tokens.expect(Token::Kind::kName, "a name");
    value = make_of(Kind::kFilter, name.offset, std::move(value));
    value->name = name.text;
    if (tokens.is_sign("(")) value->arguments = parse_arguments(tokens);
  }
  return value;
}

ExpressionPtr parse_tuple(TokenStream& tokens, bool with_condition, bool in_brackets) {
  return parse_items(tokens, {}, in_brackets, [&] { return parse_expression(tokens, with_condition); });
}

ExpressionPtr parse_target(TokenStream& tokens, std::string_view end, bool with_namespace) {
  ExpressionPtr target = parse_items(tokens, end, false, [&] { return parse_primary(tokens, with_namespace); });
  const auto can_assign = [](const auto& self, const Expression& part) -> bool {
    if (part.kind == Kind::kNamespaceAttribute || part.kind == Kind::kName) return true;
    return part.kind == Kind::kTuple &&
           std::ranges::all_of(part.operands, [&](const auto& inner) { return self(self, *inner); });
  };
  if (!can_assign(can_assign, *target)) throw SyntaxFailure("cannot assign to that", target->offset);
  return target;
}

}  // namespace pinion::jinja
