// What a chat does about the end of its context: it warns, and drops the oldest turns.
#include <algorithm>

#include "apps/chat/chat.h"

namespace pinion {
namespace {

// A turn is a question with all that follows up to the next one. The system message belongs to none.
bool drop_oldest_turn(OrderedJson& messages) {
  const auto has_role = [](const char* role) {
    return [role](const OrderedJson& message) { return message.contains("role") && message["role"] == role; };
  };
  if (!messages.is_array()) return false;
  const auto first = std::find_if_not(messages.begin(), messages.end(), has_role("system"));
  if (first == messages.end()) return false;
  const auto second = std::find_if(first + 1, messages.end(), has_role("user"));
  if (second == messages.end()) return false;
  messages.erase(first, second);
  return true;
}

constexpr int64_t kNearlyFullPercent = 80;

// What an answer is to find free at least.
int64_t room_for_answer(const Chat& chat) {
  const int64_t eighth = chat.session->sequence.cache.capacity / 8;
  return std::max<int64_t>(1, chat.max_tokens > 0 ? std::min(chat.max_tokens, eighth) : eighth);
}

// Until half of the context is free: what is left has to be evaluated anew, and that should not be for every question.
Error drop_turns(Chat& chat, Prompt* prompt) {
  const int64_t capacity = chat.session->sequence.cache.capacity;
  const auto tokens = std::ssize(prompt->ids);
  int64_t turns = 0;
  for (; std::ssize(prompt->ids) > capacity / 2 && drop_oldest_turn(chat.conversation.messages); ++turns) {
    if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, chat.conversation, prompt)) return e;
  }
  if (turns == 0) return {};
  note("the context is full: dropped " +
       (turns == 1 ? "the oldest turn" : "the " + std::to_string(turns) + " oldest turns") + ", " +
       std::to_string(tokens - std::ssize(prompt->ids)) + " of " + std::to_string(tokens) + " tokens");
  return {};
}

}  // namespace

Error encode_conversation(Chat& chat, Prompt* out) {
  if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, chat.conversation, out)) return e;
  const int64_t capacity = chat.session->sequence.cache.capacity;
  if (std::ssize(out->ids) < capacity) return {};
  return error("the conversation no longer fits; /reset starts a new one", "context",
               "fewer than " + std::to_string(capacity) + " tokens", std::to_string(out->ids.size()));
}

Error fit_conversation(Chat& chat, Prompt* out) {
  if (chat.overflow == Overflow::drop) {
    if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, chat.conversation, out)) return e;
    if (std::ssize(out->ids) + room_for_answer(chat) <= chat.session->sequence.cache.capacity) return {};
    if (Error e = drop_turns(chat, out)) return e;
  }
  return encode_conversation(chat, out);
}

void tell_of_full_context(Chat& chat) {
  const int64_t capacity = chat.session->sequence.cache.capacity, used = std::ssize(chat.session->sequence.ids);
  const bool drops = chat.overflow == Overflow::drop;
  const bool is_nearly_full = used * 100 >= capacity * kNearlyFullPercent;
  if (chat.last.finish_reason == FinishReason::context) {
    note(std::string("the answer ends here: the context is full; ") +
         (drops ? "the next question drops the oldest turns" : "/reset starts a new conversation"));
  } else if (is_nearly_full && !chat.told_of_context) {
    note(std::to_string(used * 100 / capacity) + " % of the context's " + std::to_string(capacity) +
         " tokens are used; " +
         (drops ? "soon the oldest turns are dropped, /save keeps them" : "/reset starts a new conversation") +
         ", --context has room for more");
  }
  chat.told_of_context = is_nearly_full;
}

}  // namespace pinion
