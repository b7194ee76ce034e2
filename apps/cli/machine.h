// Facts about this build and process for reports, and figures as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pinion {

std::string compiler_name();                      // "gcc 12.2.0"
std::string build_commit();                       // "d717e4f", as CMake last saw it; "unknown" without git
std::string shell_quoted(std::string_view word);  // one word for a shell, whatever is in it
std::string command_line();                       // of this process, quoted for a shell where it must be

std::string bytes_text(double bytes);  // "45.2 MB"

}  // namespace pinion
