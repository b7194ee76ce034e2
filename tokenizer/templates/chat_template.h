// Renders a conversation into the prompt format of the model, by the Jinja template of its folder.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// The arguments of transformers' apply_chat_template. All strings are UTF-8.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();    // {"role": "user", "content": "..."}, ...
  nlohmann::ordered_json tools = nullptr;                               // null, or a list of JSON schemas
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // {"enable_thinking": false}
  bool add_generation_prompt = true;
  std::string template_name = {};  // empty: "tool_use" if there are tools and such a template, else "default"
};

struct ChatTemplate;  // immutable after loading

// Reads chat_template.jinja ("default") and additional_chat_templates/NAME.jinja; without these, "chat_template" of
// tokenizer_config.json, or else of chat_template.json: the text of the default one, or a list of {name, template}. A
// folder without a template is no error: *out is null. A template that does not parse is an error now if it is the only
// one, else when it is used.
Error load_chat_template(const std::string& folder, std::shared_ptr<const ChatTemplate>* out);

Error check_messages(const nlohmann::ordered_json& messages);  // a list of objects with a role

// The output of transformers' apply_chat_template, with two additions. The thoughts of an assistant are available as
// reasoning_content and as thinking, whichever of these or "reasoning" a message has. If the template fails, or omits
// instructions, user texts or names of called functions, it is tried with contents in another shape: null for an empty
// text beside tool calls, or a list of parts for a text; that result counts if it omits less. The error of
// raise_exception(text) carries that text and its line.
Error render(const ChatTemplate& chat_template, const Conversation& conversation, std::string* out);

// The Jinja source for the conversation, or an empty string.
std::string_view template_source(const ChatTemplate& chat_template, const Conversation& conversation);

// True if render() sets this variable itself, so that one of the conversation has no effect.
bool defines_variable(const ChatTemplate& chat_template, const std::string& name);

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

// The text of render() and its ids. Special tokens typed in messages and tools become plain text
// (special_token_escape.h). `max_tokens`: see EncodeOptions.
Error make_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Conversation& conversation,
                  Prompt* out, int64_t max_tokens = EncodeOptions().max_tokens);

}  // namespace pinion
