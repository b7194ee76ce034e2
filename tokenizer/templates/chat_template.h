// Renders a conversation into the prompt format of the model, by the Jinja template of its folder.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// The arguments of transformers' apply_chat_template. All strings are UTF-8.
struct Conversation {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();    // {"role": "user", "content": "..."}, ...
  nlohmann::ordered_json tools = nullptr;                               // null, or a list of JSON schemas
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // {"enable_thinking": false}
  bool add_generation_prompt = true;
  // The model goes on with the last message: the prompt ends behind its text, without a generation prompt. The text is
  // the content, the last part of it that has a text, or the thoughts of a message without content.
  bool continue_final_message = false;
  std::string template_name = {};  // empty: "tool_use" if there are tools and such a template, else "default"
  bool is_strict = false;          // no mends
  bool has_fixed_date = false;     // strftime_now() is the first day of 2025, so that prompts do not change by day
};

struct ChatTemplate;  // immutable after loading

// Reads chat_template.jinja ("default") and additional_chat_templates/NAME.jinja; without these, "chat_template" of
// tokenizer_config.json, or else of chat_template.json: the text of the default one, or a list of {name, template}. A
// folder without a template is no error: *out is null. A template that does not parse is an error here if it is the
// only one, else an error of render(). `model`: a folder or a GGUF file.
Error load_chat_template(const std::string& model, std::shared_ptr<const ChatTemplate>* out);

Error check_messages(const nlohmann::ordered_json& messages);  // a list of objects with a role

// The output of transformers' apply_chat_template, with two additions. If a message has thoughts as reasoning_content,
// thinking or reasoning, the template finds them under the first two names. If the template fails, or its output omits
// system messages, user messages or names of called functions, the conversation is mended and rendered again.
// The fewest mends are taken whose output omits the fewest texts or, after a failure, no message; `mended` (may be
// null) receives their names. Errors of a template name the message or tool at which it fails; that of
// raise_exception(text) carries the text and its line. Errors of continue_final_message: the last message has no text,
// or has tool calls, or the template changes the text. continued_at (may be null): see Prompt.
Error render(const ChatTemplate& chat_template, const Conversation& conversation, std::string* out,
             std::vector<std::string>* mended = nullptr, size_t* continued_at = nullptr);

// The Jinja source for the conversation, or an empty string.
std::string_view template_source(const ChatTemplate& chat_template, const Conversation& conversation);

// Fails if render() sets one of the conversation's variables itself. The error names it behind `where`.
Error check_variables(const ChatTemplate& chat_template, const Conversation& conversation, const std::string& where);

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;
  size_t continued_at = 0;               // offset of the text that the model continues; without one, the size of `text`
  std::vector<std::string> mended = {};  // see render()
};

// The text of render() and its ids. Special tokens typed in messages and tools become plain text
// (special_token_escape.cpp). `max_tokens`: see EncodeOptions.
Error make_prompt(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Conversation& conversation,
                  Prompt* out, int64_t max_tokens = EncodeOptions().max_tokens);

// The tokens by which the template ends a turn of the assistant, also if no other file names them: the first token
// behind an answer (if the template writes none, that of the next turn) and the last special one behind a tool call.
// Renders short conversations; empty if the template refuses them.
std::vector<int32_t> turn_ends(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// --- mend.cpp: conversations that a template refuses, or of which it omits messages, are rendered in another form.

constexpr const char* kTemplateFails = "template fails";  // Error::what of a template that raises an exception

// The member of that name if it is a string, or null.
const std::string* find_text(const nlohmann::ordered_json& object, const char* name);

// The calls of a message that name a function.
auto calls_of(auto& message) {
  std::vector<decltype(&message)> calls;
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return calls;
  for (auto& call : message["tool_calls"]) {
    if (call.is_object() && call.contains("function") && call["function"].is_object()) calls.push_back(&call);
  }
  return calls;
}

// render() for one template, which `render_as_given` runs. Messages have passed check_messages().
Error render_mended(const Conversation& conversation,
                    const std::function<Error(const Conversation&, std::string*)>& render_as_given, std::string* out,
                    std::vector<std::string>* mended);

// --- special_token_escape.cpp: special tokens that users type in a message are text, not control tokens. A rendered
// prompt does not show which text came from a message. So before rendering, the first character of each such token is
// replaced by an escape, a private-use character that occurs nowhere else; encode() searches for special tokens and
// then restores the character. Templates cut and trim messages as before, but do not find a special token, or its
// beginning, in one; and an escape that tojson(ensure_ascii=true) writes as \uXXXX is not restored.

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
