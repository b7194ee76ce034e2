// A parsed template: trees of statements and expressions. Its tokens, and the parser.
#pragma once

#include <algorithm>

#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

struct SyntaxFailure : Failure {
  SyntaxFailure(const std::string& message, size_t at) : Failure(message), offset(at) {}
  size_t offset;
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr all_positional, all_named;  // *x and **x
};

struct Expression {
  enum class Kind {
    kConstant,            // value
    kName,                // name
    kList,                // operands
    kTuple,               // operands
    kMapping,             // operands: key, value, key, value, ...
    kConditional,         // operands: condition, value if true, value if false (may be null)
    kAnd,                 // operands: left, right
    kOr,                  // operands: left, right
    kNot,                 // operands: one
    kCompare,             // operands: first, second, ...; operators between them
    kConcat,              // operands
    kBinary,              // operands: left, right; name: the operator
    kNegative,            // operands: one
    kPositive,            // operands: one
    kAttribute,           // operands: object; name: the attribute
    kItem,                // operands: object, index
    kSlice,               // operands: object, start, stop, step (each may be null)
    kCall,                // operands: callee; arguments
    kFilter,              // operands: value (null: the text of a filtered block); name; arguments
    kTest,                // operands: value; name; arguments
    kNamespaceAttribute,  // target of an assignment only; name: the variable, operators[0]: the attribute
  };
  Kind kind;
  size_t offset = 0;  // in the source, bytes
  std::string name = {};
  Value value = {};
  std::vector<ExpressionPtr> operands = {};
  std::vector<std::string> operators = {};
  CallArguments arguments = {};
  int depth = 1;  // levels of this tree
};

struct Statement;
using Body = std::vector<Statement>;

// A macro, or the body of a {% call %} block, which the called macro runs as caller().
struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  bool uses_caller = false;  // the body contains the name `caller`
};

struct Statement {
  enum class Kind {
    kText,         // text
    kPrint,        // expressions: one
    kIf,           // expressions: conditions; bodies: one each, then perhaps that of else
    kFor,          // target; expressions: iterable, condition (may be null); bodies: loop, else
    kSet,          // target; expressions: value
    kSetBlock,     // target; expressions: filters (may be null); bodies: one
    kWith,         // targets; expressions: their values; bodies: one
    kMacro,        // macro
    kCallBlock,    // macro: the caller; expressions: the call
    kFilterBlock,  // expressions: filters; bodies: one
    kScope,        // bodies: one
    kBreak,
    kContinue,
  };
  Kind kind;
  size_t offset = 0;
  std::string text = {};
  ExpressionPtr target = {};
  std::vector<ExpressionPtr> targets = {};
  std::vector<ExpressionPtr> expressions = {};
  std::vector<Body> bodies = {};
  std::shared_ptr<const Macro> macro = {};
};

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
  bool is(Token::Kind kind) const { return current().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(Token::Kind::kSign) && current().text == sign; }
  bool is_name(std::string_view name) const { return is(Token::Kind::kName) && current().text == name; }
  bool is_followed_by(Token::Kind kind, std::string_view text) const {
    const Token& next = tokens_[std::min(at_ + 1, tokens_.size() - 1)];
    return next.kind == kind && next.text == text;
  }
  Token take() {
    Token token = current();
    if (token.kind != Token::Kind::kEnd) ++at_;
    return token;
  }
  // Skip the token if it is current.
  bool accept_sign(std::string_view sign) { return is_sign(sign) ? (++at_, true) : false; }
  bool accept_name(std::string_view name) { return is_name(name) ? (++at_, true) : false; }
  // Fail if it is not.
  void expect_sign(std::string_view sign) {
    if (!accept_sign(sign)) fail_here("expected '" + std::string(sign) + "'");
  }
  void expect_name(std::string_view name) {
    if (!accept_name(name)) fail_here("expected '" + std::string(name) + "'");
  }
  Token expect(Token::Kind kind, const char* description) {
    if (!is(kind)) fail_here("expected " + std::string(description));
    return take();
  }
  // Calls take_item() for each of the items that stand between commas, up to the sign `close`, which is skipped.
  template <class Item>
  void take_list(std::string_view close, Item take_item) {
    while (!is_sign(close)) {
      take_item();
      if (!is_sign(close)) expect_sign(",");
    }
    take();
  }
  // Adds the current token.
  [[noreturn]] void fail_here(const std::string& message) const {
    using enum Token::Kind;
    const Token& token = current();
    std::string found = "'" + token.text + "'";
    if (token.kind == kEnd) found = "the end of the template";
    if (token.kind == kVariableEnd || token.kind == kBlockEnd) found = "the end of the tag";
    if (token.kind == kString) found = "a string";
    throw SyntaxFailure(message + ", got " + found, token.offset);
  }

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
// Applies the filters after |, if any, to `value`. `first_is_bare`: no | stands before the first one.
ExpressionPtr parse_filters(TokenStream& tokens, ExpressionPtr value, bool first_is_bare = false);

// `source` is normalized (jinja.h). Throws a SyntaxFailure.
Body parse(const std::string& source);

// Runs a template (interpreter.cpp). If it throws, `offset` is that of the code that failed.
using Variables = std::vector<std::pair<std::string, Value>>;
std::string render(const Body& body, Variables variables, size_t* offset);

}  // namespace pinion::jinja
