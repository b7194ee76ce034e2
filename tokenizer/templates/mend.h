// Conversations that a chat template refuses, or of which it omits messages, are rendered in another form.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizer/templates/chat_template.h"

namespace pinion {

constexpr const char* kTemplateFails = "template fails";  // Error::what of a template that raises an exception

// The member of that name if it is a string, or null.
const std::string* find_text(const nlohmann::ordered_json& object, const char* name);

// render() of chat_template.h for one template, which `render_as_given` runs. Messages have passed check_messages().
Error render_mended(const Conversation& conversation,
                    const std::function<Error(const Conversation&, std::string*)>& render_as_given, std::string* out,
                    std::vector<std::string>* mended);

}  // namespace pinion
