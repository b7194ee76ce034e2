// Grammars of JSON values in the spelling of a form of tool calls, as text in XGrammar's EBNF.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/answers/tool_formats.h"

namespace pinion {

struct CallSpelling {
  ToolBody body;
  bool is_raw;       // strings have no quotes
  std::string mark;  // kBraces: around strings
};

std::string in_quotes(std::string_view text);  // as a literal of a grammar
bool is_name(char c);                          // a character of the names of rules

// Rules that replace the library's rules of the same names.
std::string basic_rules();

// Renames a printed grammar's rules, except basic ones, and respells literals. keeps_basic: returns only basic rules.
std::string respell(std::string_view grammar, const std::string& prefix, bool keeps_basic,
                    const CallSpelling& spelling);

}  // namespace pinion
