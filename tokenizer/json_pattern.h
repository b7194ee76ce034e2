// Patterns of JSON schemas: regexes of what a text is, where a grammar needs one of how JSON writes the text.
#pragma once

#include <string>
#include <string_view>

#include "kernels/error.h"

namespace pinion {

// Quotes, backslashes and line ends become their escapes; dots and classes of characters leave out what must be
// escaped. So some texts that match are never written, and none that does not. Errors: classes of nothing but such
// characters, and what is not known here; `where` names the pattern.
Error escape_pattern(std::string_view pattern, const std::string& where, std::string* out);

}  // namespace pinion
