// A parsed template: trees of statements and expressions.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

// `source` is normalized (jinja.h). Throws a SyntaxFailure.
Body parse(const std::string& source);

// Runs a template (interpreter.cpp). If it throws, `offset` is that of the code that failed.
using Variables = std::vector<std::pair<std::string, Value>>;
std::string render(const Body& body, Variables variables, size_t* offset);

}  // namespace pinion::jinja
