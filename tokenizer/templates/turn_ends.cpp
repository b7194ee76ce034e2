// turn_ends() of chat_template.h.

#include <string>

#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

constexpr std::string_view kAnswer = "Answerxyz";  // part of no template
constexpr const char* kAnswered = R"([{"role": "user", "content": "Question"},
    {"role": "assistant", "content": "Answerxyz"}])";
constexpr const char* kCalled = R"([{"role": "user", "content": "Question"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdef123", "type": "function",
     "function": {"name": "find", "arguments": {"text": "Answerxyz"}}}]}])";
constexpr const char* kTools = R"([{"type": "function", "function": {"name": "find", "description": "Finds",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}}])";

// The tokens of a rendering behind the last kAnswer. Text between them, other than white space, counts as id -1.
// Returns false if the template refuses the conversation.
bool rest_of_turn(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const Conversation& conversation,
                  std::vector<AddedToken>* out) {
  out->clear();
  Prompt prompt;
  if (make_prompt(chat_template, tokenizer, conversation, &prompt)) return false;
  const size_t at = prompt.text.rfind(kAnswer);
  if (at == std::string::npos) return true;
  const std::string text = prompt.text.substr(at + kAnswer.size());
  for (const TextRun& run : split_added(make_finder(special_tokens(tokenizer, text)), text, true)) {
    if (run.id < 0 && strip(run.text).empty()) continue;
    out->push_back({.content = std::string(run.text), .id = run.id, .special = is_special(tokenizer, run.id)});
  }
  return true;
}

}  // namespace

std::vector<int32_t> turn_ends(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  std::vector<int32_t> ends;
  std::vector<AddedToken> rest;
  Conversation talk{.messages = nlohmann::ordered_json::parse(kAnswered), .add_generation_prompt = false};
  talk.is_strict = true;  // a mended conversation may end its turns elsewhere
  if (!rest_of_turn(chat_template, tokenizer, talk, &rest)) return ends;
  if (rest.empty()) {
    talk.messages.push_back(talk.messages[0]);
    rest_of_turn(chat_template, tokenizer, talk, &rest);
  }
  if (!rest.empty() && rest.front().id >= 0) ends.push_back(rest.front().id);
  talk.messages = nlohmann::ordered_json::parse(kCalled);
  talk.tools = nlohmann::ordered_json::parse(kTools);
  rest_of_turn(chat_template, tokenizer, talk, &rest);
  // The end mark of a call ends no turn: another call may follow.
  const bool is_end = !rest.empty() && rest.back().special && rest.back().content.find("tool") == std::string::npos;
  if (is_end) ends.push_back(rest.back().id);
  return ends;
}

}  // namespace pinion
