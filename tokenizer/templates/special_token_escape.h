// Special tokens that users type in a message are text, not control tokens. A rendered prompt no longer shows which
// text came from a message. So before rendering, the first character of each such token is replaced by an escape, a
// private-use character that occurs nowhere else, and encode() restores it after it has looked for special tokens.
// Since only single characters change, templates cut and trim messages as before; they only fail to find texts that
// begin like a special token. tojson(ensure_ascii=true) spells escapes out, and nothing restores them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tokenizer/tokens/added_tokens.h"

namespace pinion {

// Escapes every string of the messages and tools, including keys: special tokens; text that begins like one with two or
// more characters, since a template may remove the text behind them; and, at the end of a string before blanks, the
// beginning of a token that the following text may complete. In roles only whole tokens are escaped, since templates
// compare roles. In messages of the role "assistant" the marks around thoughts and tool calls stay: models write them,
// and templates cut there. `taken`: all text that may get into the prompt; no escape occurs in it.
Error escape_special_tokens(const std::vector<AddedToken>& special_tokens, std::string_view taken,
                            nlohmann::ordered_json* messages, nlohmann::ordered_json* tools, std::vector<Escape>* out);

}  // namespace pinion
