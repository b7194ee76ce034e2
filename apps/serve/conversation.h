// Conversations as the APIs have them, made into prompts: what is common to chat endpoints of all shapes.
#pragma once

#include <string>
#include <vector>

#include "apps/serve/request.h"
#include "tokenizer/answers/tool_calls.h"

namespace pinion {

constexpr const char* kNoPictures = "only texts are read, no pictures or sounds";

enum class ToolChoice : uint8_t {
  automatic,  // the model decides
  none,       // it is told of no tools
  required,   // a call of any tool is begun for it
  named,      // of one
};

struct ChatOrder {
  Conversation conversation;  // messages and tools as OpenAI has them; prepare() makes them the template's
  ToolChoice choice = ToolChoice::automatic;
  std::string tool;  // the named one
};

struct ChatPrompt {
  std::vector<int32_t> ids;
  ToolCallOptions reply;         // how to read what the model says to it
  bool may_think = true;         // the template has not said that there is no thought
  std::string close_of_thought;  // of the thought that it has opened
};

// "messages", "tools", "tool_choice" and "chat_template_kwargs" of an OpenAI request, which is without them afterwards:
// what is left is small enough to be made into Json, whose fields have no order.
Error take_chat_order(OrderedJson& body, ChatOrder* out);

// A content that is a list of texts becomes one text, a call's arguments become the object that their text spells.
// Errors: pictures and sounds, a wrong shape, a template that refuses, a call that cannot be forced.
Error make_chat_prompt(const Serving& serving, ChatOrder order, ChatPrompt* out);

// order_texts() for answers that are read by `reply`. `only_one_call`: they end behind their first call.
Prompted order_replies(const Serving& serving, const TextFields& fields, const ChatPrompt& prompt, bool only_one_call);

// The parts of an answer that an event makes certain.
std::vector<ToolEvent> parts_of(ToolCallParser& parser, const TextEvent& event);

}  // namespace pinion
