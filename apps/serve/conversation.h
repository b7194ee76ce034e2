// Conversations of the chat endpoints, and the prompts made of them by the model's chat template.
#pragma once

#include "apps/cli/turns.h"
#include "apps/serve/request.h"

namespace pinion {

constexpr const char* kTextOnly = "only text input is supported, not images, audio or files";
constexpr const char* kNoChatTemplate = "the model has no chat template; /v1/completions continues plain text";

// A call of a function in OpenAI's format.
OrderedJson call_json(const std::string& id, const std::string& name, OrderedJson arguments);

// The text of a content part or block. Media have a text such as "[image]" in their place, and set *has_media.
std::string part_text(const OrderedJson& part, bool* has_media);

// True for the last user message until an assistant answers it: media in it are an error.
bool awaits_answer(const OrderedJson& messages, size_t i);

enum class ToolChoice : uint8_t {
  automatic,  // the model decides
  none,       // the prompt has no tools
  required,   // forces a call of any tool
  named,      // forces a call of one tool
};

struct ChatInput {
  Conversation conversation;  // messages and tools in OpenAI's format
  ToolChoice choice = ToolChoice::automatic;
  std::string tool;          // for ToolChoice::named
  bool has_media = false;    // earlier messages had media, in whose place a text stands
  bool drops_turns = false;  // the oldest turns make room for an answer (Ollama's "truncate")
};

struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
  ToolCallOptions reply;      // parses the model's reply
  bool is_forced = false;     // the reply is nothing but calls
  std::string tool = {};      // the only one that may be called; empty: any
  bool may_think = true;      // false: the prompt has closed a thought
  std::string thought_close;  // end mark of the thought that the prompt has opened; empty: none
};

// Moves "messages", "tools", "tool_choice", "reasoning_effort" and "chat_template_kwargs" out of an OpenAI request. A
// last message of the assistant with "prefix": true (DeepSeek's and Mistral's API) is to be continued. The rest is
// small enough to be copied to Json, which has fast lookup but no order of keys.
Error take_chat_input(OrderedJson& body, ChatInput* out);

// Joins the text parts of a content, parses the arguments of earlier calls and renders the template. Appends to
// `fields->ignored`. Errors: media in the last user message, a wrong type, a template that rejects the conversation, a
// template without a known format of tool calls when a call is forced.
Error make_chat_prompt(const ServerState& server, ChatInput input, GenerationFields* fields, ChatPrompt* out);

struct ChatRequest {
  GenerationFields fields;
  bool single_call = false;  // the reply ends after its first tool call
  ChatPrompt prompt;
};

// generation_reply() for replies parsed with `prompt.reply`.
Reply chat_reply(const ServerState& server, Api api, const ChatRequest& request, const HttpRequest& http,
                 std::unique_ptr<ResponseFormatter> formatter);

std::vector<ToolEvent> parse_event(ToolCallParser& parser, const RequestEvent& event);

}  // namespace pinion
