// Regexes of requests and schemas, written so that the grammar library takes them as their authors mean them. It takes
// escapes that it does not know for letters.
#pragma once

#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

// A pattern of a JSON schema is one of some part of a text, where a grammar needs one of the whole, as JSON writes it.
// Quotes, backslashes, line ends, tabs, \f and \b become their escapes; other control characters are never written, nor
// blanks beyond ASCII for \s. So some texts that match are never written, and none that does not. Errors: ^ and $ but
// at the ends of a pattern or of what stands beside its outermost |, and what is not known here; `where` names the
// pattern.
Error escape_pattern(std::string_view pattern, const std::string& where, std::string* out);

// Texts of so many characters, "2,5" or "2,", as JSON writes them, likewise.
std::string length_pattern(const std::string& bounds);

// Makes length_pattern("2,") of length_pattern("2,5"). False: it is another pattern.
bool leave_out_most(std::string* pattern);

// A pattern of a whole text: dots leave out the end of a line, as in other regex libraries. Errors: as above.
Error plain_pattern(std::string_view pattern, const std::string& where, std::string* out);

}  // namespace pinion
