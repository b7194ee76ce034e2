// Numbers from texts and to fewer digits, as Python's int(), float() and round() do.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace pinion::jinja {

std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
std::optional<double> parse_float(std::string_view text);
int64_t truncated(double value);  // fails where that is no int64_t
double rounded(double value, int64_t digits);
int64_t rounded(int64_t value, int64_t digits);

}  // namespace pinion::jinja
