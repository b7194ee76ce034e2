// Facts about the machine and this build for reports: names and figures that change nothing.
#pragma once

#include <cstdint>
#include <string>

namespace pinion {

std::string cpu_name();        // "AMD EPYC 7B13", the board's name where the CPU has none
std::string compiler_name();   // "gcc 12.2.0"
std::string build_commit();    // "d717e4f", as CMake last saw it; "unknown" without git
std::string command_line();    // of this process, quoted for a shell where it must be
int64_t total_memory_bytes();  // 0: unknown

std::string bytes_text(double bytes);  // "45.2 MB"

}  // namespace pinion
