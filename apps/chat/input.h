// What a person typed in one go: a line, or several that belong together.
#pragma once

#include <optional>
#include <string>

#include "apps/chat/line_reader.h"

namespace pinion {

struct ChatInput {
  std::string text;
  bool is_command = false;  // begins with /
};

// One line, or those up to the first that does not end in a backslash, or those between """ and """. Several lines are
// one entry of the history. Ctrl-C leaves all of it: an empty text. Nothing at the end of the input.
std::optional<ChatInput> read_input(LineReader& reader);

}  // namespace pinion
