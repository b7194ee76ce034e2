// Messages as the APIs have them, made into what chat templates read.
#pragma once

#include <string>

#include "apps/serve/api.h"

namespace pinion {

// "messages", "tools", "tool_choice" and "chat_template_kwargs" of an OpenAI request. A content that is a list of texts
// becomes one text, a call's arguments become the object that their text spells. Errors: pictures and sounds, a wrong
// shape.
Error read_conversation(const Serving& serving, const std::string& body, Conversation* out);

}  // namespace pinion
