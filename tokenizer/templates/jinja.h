// Jinja templates as transformers sets Jinja up: in its sandbox, where nothing that is given to a template changes,
// with trim_blocks and lstrip_blocks. The engine is in jinja/, whose exceptions end in jinja.cpp. A template is code
// from a stranger: it is parsed and rendered in a process of its own alone (limited_run.h).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

struct JinjaTemplate;  // immutable

// Whether it parses; `where` names the template in errors.
Error parse_jinja(const std::string& source, const std::string& where, std::shared_ptr<const JinjaTemplate>* out);

// What a template that prints `value` writes: Python's spelling.
Error print_as_jinja(const nlohmann::ordered_json& value, std::string* out);

// Besides the variables a template has raise_exception, strftime_now and Jinja's usual filters. All strings of
// `variables` are UTF-8. The error of a template that refuses (raise_exception) has its own words and the line.
Error render_jinja(const JinjaTemplate& jinja, const nlohmann::ordered_json& variables, std::string* out);

}  // namespace pinion
