// Rewrites the sources of grammars, JSON schemas and regular expressions, so that XGrammar reads them as their authors
// mean them. The library silently ignores keywords and takes unknown escapes for letters; here they are errors.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

// json_schema.cpp

// Makes explicit what a JSON schema (json-schema.org, draft 2020-12) leaves open. As in OpenAI's structured outputs an
// object that lists properties has no others, while an object without a list and an array without items may hold
// anything. Dates and times become patterns that respect the length of months. Errors: invalid JSON, and each keyword,
// format or combination that the grammar would not enforce. `where` names the schema.
Error complete_schema(std::string_view text, const std::string& where, std::string* out);

// schema_strings.cpp

using Schema = nlohmann::ordered_json;  // the grammar keeps the order of properties

// Replaces pattern, minLength, maxLength and, if XGrammar's own is too loose, format of a schema by one pattern of the
// string as JSON spells it. Errors: unsupported keywords or combinations.
Error replace_string_keywords(Schema& schema, const std::string& where);

// Removes the maximum lengths from a completed schema; returns whether there was one.
bool drop_max_lengths(Schema& schema);

// schema_branches.cpp

// The schema that a chain of $ref leads to, or the schema itself; null: unresolved.
using ResolveReference = std::function<const Schema*(const Schema& schema)>;

// True if types, constants and required properties prove that no value matches two of the branches (a list of schemas).
// Then oneOf equals anyOf.
bool are_disjoint(const Schema& branches, const ResolveReference& resolve);

// pattern.cpp

// Translates the pattern of a JSON schema, which may match any substring, into one of the whole string as JSON spells
// it: quotes, backslashes, line ends, tabs, \f and \b become escapes. Other control characters are excluded, and for \s
// blanks beyond ASCII. So the result matches a subset of the strings, never others. Errors: unsupported syntax, such as
// ^ and $ elsewhere than at the ends of a top-level alternative. `where` names the pattern.
Error escape_pattern(std::string_view pattern, const std::string& where, std::string* out);

// Matches JSON strings with a length in characters within `bounds`, "2,5" or "2,".
std::string length_pattern(const std::string& bounds);

// Turns length_pattern("2,5") into length_pattern("2,"); returns false for any other pattern.
bool drop_max_length(std::string* pattern);

// Translates a pattern of a whole text. A dot does not match a line end, as in other regex libraries. Errors: as above.
Error plain_pattern(std::string_view pattern, const std::string& where, std::string* out);

}  // namespace pinion
