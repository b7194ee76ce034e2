// Cuts a template into tokens, with trim_blocks and lstrip_blocks as transformers sets them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pinion::jinja {

struct Token {
  enum class Kind { kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd, kName, kString, kNumber, kSign, kEnd };
  Kind kind;
  std::string text;  // of a string what it means; of a number without underscores
  size_t place;      // where it begins in the source
};

// What tokens are taken from: line ends are \n, and one at the end of the source is left out.
std::string normalized_source(std::string_view source);

// Ends with a token of kind kEnd. Throws a SyntaxFailure.
std::vector<Token> tokenize(const std::string& source);

}  // namespace pinion::jinja
