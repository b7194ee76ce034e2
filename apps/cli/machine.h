// Facts about this process for reports, and figures as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pinion {

std::string shell_quoted(std::string_view word);  // one word for a shell, whatever is in it
std::string command_line();                       // of this process, quoted for a shell where it must be

std::string bytes_text(double bytes);  // "45.2 MB"

}  // namespace pinion
