// What this build is. PINION_VERSION, a text like "0.1.0", is the version of the project in CMakeLists.txt.
#pragma once

#include <string>

namespace pinion {

std::string compiler_name();  // "gcc 12.2.0"
std::string build_commit();   // "d717e4f", as CMake last saw it; "unknown" without git

// Lines without a newline at the end: version, commit and compiler, the instruction sets that have kernels here, and
// the libraries that were found.
std::string build_text();

}  // namespace pinion
