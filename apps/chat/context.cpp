// What a chat does about the end of its context: it warns, and drops the oldest turns.
#include <algorithm>

#include "apps/chat/chat.h"
#include "engine/forward/rope.h"

namespace pinion {
namespace {

bool has_role(const OrderedJson& message, const char* role) {
  return message.contains("role") && message["role"] == role;
}

// A turn is a question with all that follows up to the next one. The system message belongs to none.
bool drop_oldest_turn(OrderedJson& messages) {
  if (!messages.is_array()) return false;
  const auto is_system = [](const OrderedJson& message) { return has_role(message, "system"); };
  const auto is_question = [](const OrderedJson& message) { return has_role(message, "user"); };
  const auto first = std::find_if_not(messages.begin(), messages.end(), is_system);
  if (first == messages.end()) return false;
  const auto second = std::find_if(first + 1, messages.end(), is_question);
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
Error drop_turns(Chat& chat, Prompt* prompt, int64_t* turns) {
  const int64_t capacity = chat.session->sequence.cache.capacity;
  for (; std::ssize(prompt->ids) > capacity / 2 && drop_oldest_turn(chat.conversation.messages); ++*turns) {
    if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, chat.conversation, prompt)) return e;
  }
  return {};
}

void tell_of_dropped_turns(int64_t turns, int64_t dropped, int64_t tokens) {
  note("the context is full: dropped " +
       (turns == 1 ? "the oldest turn" : "the " + std::to_string(turns) + " oldest turns") + ", " +
       std::to_string(dropped) + " of " + std::to_string(tokens) + " tokens");
}

// What to give where so many tokens have no room: something shorter, or a larger context where the model has one.
std::string advice(const Chat& chat, bool may_be_shorter, int64_t tokens) {
  const int64_t most = context_length(chat.runtime.model->config);
  const std::string larger = tokens < most ? "--context N up to this model's " + std::to_string(most) : "";
  if (!may_be_shorter) return larger.empty() ? "" : "; give " + larger;
  return "; give a shorter one" + (larger.empty() ? "" : ", or " + larger);
}

// The text of a last message that is a question, as tokens.
Error encode_question(const Chat& chat, const Conversation& conversation, std::vector<int32_t>* out) {
  const OrderedJson& last = conversation.messages.back();
  if (!has_role(last, "user") || !last.contains("content") || !last["content"].is_string()) return {};
  const EncodeOptions options = {.add_special = false, .parse_special = false};
  return encode(*chat.tokenizer, last["content"].get_ref<const std::string&>(), options, out);
}

// Whether a conversation of one turn fits, and any at all would.
Error check_turn(const Chat& chat, const Conversation& conversation) {
  Prompt prompt;
  std::vector<int32_t> question;
  if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, conversation, &prompt)) return e;
  if (Error e = encode_question(chat, conversation, &question)) return e;
  const int64_t tokens = std::ssize(prompt.ids), capacity = chat.session->sequence.cache.capacity;
  const int64_t around = tokens - std::ssize(question);  // the system message, and what the template writes
  const int64_t room = capacity - 1 - around;            // an answer has one token at least
  if (tokens < capacity && room > 0) return {};
  const auto most = [](int64_t count) { return "at most " + std::to_string(count) + " tokens"; };
  if (question.empty()) {
    return error("the last turn alone does not fit" + advice(chat, false, tokens), "context", most(capacity - 1),
                 std::to_string(tokens));
  }
  if (room > 0) {
    return error("this question is too long" + advice(chat, true, tokens), "context", most(room),
                 std::to_string(question.size()));
  }
  if (has_role(conversation.messages.front(), "system")) {
    return error("the system message leaves no room for a question" + advice(chat, true, around + 1), "context",
                 most(capacity - 2), std::to_string(around));
  }
  return error("no room for a question" + advice(chat, false, around + 1), "context",
               "at least " + std::to_string(around + 2) + " tokens", std::to_string(capacity));
}

// Why the conversation does not fit, and what helps.
Error no_longer_fits(const Chat& chat, int64_t tokens) {
  Conversation last_turn = chat.conversation;
  while (drop_oldest_turn(last_turn.messages)) {
  }
  if (Error e = check_turn(chat, last_turn)) return e;
  return error("the conversation no longer fits; /reset starts a new one", "context",
               "fewer than " + std::to_string(chat.session->sequence.cache.capacity) + " tokens",
               std::to_string(tokens));
}

}  // namespace

Error check_system_message(const Chat& chat) {
  Conversation trial = chat.conversation;
  add_message("user", "Hello", &trial);
  return check_turn(chat, trial);
}

Error encode_conversation(Chat& chat, Prompt* out) {
  if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, chat.conversation, out)) return e;
  if (std::ssize(out->ids) < chat.session->sequence.cache.capacity) return {};
  return no_longer_fits(chat, std::ssize(out->ids));
}

Error fit_conversation(Chat& chat, Prompt* out) {
  if (chat.overflow != Overflow::drop) return encode_conversation(chat, out);
  if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, chat.conversation, out)) return e;
  const int64_t capacity = chat.session->sequence.cache.capacity, tokens = std::ssize(out->ids);
  if (tokens + room_for_answer(chat) <= capacity) return {};
  int64_t turns = 0;
  if (Error e = drop_turns(chat, out, &turns)) return e;
  const int64_t left = std::ssize(out->ids);
  if (left >= capacity) return no_longer_fits(chat, left);
  if (turns > 0) tell_of_dropped_turns(turns, tokens - left, tokens);
  return {};
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
