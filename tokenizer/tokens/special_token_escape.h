// Special tokens that people write in a message are text, not control tokens. A rendered prompt no longer tells what
// came from a message and what from the template. So the first character of each such token is escaped before
// rendering: a private-use character that occurs nowhere else stands for it, and encode() puts the character back once
// it has looked for special tokens. Only single characters change, so that templates cut and trim what they otherwise
// would, and find what does not begin like a special token. tojson(ensure_ascii=true) spells escapes out, which nobody
// puts back.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tokenizer/tokens/added_tokens.h"

namespace pinion {

struct Escape {
  std::string escaped, original;  // a character each
};

// Replaces in every string of the messages and tools, keys too: special tokens, what begins like one with two
// characters or more, as templates may take text out behind them, and at the end of a string, blanks aside, what could
// become one with the text that follows. In roles only whole tokens: templates compare them. In messages of the role
// "assistant" the marks around thoughts and tool calls are left alone: models write them, and templates cut there.
// `taken` is all the text that may get into the prompt: no escape occurs there.
Error escape_special_tokens(const std::vector<AddedToken>& special_tokens, std::string_view taken,
                            nlohmann::ordered_json* messages, nlohmann::ordered_json* tools, std::vector<Escape>* out);

// `places`: where in the result the characters are that were put back.
std::string unescaped(std::string_view text, const std::vector<Escape>& escapes, std::vector<size_t>* places = nullptr);

}  // namespace pinion
