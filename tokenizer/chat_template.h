// Turns a conversation into the prompt text that a model was trained on, by the folder's own Jinja template.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "kernels/error.h"

namespace pinion {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

struct ChatTemplate;  // immutable after loading

// chat_template.jinja, else "chat_template" of tokenizer_config.json (text, or a list of {name, template}: the one
// named "default"). A folder without a template is no error: *out is null.
Error load_chat_template(const std::string& folder, std::shared_ptr<const ChatTemplate>* out);

// The error of a template that refuses the conversation (raise_exception) carries the template's own words.
Error render(const ChatTemplate& chat_template, std::span<const Message> messages, bool add_generation_prompt,
             std::string* out);

}  // namespace pinion
