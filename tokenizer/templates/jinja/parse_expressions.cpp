// Expressions, see parser.h.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tokenizer/templates/jinja/parser.h"

namespace pinion::jinja {
namespace {

using Kind = Expression::Kind;

constexpr int kMostDepth = 500;  // of a tree: without brackets, one that leans to the left
constexpr int kLevels = 4;       // of Depth, for the functions between an expression and one in brackets inside it

}  // namespace

Token TokenStream::take() {
  Token token = current();
  if (token.kind != Token::Kind::kEnd) ++at_;
  return token;
}

bool TokenStream::take_sign(std::string_view sign) {
  const bool found = sees_sign(sign);
  if (found) ++at_;
  return found;
}

bool TokenStream::take_name(std::string_view name) {
  const bool found = sees_name(name);
  if (found) ++at_;
  return found;
}

void TokenStream::need_sign(std::string_view sign) {
  if (!take_sign(sign)) refuse("expected '" + std::string(sign) + "'");
}

void TokenStream::need_name(std::string_view name) {
  if (!take_name(name)) refuse("expected '" + std::string(name) + "'");
}

Token TokenStream::need(Token::Kind kind, const char* what) {
  if (!sees(kind)) refuse("expected " + std::string(what));
  return take();
}

void TokenStream::refuse(const std::string& message) const {
  using enum Token::Kind;
  const Token& token = current();
  std::string found = "'" + token.text + "'";
  if (token.kind == kEnd) found = "the end of the template";
  if (token.kind == kVariableEnd || token.kind == kBlockEnd) found = "the end of the tag";
  if (token.kind == kString) found = "a string";
  throw SyntaxFailure(message + ", got " + found, token.place);
}

void TokenStream::refuse_token() const { refuse("expected an expression"); }

ExpressionPointer ExpressionParser::make(Kind kind, size_t place, std::vector<ExpressionPointer> parts) const {
  auto made = std::make_unique<Expression>(Expression{.kind = kind, .place = place});
  for (const ExpressionPointer& part : parts) {
    if (part) made->depth = std::max(made->depth, part->depth + 1);
  }
  if (made->depth > kMostDepth) throw SyntaxFailure("an expression nests too deep", place);
  made->parts = std::move(parts);
  return made;
}

ExpressionPointer ExpressionParser::pair(Kind kind, size_t place, ExpressionPointer left,
                                         ExpressionPointer right) const {
  std::vector<ExpressionPointer> parts;
  parts.push_back(std::move(left));
  if (right) parts.push_back(std::move(right));
  return make(kind, place, std::move(parts));
}

ExpressionPointer ExpressionParser::parse_expression(bool with_condition) {
  const Depth guard(kLevels);
  return with_condition ? parse_conditional() : parse_or();
}

ExpressionPointer ExpressionParser::parse_conditional() {
  ExpressionPointer value = parse_or();
  while (tokens_.sees_name("if")) {
    const size_t place = tokens_.take().place;
    std::vector<ExpressionPointer> parts;
    parts.push_back(parse_or());
    parts.push_back(std::move(value));
    parts.push_back(tokens_.take_name("else") ? parse_expression() : nullptr);
    value = make(Kind::kConditional, place, std::move(parts));
  }
  return value;
}

ExpressionPointer ExpressionParser::parse_joined(std::string_view word, Kind kind, Level next) {
  ExpressionPointer left = (this->*next)();
  while (tokens_.sees_name(word)) {
    const size_t place = tokens_.take().place;
    left = pair(kind, place, std::move(left), (this->*next)());
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_joined(std::initializer_list<std::string_view> signs, Level next) {
  ExpressionPointer left = (this->*next)();
  while (std::ranges::any_of(signs, [&](std::string_view sign) { return tokens_.sees_sign(sign); })) {
    const Token sign = tokens_.take();
    left = pair(Kind::kBinary, sign.place, std::move(left), (this->*next)());
    left->text = sign.text;
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_or() { return parse_joined("or", Kind::kOr, &ExpressionParser::parse_and); }

ExpressionPointer ExpressionParser::parse_and() {
  return parse_joined("and", Kind::kAnd, &ExpressionParser::parse_not);
}

ExpressionPointer ExpressionParser::parse_not() {
  if (!tokens_.sees_name("not")) return parse_compare();
  const Depth guard;
  const size_t place = tokens_.take().place;
  return pair(Kind::kNot, place, parse_not(), nullptr);
}

ExpressionPointer ExpressionParser::parse_compare() {
  const size_t place = tokens_.current().place;
  std::vector<ExpressionPointer> parts;
  std::vector<std::string> signs;
  parts.push_back(parse_sum());
  for (;; parts.push_back(parse_sum())) {
    const Token& token = tokens_.current();
    static constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
    if (token.kind == Token::Kind::kSign && std::ranges::count(kSigns, token.text) > 0) {
      signs.push_back(tokens_.take().text);
    } else if (tokens_.take_name("in")) {
      signs.emplace_back("in");
    } else if (tokens_.sees_name("not") && tokens_.following().kind == Token::Kind::kName &&
               tokens_.following().text == "in") {
      tokens_.take();
      tokens_.take();
      signs.emplace_back("not in");
    } else {
      break;
    }
  }
  if (signs.empty()) return std::move(parts.front());
  ExpressionPointer made = make(Kind::kCompare, place, std::move(parts));
  made->signs = std::move(signs);
  return made;
}

ExpressionPointer ExpressionParser::parse_sum() { return parse_joined({"+", "-"}, &ExpressionParser::parse_concat); }

ExpressionPointer ExpressionParser::parse_concat() {
  const size_t place = tokens_.current().place;
  std::vector<ExpressionPointer> parts;
  do {
    parts.push_back(parse_product());
  } while (tokens_.take_sign("~"));
  return parts.size() == 1 ? std::move(parts.front()) : make(Kind::kConcat, place, std::move(parts));
}

ExpressionPointer ExpressionParser::parse_product() {
  return parse_joined({"*", "/", "//", "%"}, &ExpressionParser::parse_power);
}

ExpressionPointer ExpressionParser::parse_power() {
  ExpressionPointer left = parse_unary();
  while (tokens_.sees_sign("**")) {
    const Token sign = tokens_.take();
    left = pair(Kind::kBinary, sign.place, std::move(left), parse_unary());
    left->text = sign.text;
  }
  return left;
}

ExpressionPointer ExpressionParser::parse_unary(bool with_filters) {
  const Depth guard;
  ExpressionPointer made;
  if (tokens_.sees_sign("-") || tokens_.sees_sign("+")) {
    const Token sign = tokens_.take();
    made = pair(sign.text == "-" ? Kind::kNegative : Kind::kPositive, sign.place, parse_unary(false), nullptr);
  } else {
    made = parse_primary();
  }
  made = parse_postfix(std::move(made));
  return with_filters ? parse_filters_and_tests(std::move(made)) : std::move(made);
}

ExpressionPointer ExpressionParser::parse_primary(bool with_namespace) {
  const size_t place = tokens_.current().place;
  if (tokens_.sees(Token::Kind::kName)) return parse_name(with_namespace);
  if (tokens_.sees(Token::Kind::kNumber)) return parse_number();
  if (tokens_.sees(Token::Kind::kString)) {
    std::string text;
    while (tokens_.sees(Token::Kind::kString)) text += tokens_.take().text;
    ExpressionPointer made = make(Kind::kConstant, place, {});
    made->value = std::move(text);
    return made;
  }
  if (tokens_.take_sign("(")) {
    ExpressionPointer made = parse_tuple(true, {}, true);
    tokens_.need_sign(")");
    return made;
  }
  if (tokens_.sees_sign("[")) return parse_list();
  if (tokens_.sees_sign("{")) return parse_mapping();
  tokens_.refuse_token();
}

ExpressionPointer ExpressionParser::parse_name(bool with_namespace) {
  const Token name = tokens_.take();
  ExpressionPointer made = make(Kind::kConstant, name.place, {});
  if (name.text == "true" || name.text == "True") {
    made->value = true;
  } else if (name.text == "false" || name.text == "False") {
    made->value = false;
  } else if (name.text == "none" || name.text == "None") {
    made->value = Value();
  } else if (with_namespace && tokens_.take_sign(".")) {
    made->kind = Kind::kMember;
    made->text = name.text;
    made->signs.push_back(tokens_.need(Token::Kind::kName, "a name").text);
  } else {
    made->kind = Kind::kName;
    made->text = name.text;
    for (Macro* macro : open_macros) {
      macro->uses_varargs |= name.text == "varargs";
      macro->uses_kwargs |= name.text == "kwargs";
      macro->uses_caller |= name.text == "caller";
    }
  }
  return made;
}

ExpressionPointer ExpressionParser::parse_number() {
  const Token token = tokens_.take();
  ExpressionPointer made = make(Kind::kConstant, token.place, {});
  const char second = token.text.size() > 1 ? static_cast<char>(token.text[1] | 0x20) : '\0';
  const int base = second == 'x' ? 16 : (second == 'o' ? 8 : (second == 'b' ? 2 : 10));
  if (base == 10 && token.text.find_first_of(".eE") != std::string::npos) {
    made->value = std::strtod(token.text.c_str(), nullptr);
    return made;
  }
  errno = 0;
  const long long number = std::strtoll(token.text.c_str() + (base == 10 ? 0 : 2), nullptr, base);
  if (errno != 0) throw SyntaxFailure("a number is too large", token.place);
  made->value = static_cast<int64_t>(number);
  return made;
}

ExpressionPointer ExpressionParser::parse_tuple(bool with_condition, std::string_view end, bool in_brackets) {
  const size_t place = tokens_.current().place;
  const auto ends = [&] {
    return tokens_.sees(Token::Kind::kVariableEnd) || tokens_.sees(Token::Kind::kBlockEnd) || tokens_.sees_sign(")") ||
           (!end.empty() && tokens_.sees_name(end));
  };
  std::vector<ExpressionPointer> parts;
  bool is_tuple = false;
  while (!ends()) {
    parts.push_back(parse_expression(with_condition));
    if (!tokens_.take_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts.front());
  if (!is_tuple && !in_brackets) tokens_.refuse_token();
  return make(Kind::kTuple, place, std::move(parts));
}

ExpressionPointer ExpressionParser::parse_list() {
  const size_t place = tokens_.take().place;
  std::vector<ExpressionPointer> parts;
  while (!tokens_.sees_sign("]")) {
    if (!parts.empty()) tokens_.need_sign(",");
    if (tokens_.sees_sign("]")) break;
    parts.push_back(parse_expression());
  }
  tokens_.need_sign("]");
  return make(Kind::kList, place, std::move(parts));
}

ExpressionPointer ExpressionParser::parse_mapping() {
  const size_t place = tokens_.take().place;
  std::vector<ExpressionPointer> parts;
  while (!tokens_.sees_sign("}")) {
    if (!parts.empty()) tokens_.need_sign(",");
    if (tokens_.sees_sign("}")) break;
    parts.push_back(parse_expression());
    tokens_.need_sign(":");
    parts.push_back(parse_expression());
  }
  tokens_.need_sign("}");
  return make(Kind::kMapping, place, std::move(parts));
}

ExpressionPointer ExpressionParser::parse_target(std::string_view end, bool with_namespace) {
  ExpressionPointer target = parse_targets(end, with_namespace);
  const auto can_assign = [](const auto& self, const Expression& part) -> bool {
    if (part.kind == Kind::kMember || part.kind == Kind::kName) return true;
    return part.kind == Kind::kTuple && std::ranges::all_of(part.parts, [&](const auto& p) { return self(self, *p); });
  };
  if (!can_assign(can_assign, *target)) throw SyntaxFailure("cannot assign to that", target->place);
  return target;
}

ExpressionPointer ExpressionParser::parse_targets(std::string_view end, bool with_namespace) {
  const size_t place = tokens_.current().place;
  std::vector<ExpressionPointer> parts;
  bool is_tuple = false;
  while (!tokens_.sees(Token::Kind::kBlockEnd) && !tokens_.sees_sign(")") &&
         !(!end.empty() && tokens_.sees_name(end))) {
    parts.push_back(parse_primary(with_namespace));
    if (!tokens_.take_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !parts.empty()) return std::move(parts.front());
  if (!is_tuple) tokens_.refuse_token();
  return make(Kind::kTuple, place, std::move(parts));
}

}  // namespace pinion::jinja
