// Values as JSON.
#pragma once

#include "tokenizer/templates/jinja/builtin.h"

namespace pinion::jinja {

// transformers' filter tojson, which is Python's json.dumps: value, ensure_ascii, indent, separators, sort_keys.
Value to_json(Interpreter& interpreter, const Slots& arguments);

}  // namespace pinion::jinja
