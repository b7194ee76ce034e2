// A template from its source to its text, with errors as values. Without limits: jinja.h has those.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kernels/base/error.h"

namespace pinion::jinja {

// Whether it parses. `source` is normalized (lexer.h); `where` names the template in errors.
Error check_source(const std::string& source, const std::string& where);

Error run_source(const std::string& source, const std::string& where, const nlohmann::ordered_json& variables,
                 std::string* out);

// What a template that prints `value` writes: Python's spelling.
Error print(const nlohmann::ordered_json& value, std::string* out);

}  // namespace pinion::jinja
