// Jinja templates as transformers configures Jinja: with trim_blocks and lstrip_blocks, and in a sandbox where
// templates cannot change the values they are given. README.md lists the features. Templates are untrusted code:
// parse_jinja() and render_jinja() work in a child process (limited_run.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

// Fails for a template that does not parse; `where` names it in errors. normalized: the source for render_jinja().
Error parse_jinja(const std::string& source, const std::string& where, std::string* normalized);

// All strings of `variables` are UTF-8. raise_exception(text) becomes an error. has_fixed_date: now is 2025-01-01.
Error render_jinja(const std::string& normalized, const std::string& where, const nlohmann::ordered_json& variables,
                   std::string* out, bool has_fixed_date = false);

// The output of {{ value }}: Python's spelling.
Error print_as_jinja(const nlohmann::ordered_json& value, std::string* out);

// The engine in this process, without limits: for the child process, for templates of this program, and for tests.
namespace jinja {

std::string normalized_source(std::string_view source);  // line ends become \n, a last one is dropped

// `source` is normalized.
Error check_source(const std::string& source, const std::string& where);
Error run_source(const std::string& source, const std::string& where, const nlohmann::ordered_json& variables,
                 std::string* out);

}  // namespace jinja
}  // namespace pinion
