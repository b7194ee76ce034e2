// A parsed template: expressions and statements as plain trees.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

struct SyntaxFailure : Failure {
  SyntaxFailure(const std::string& message, size_t at) : Failure(message), place(at) {}
  size_t place;
};

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
  ExpressionPointer all_positional, all_named;  // *x and **x
};

struct Expression {
  enum class Kind {
    kConstant,     // value
    kName,         // text
    kList,         // parts
    kTuple,        // parts
    kMapping,      // parts: key, value, key, value
    kConditional,  // parts: condition, if true, if false (may be null)
    kAnd,          // parts: left, right
    kOr,           // parts: left, right
    kNot,          // parts: one
    kCompare,      // parts: first, second, ...; signs between them
    kConcat,       // parts
    kBinary,       // parts: left, right; text: the sign
    kNegative,     // parts: one
    kPositive,     // parts: one
    kAttribute,    // parts: of what; text: the name
    kItem,         // parts: of what, index
    kSlice,        // parts: of what, start, stop, step (each may be null)
    kCall,         // parts: what; arguments
    kFilter,       // parts: of what (null: of a block's text); text: the name; arguments
    kTest,         // parts: of what; text: the name; arguments
    kMember,       // as a target only; text: a namespace's name, signs: the attribute
  };
  Kind kind;
  size_t place = 0;  // in the source
  std::string text = {};
  Value value = {};
  std::vector<ExpressionPointer> parts = {};
  std::vector<std::string> signs = {};
  CallArguments arguments = {};
  int depth = 1;  // of this tree
};

struct Signature {
  std::vector<std::string> names;
  std::vector<ExpressionPointer> defaults;  // of the last ones
};

struct Statement;
using Body = std::vector<Statement>;

// What a macro or the body of a call does with what its caller gives.
struct Macro {
  std::string name;
  Signature signature;
  Body body;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
};

struct Statement {
  enum class Kind {
    kText,         // text
    kPrint,        // expressions
    kIf,           // expressions: conditions; branches: a body for each, and perhaps one for else
    kFor,          // target; expressions: what, condition (may be null); branches: body, else; is_recursive
    kSet,          // target; expressions: value
    kSetBlock,     // target; expressions: filters (may be null); branches: body
    kWith,         // targets; expressions: their values; branches: body
    kMacro,        // macro
    kCallBlock,    // macro: the caller; expressions: the call
    kFilterBlock,  // expressions: filters; branches: body
    kScope,        // branches: body
    kBreak,
    kContinue,
  };
  Kind kind;
  size_t place = 0;
  std::string text = {};
  ExpressionPointer target = {};
  std::vector<ExpressionPointer> targets = {};
  std::vector<ExpressionPointer> expressions = {};
  std::vector<Body> branches = {};
  std::shared_ptr<const Macro> macro = {};
  bool is_recursive = false;
};

// `source` is normalized (lexer.h). Throws a SyntaxFailure.
Body parse(const std::string& source);

}  // namespace pinion::jinja
