// What stands behind an expression, see parser.h: attributes, indices, calls, filters, tests.
#include <algorithm>

#include "tokenizer/templates/jinja/parser.h"

namespace pinion::jinja {

using Kind = Expression::Kind;

ExpressionPointer ExpressionParser::parse_postfix(ExpressionPointer of) {
  for (;;) {
    if (tokens_.sees_sign(".")) {
      of = parse_attribute(std::move(of));
    } else if (tokens_.sees_sign("[")) {
      of = parse_subscript(std::move(of));
    } else if (tokens_.sees_sign("(")) {
      of = parse_call(std::move(of));
    } else {
      return of;
    }
  }
}

ExpressionPointer ExpressionParser::parse_filters_and_tests(ExpressionPointer of) {
  for (;;) {
    if (tokens_.sees_sign("|")) {
      of = parse_filters(std::move(of));
    } else if (tokens_.sees_name("is")) {
      of = parse_test(std::move(of));
    } else if (tokens_.sees_sign("(")) {
      of = parse_call(std::move(of));
    } else {
      return of;
    }
  }
}

ExpressionPointer ExpressionParser::parse_attribute(ExpressionPointer of) {
  const size_t place = tokens_.take().place;
  if (tokens_.sees(Token::Kind::kNumber)) return pair(Kind::kItem, place, std::move(of), parse_number());
  ExpressionPointer made = pair(Kind::kAttribute, place, std::move(of), nullptr);
  made->text = tokens_.need(Token::Kind::kName, "a name or number").text;
  return made;
}

ExpressionPointer ExpressionParser::parse_subscript(ExpressionPointer of) {
  const size_t place = tokens_.take().place;
  std::vector<ExpressionPointer> slice, indices;
  const auto ends = [&] { return tokens_.sees_sign("]") || tokens_.sees_sign(",") || tokens_.sees_sign(":"); };
  while (!tokens_.sees_sign("]")) {
    if (!indices.empty()) tokens_.need_sign(",");
    ExpressionPointer first = tokens_.sees_sign(":") ? nullptr : parse_expression();
    if (!tokens_.take_sign(":")) {
      indices.push_back(std::move(first));
      continue;
    }
    slice.push_back(std::move(of));
    slice.push_back(std::move(first));
    slice.push_back(ends() ? nullptr : parse_expression());
    slice.push_back(tokens_.take_sign(":") && !ends() ? parse_expression() : nullptr);
    tokens_.need_sign("]");
    return make(Kind::kSlice, place, std::move(slice));
  }
  tokens_.need_sign("]");
  ExpressionPointer index =
      indices.size() == 1 ? std::move(indices.front()) : make(Kind::kTuple, place, std::move(indices));
  return pair(Kind::kItem, place, std::move(of), std::move(index));
}

CallArguments ExpressionParser::parse_arguments() {
  CallArguments arguments;
  tokens_.need_sign("(");
  const auto allow = [&](bool allowed) {
    if (!allowed) tokens_.refuse("arguments of a call in a wrong order");
  };
  for (bool is_first = true; !tokens_.sees_sign(")"); is_first = false) {
    if (!is_first) tokens_.need_sign(",");
    if (tokens_.sees_sign(")")) break;
    if (tokens_.take_sign("*")) {
      allow(!arguments.all_positional && !arguments.all_named);
      arguments.all_positional = parse_expression();
    } else if (tokens_.take_sign("**")) {
      allow(!arguments.all_named);
      arguments.all_named = parse_expression();
    } else if (tokens_.sees(Token::Kind::kName) && tokens_.following().kind == Token::Kind::kSign &&
               tokens_.following().text == "=") {
      allow(!arguments.all_named);
      const std::string name = tokens_.take().text;
      tokens_.take();
      arguments.named.emplace_back(name, parse_expression());
    } else {
      allow(!arguments.all_positional && !arguments.all_named && arguments.named.empty());
      arguments.positional.push_back(parse_expression());
    }
  }
  tokens_.need_sign(")");
  return arguments;
}

ExpressionPointer ExpressionParser::parse_call(ExpressionPointer of) {
  ExpressionPointer made = pair(Kind::kCall, tokens_.current().place, std::move(of), nullptr);
  made->arguments = parse_arguments();
  return made;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = tokens_.need(Token::Kind::kName, "a name").text;
  while (tokens_.take_sign(".")) name += "." + tokens_.need(Token::Kind::kName, "a name").text;
  return name;
}

ExpressionPointer ExpressionParser::parse_filters(ExpressionPointer of, bool inline_first) {
  while (tokens_.sees_sign("|") || inline_first) {
    if (!inline_first) tokens_.take();
    inline_first = false;
    std::vector<ExpressionPointer> parts;
    const size_t place = tokens_.current().place;
    parts.push_back(std::move(of));
    of = make(Kind::kFilter, place, std::move(parts));
    of->text = parse_dotted_name();
    if (tokens_.sees_sign("(")) of->arguments = parse_arguments();
  }
  return of;
}

ExpressionPointer ExpressionParser::parse_test(ExpressionPointer of) {
  using enum Token::Kind;
  const size_t place = tokens_.take().place;
  const bool is_negated = tokens_.take_name("not");
  ExpressionPointer made = pair(Kind::kTest, place, std::move(of), nullptr);
  made->text = parse_dotted_name();
  const Token& next = tokens_.current();
  const bool begins_value = next.kind == kName || next.kind == kString || next.kind == kNumber ||
                            tokens_.sees_sign("[") || tokens_.sees_sign("{");
  if (tokens_.sees_sign("(")) {
    made->arguments = parse_arguments();
  } else if (begins_value && !tokens_.sees_name("else") && !tokens_.sees_name("or") && !tokens_.sees_name("and")) {
    if (tokens_.sees_name("is")) tokens_.refuse("tests cannot be chained");
    made->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  return is_negated ? pair(Kind::kNot, place, std::move(made), nullptr) : std::move(made);
}

}  // namespace pinion::jinja
