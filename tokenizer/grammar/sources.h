// Rewrites the sources of grammars, JSON schemas and regular expressions, so that XGrammar reads them as their authors
// mean them. The library silently ignores unknown keywords and reads unknown escapes as letters; here both are errors.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "kernels/base/error.h"
#include "tokenizer/answers/tool_formats.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// json_schema.cpp

// Makes the defaults of a JSON schema (json-schema.org, draft 2020-12) explicit. As in OpenAI's structured outputs, an
// object that lists properties has no others; an object without a list and an array without items may hold anything.
// Dates and times become patterns that respect the length of months. Errors: invalid JSON, and each keyword, format or
// combination that the grammar would not enforce. `where` names the schema.
Error complete_schema(std::string_view text, const std::string& where, std::string* out);

using Schema = nlohmann::ordered_json;  // the grammar keeps the order of properties

// One of the schemas that a value has to match, an object, and its path for errors.
struct SchemaPart {
  const Schema* schema;
  std::string where;
  bool is_outer = true;  // no keyword around it applies to the same value, except $ref
};

using Parts = std::span<const SchemaPart>;

// The functions complete_...() write one schema of one type that matches the values that all `parts` match; `false` if
// there are none. Errors: wrong types of keywords, and combinations that the grammar cannot express.
constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();

// The largest minimum and the smallest maximum of a count, such as minItems and maxItems.
Error read_counts(Parts parts, const char* min_name, const char* max_name, int64_t* min, int64_t* max);

// schema_values.cpp

// The target of a $ref within the document; null if there is none.
const Schema* find_reference(const Schema& root, std::string_view reference);
bool is_of_type(const Schema& value, const Schema& type);
// True if a value of an enum or const matches a schema. Keywords that are not known constrain nothing.
bool matches_schema(const Schema& root, const Schema& value, const Schema& schema, int depth = 0);

// schema_scalars.cpp

Error complete_number(Parts parts, bool is_integer, Schema* out);

// pattern, minLength, maxLength and format become one pattern of the JSON string, except for strict enough formats.
Error complete_string(Parts parts, Schema* out);

void add_once(const std::string& text, std::vector<std::string>* out);

// The pattern of a completed string; of any string if it has none.
std::string key_pattern(const Schema& string);

// Removes the maximum lengths from a completed schema, or all but those (counter_of); returns whether there was one.
bool drop_max_lengths(Schema& schema, bool is_counter);

// schema_values.cpp

// Follows the $ref of a completed schema; returns the schema itself if it has none.
using ResolveReference = std::function<const Schema&(const Schema& schema)>;

// The $comment of a completed schema whose type follows from its keywords: by the standard, other types match it too.
constexpr char kAnyTypeComment[] = "any type";

// True if types, constants and required properties prove that no value matches two branches: oneOf equals anyOf then.
bool are_disjoint(const Schema& branches, const ResolveReference& resolve);

// pattern.cpp

// Translates the pattern of a JSON schema, which may match any substring, into one of the whole string as it is written
// in JSON: quotes, backslashes, line ends, tabs, \f and \b become escapes. The result matches no other strings, but
// fewer ones: other control characters are excluded, and \s matches ASCII white space only. Lookaheads behind the first
// ^ become further lines (hooks.h). Errors: unsupported syntax, such as ^ and $ elsewhere than at the ends of a
// top-level alternative. `where` names the pattern.
Error escape_pattern(std::string_view pattern, const std::string& where, std::string* out);

// A pattern that matches nothing but `text`.
std::string regex_escaped(std::string_view text);

// Pattern of JSON strings of a length in characters, "2,5" or "2,". is_line: one of several lines.
std::string length_pattern(const std::string& bounds, bool is_line = false);

// Turns length_pattern("2,5") into length_pattern("2,"), and drops it as the last of several lines.
std::string without_max_length(const std::string& pattern);

// The last of several lines: a length_pattern(), which no string with kCounterMark matches.
std::string counter_of(const std::string& pattern);
constexpr char kCounterMark[] = "\x7F";

// Translates a pattern of a whole text that is not in JSON. A dot does not match \n. Errors: as above.
Error plain_pattern(std::string_view pattern, const std::string& where, std::string* out);

// call_spelling.cpp: grammars of JSON values in the spelling of a form of tool calls, as text in XGrammar's EBNF.

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

// tool_grammar.cpp

// Makes the grammar of the calls of tools: JSON {"format": ToolFormat, "is_forced": bool, "tools": {NAME: schema}}
// becomes {"grammar": EBNF, "counter": EBNF of the maximum lengths or "", "marks": {special token: id}, "is_json":
// bool, "loose": [NAME]}. Loose tools have schemas that the grammar cannot express; their arguments may be any object.
Error complete_calls(std::string_view text, const Tokenizer& tokenizer, std::string* out);

}  // namespace pinion
