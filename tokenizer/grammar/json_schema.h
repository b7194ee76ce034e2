// JSON schemas (json-schema.org, draft 2020-12) as grammars are made of them.
#pragma once

#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

// The schema with what its silence means written out: as OpenAI has it, an object that names its properties has no
// others, while one that names none and a list without items may hold anything. Formats of dates and times become
// patterns that know the length of months. Errors: no JSON, and every keyword, format or combination that a grammar
// would leave out, for a text that breaks the schema must not pass for one that keeps it.
Error complete_schema(std::string_view text, const std::string& where, std::string* out);

}  // namespace pinion
