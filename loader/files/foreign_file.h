// Files that Pinion does not read, by their first bytes or their names: what they are and what to do about them.
#pragma once

#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

// "a git-lfs pointer instead of the file: ..."; empty: not known.
std::string_view foreign_content(std::string_view contents);
std::string_view foreign_name(const std::string& name);

// The error of a parser, or a plainer one where the contents are something else that is known.
Error explained(Error failure, std::string_view contents);

}  // namespace pinion
