// Conversations of the chat endpoints, and the prompts made of them by the model's chat template.
#pragma once

#include <string>
#include <vector>

#include "apps/serve/request.h"
#include "tokenizer/answers/tool_calls.h"

namespace pinion {

constexpr const char* kTextOnly = "only text input is supported, not images or audio";

enum class ToolChoice : uint8_t {
  automatic,  // the model decides
  none,       // the prompt has no tools
  required,   // forces a call of any tool
  named,      // forces a call of one tool
};

struct ChatInput {
  Conversation conversation;  // messages and tools in OpenAI's format
  ToolChoice choice = ToolChoice::automatic;
  std::string tool;  // for ToolChoice::named
};

struct ChatPrompt {
  std::vector<int32_t> ids;
  ToolCallOptions reply;      // parses the model's reply
  bool is_forced = false;     // the reply is nothing but a call
  bool may_think = true;      // false: the template has closed an empty thought
  std::string thought_close;  // end mark of the thought that the template has opened; empty: none
};

// Moves "messages", "tools", "tool_choice" and "chat_template_kwargs" out of an OpenAI request. The rest is small
// enough to be copied to Json, which has fast lookup but no order of keys.
Error take_chat_input(OrderedJson& body, ChatInput* out);

// Joins the text parts of a content, parses the arguments of earlier calls and renders the template. Errors: images or
// audio, a wrong type, a template that rejects the conversation, a template without a known format of tool calls when a
// call is forced.
Error make_chat_prompt(const ServerState& server, ChatInput input, ChatPrompt* out);

// submit_requests() for replies parsed with `prompt.reply`. `single_call`: they end after their first tool call.
Submitted submit_chat_requests(const ServerState& server, const GenerationFields& fields, const ChatPrompt& prompt,
                               bool single_call);

std::vector<ToolEvent> parse_event(ToolCallParser& parser, const RequestEvent& event);

}  // namespace pinion
