// Turns a conversation into the prompt that a model was trained on, by the folder's own Jinja template.
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

// What transformers' apply_chat_template takes. All strings are UTF-8.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();    // {"role": "user", "content": "..."}, ...
  nlohmann::ordered_json tools = nullptr;                               // null, or a list of JSON schemas
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // {"enable_thinking": false}
  bool add_generation_prompt = true;
  std::string template_name = {};  // empty: "tool_use" where there are tools and such a template, else "default"
};

struct ChatTemplate;  // immutable after loading

// chat_template.jinja ("default") and additional_chat_templates/NAME.jinja, else "chat_template" of
// tokenizer_config.json, or else of chat_template.json: the default one's text, or a list of {name, template}. A folder
// without a template is no error: *out is null. One that does not parse is an error where it is the only one, else when
// it is asked for.
Error load_chat_template(const std::string& folder, std::shared_ptr<const ChatTemplate>* out);

Error check_messages(const nlohmann::ordered_json& messages);  // a list of objects with a role

// What transformers' apply_chat_template gives; so templates find an assistant's thoughts as reasoning_content and as
// thinking, whichever of these, or reasoning, a message has. Where that fails, or leaves out instructions, what a user
// said or a function that was called, the template may want contents in another shape: null for an empty one beside
// calls, or a list of parts for a text. Then it is what the template makes of that, if it leaves out less. The error of
// a template that refuses the conversation (raise_exception) carries the template's own words and line.
Error render(const ChatTemplate& chat_template, const Conversation& conversation, std::string* out);

// The Jinja source that it would use for the conversation; empty: there is none.
std::string_view template_source(const ChatTemplate& chat_template, const Conversation& conversation);

// Whether render() gives a variable of this name itself, so that the conversation's would be ignored.
bool gives_variable(const ChatTemplate& chat_template, const std::string& name);

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
};

// The text of render() and its ids. Special tokens written in messages and tools are plain text, see
// special_token_escape.h. `most_tokens`: see EncodeOptions.
Error make_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Conversation& conversation,
                  Prompt* out, int64_t most_tokens = EncodeOptions().most_tokens);

}  // namespace pinion
