// How quantisation's config names modules.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/error.h"

struct pcre2_real_code_8;

namespace pinion {

// A module's name, a class ("Linear"), or "re:" and a Python regular expression that a name must begin with.
struct ModulePattern {
  std::string text;
  std::shared_ptr<const pcre2_real_code_8> regex;  // null where the text is to be compared
};

// Python's re and PCRE2 read alike what names of modules need. What only one of them knows begins with "(*": an error,
// as is what neither takes.
Error compile_pattern(const std::string& text, const std::string& where, ModulePattern* out);

enum class Match : uint8_t { none, by_class, by_name };

// How closely one of the patterns means the linear layer that has these names. An expression that needs too many steps
// is an error.
Error match_patterns(const std::vector<ModulePattern>& patterns, const std::vector<std::string>& names, Match* out);

}  // namespace pinion
