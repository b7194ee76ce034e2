// Identity of the build. PINION_VERSION ("0.1.0") is the project's version in CMakeLists.txt.
#pragma once

#include <string>

namespace pinion {

std::string compiler_name();  // "gcc 12.2.0"
std::string build_commit();   // "d717e4f", at the last CMake run; "unknown" without git

// Lines, without the last newline: version, commit and compiler, kernel tables, libraries it was built with.
std::string build_text();

}  // namespace pinion
