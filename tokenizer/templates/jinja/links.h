// The filter urlize.
#pragma once

#include "tokenizer/templates/jinja/builtin.h"

namespace pinion::jinja {

// Addresses in a text as links of HTML: value, trim_url_limit, nofollow, target, rel, extra_schemes.
Value with_links(Interpreter& interpreter, const Slots& arguments);

}  // namespace pinion::jinja
