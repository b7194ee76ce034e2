// What a JSON schema says of texts: patterns, lengths, formats.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

// Writes a schema's pattern, bounds of length or format as a pattern of how JSON writes the text (grammar_pattern.h),
// but for formats that the grammar library knows well enough. `where` names the schema in errors: what is not
// supported, alone or beside another of the three.
Error replace_texts(nlohmann::ordered_json& schema, const std::string& where);

// Leaves the most characters of texts out of a schema whose texts were replaced so. Whether there were any.
bool leave_out_longest(nlohmann::ordered_json& schema);

}  // namespace pinion
