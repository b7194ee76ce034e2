// Special tokens that users type in a message are text, not control tokens. A rendered prompt does not show which text
// came from a message. So before rendering, the first character of each such token is replaced by an escape, a
// private-use character that occurs nowhere else; encode() searches for special tokens and then restores the character.
// Templates cut and trim messages as before, but do not find a special token, or its beginning, in one; and an escape
// that tojson(ensure_ascii=true) writes as \uXXXX is not restored.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tokenizer/tokens/added_tokens.h"

namespace pinion {

// Escapes the strings of the messages and tools, including keys:
// - special tokens,
// - the first two or more characters of one, since a template may remove text behind them and so complete the token,
// - any beginning of one at the end of a string or before its trailing white space: the text that the template writes
//   behind the string may complete the token.
// In roles only whole tokens are escaped, since templates compare roles. In messages of the role "assistant" the marks
// around thoughts and tool calls stay: models write them, and templates cut there. `taken`: all text that may occur in
// the prompt; its characters are not used as escapes.
Error escape_special_tokens(const std::vector<AddedToken>& special_tokens, std::string_view taken,
                            nlohmann::ordered_json* messages, nlohmann::ordered_json* tools, std::vector<Escape>* out);

}  // namespace pinion
