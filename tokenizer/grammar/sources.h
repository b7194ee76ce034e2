// Rewrites the sources of grammars, JSON schemas and regular expressions, so that XGrammar reads them as their authors
// mean them. The library silently ignores unknown keywords and reads unknown escapes as letters; here both are errors.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

// json_schema.cpp

// Makes the defaults of a JSON schema (json-schema.org, draft 2020-12) explicit. As in OpenAI's structured outputs, an
// object that lists properties has no others; an object without a list and an array without items may hold anything.
// Dates and times become patterns that respect the length of months. Errors: invalid JSON, and each keyword, format or
// combination that the grammar would not enforce. `where` names the schema.
Error complete_schema(std::string_view text, const std::string& where, std::string* out);

// schema_strings.cpp

using Schema = nlohmann::ordered_json;  // the grammar keeps the order of properties

// Replaces pattern, minLength, maxLength and format by one pattern of the string as it is written in JSON. Formats that
// XGrammar implements strictly enough stay. Errors: unsupported keywords or combinations.
Error replace_string_keywords(Schema& schema, const std::string& where);

// Removes the maximum lengths from a completed schema; returns whether there was one.
bool drop_max_lengths(Schema& schema);

// schema_branches.cpp

// Follows a chain of $ref; returns the schema itself if it has none. Null: a reference cannot be resolved.
using ResolveReference = std::function<const Schema*(const Schema& schema)>;

// True if types, constants and required properties prove that no value matches two of the branches (a list of schemas).
// Then oneOf equals anyOf.
bool are_disjoint(const Schema& branches, const ResolveReference& resolve);

// pattern.cpp

// Translates the pattern of a JSON schema, which may match any substring, into one of the whole string as it is written
// in JSON: quotes, backslashes, line ends, tabs, \f and \b become escapes. The result matches no other strings, but
// fewer ones: other control characters are excluded, and \s matches ASCII white space only. Errors: unsupported syntax,
// such as ^ and $ elsewhere than at the ends of a top-level alternative. `where` names the pattern.
Error escape_pattern(std::string_view pattern, const std::string& where, std::string* out);

// A pattern of JSON strings whose length in characters is within `bounds`, "2,5" or "2,".
std::string length_pattern(const std::string& bounds);

// Turns length_pattern("2,5") into length_pattern("2,"); returns false for any other pattern.
bool drop_max_length(std::string* pattern);

// Translates a pattern of a whole text that is not in JSON. A dot does not match \n, as in other regex libraries.
// Errors: as above.
Error plain_pattern(std::string_view pattern, const std::string& where, std::string* out);

}  // namespace pinion
