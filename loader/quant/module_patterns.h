// Patterns for module names in a quantization_config.
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
  std::shared_ptr<const pcre2_real_code_8> regex;  // null: the text is compared
};

// Python's re and PCRE2 agree on the syntax that module names need. PCRE2's extensions begin with "(*" and are errors.
Error compile_pattern(const std::string& text, const std::string& where, ModulePattern* out);

enum class Match : uint8_t { none, by_class, by_name };

// The best match of the patterns with a linear layer that has these names. A regular expression that takes too many
// steps is an error.
Error match_patterns(const std::vector<ModulePattern>& patterns, const std::vector<std::string>& names, Match* out);

}  // namespace pinion
