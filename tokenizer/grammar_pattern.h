// Regexes of requests and schemas, written so that the grammar library takes them as their authors mean them. It takes
// escapes that it does not know for letters.
#pragma once

#include <string>
#include <string_view>

#include "kernels/error.h"

namespace pinion {

// A pattern of a JSON schema is one of what a text is, where a grammar needs one of how JSON writes the text. Quotes,
// backslashes and line ends become their escapes; dots and classes of characters leave out what must be
// escaped. So some texts that match are never written, and none that does not. Errors: classes of nothing but such
// characters, and what is not known here; `where` names the pattern.
Error escape_pattern(std::string_view pattern, const std::string& where, std::string* out);

// A pattern of a whole text: dots leave out the end of a line, as in other regex libraries. Errors: as above.
Error plain_pattern(std::string_view pattern, const std::string& where, std::string* out);

}  // namespace pinion
