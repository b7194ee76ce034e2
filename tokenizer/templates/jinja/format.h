// Python's three ways to write values into a text: "%d" % x, "{:>5}".format(x), and what both know about a field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

// [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  char32_t fill = ' ';
  char align = '\0';  // < > ^ =, or none
  char sign = '-';    // + or a blank: of numbers above 0, too
  char group = '\0';  // , or _ between groups of digits
  char type = '\0';
  bool is_alternate = false;
  int64_t width = 0;
  std::optional<int64_t> precision = {};
};

inline bool one_of(char c, std::string_view choices) { return choices.find(c) != std::string_view::npos; }

// Fails at a number that is too large to be meant.
int64_t read_count(std::string_view text, size_t* at);
FormatSpec read_spec(std::string_view text);
std::string padded(const std::string& prefix, const std::string& body, FormatSpec spec, char default_align);
std::string format_number(const Value& value, const FormatSpec& spec);
std::string format_text(std::string_view text, const FormatSpec& spec);
// format(value, spec)
std::string format_value(const Value& value, std::string_view spec);
std::string fixed(double value, int digits);  // %.*f

Value percent_formatted(const Value& form, const Value& values);
Value brace_formatted(Interpreter& interpreter, const Value& form, const Arguments& arguments);

}  // namespace pinion::jinja
