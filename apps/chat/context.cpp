// The end of a chat's context: warns before it, and drops the oldest turns to make room.
#include <algorithm>

#include "apps/chat/chat.h"
#include "apps/cli/turns.h"
#include "engine/forward/rope.h"

namespace pinion {
namespace {

constexpr int64_t kNearlyFullPercent = 80;

// Minimum number of free tokens for an answer.
int64_t room_for_answer(const Chat& chat) {
  const int64_t eighth = chat.session->sequence.cache.capacity / 8;
  return std::max<int64_t>(1, chat.max_tokens > 0 ? std::min(chat.max_tokens, eighth) : eighth);
}

void note_dropped_turns(int64_t turns, int64_t dropped, int64_t tokens) {
  note("the context is full: dropped " +
       (turns == 1 ? "the oldest turn" : "the " + std::to_string(turns) + " oldest turns") + ", " +
       std::to_string(dropped) + " of " + std::to_string(tokens) + " tokens");
}

// Advice for `tokens` tokens that do not fit: a shorter text, or a larger context if the model has one.
std::string advice(const Chat& chat, bool may_be_shorter, int64_t tokens) {
  const int64_t max = context_length(chat.runtime.model->config);
  const std::string larger = tokens < max ? "--context N up to this model's " + std::to_string(max) : "";
  if (!may_be_shorter) return larger.empty() ? "" : "; give " + larger;
  return "; give a shorter one" + (larger.empty() ? "" : ", or " + larger);
}

// The tokens of the last message's text. Leaves *out empty unless that message is a question.
Error encode_question(const Chat& chat, const Conversation& conversation, std::vector<int32_t>* out) {
  const OrderedJson& last = conversation.messages.back();
  if (!has_role(last, "user") || !last.contains("content") || !last["content"].is_string()) return {};
  const EncodeOptions options = {.add_special = false, .parse_special = false};
  return encode(*chat.tokenizer, last["content"].get_ref<const std::string&>(), options, out);
}

// Fails if a conversation of one turn does not fit; the error tells whether any question would.
Error check_turn(const Chat& chat, const Conversation& conversation) {
  Prompt prompt;
  std::vector<int32_t> question;
  if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, conversation, &prompt)) return e;
  if (Error e = encode_question(chat, conversation, &question)) return e;
  const int64_t tokens = std::ssize(prompt.ids), capacity = chat.session->sequence.cache.capacity;
  const int64_t around = tokens - std::ssize(question);  // the system message and the template's own text
  const int64_t room = capacity - 1 - around;            // leaves one token for the answer
  if (tokens < capacity && room > 0) return {};
  const auto at_most = [](int64_t count) { return "at most " + std::to_string(count) + " tokens"; };
  if (question.empty()) {
    return error("the last turn alone does not fit" + advice(chat, false, tokens), "context", at_most(capacity - 1),
                 std::to_string(tokens));
  }
  if (room > 0) {
    return error("this question is too long" + advice(chat, true, tokens), "context", at_most(room),
                 std::to_string(question.size()));
  }
  if (has_role(conversation.messages.front(), "system")) {
    return error("the system message leaves no room for a question" + advice(chat, true, around + 1), "context",
                 at_most(capacity - 2), std::to_string(around));
  }
  return error("no room for a question" + advice(chat, false, around + 1), "context",
               "at least " + std::to_string(around + 2) + " tokens", std::to_string(capacity));
}

// The error for a conversation that does not fit, with advice.
Error no_longer_fits(const Chat& chat, int64_t tokens) {
  Conversation last_turn = chat.conversation;
  keep_last_turn(&last_turn.messages);
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
  // Until half of the context is free: the rest must be evaluated again, which should not happen for every question.
  int64_t turns = 0;
  if (Error e = drop_turns(*chat.chat_template, *chat.tokenizer, capacity / 2, EncodeOptions().max_tokens,
                           &chat.conversation, out, &turns)) {
    return e;
  }
  const int64_t left = std::ssize(out->ids);
  if (left >= capacity) return no_longer_fits(chat, left);
  if (turns > 0) note_dropped_turns(turns, tokens - left, tokens);
  return {};
}

void note_full_context(Chat& chat) {
  const int64_t capacity = chat.session->sequence.cache.capacity, used = std::ssize(chat.session->sequence.ids);
  const bool drops = chat.overflow == Overflow::drop;
  const bool is_nearly_full = used * 100 >= capacity * kNearlyFullPercent;
  if (chat.last.finish_reason == FinishReason::context) {
    note(std::string("the answer ends here: the context is full; ") +
         (drops ? "the next question drops the oldest turns" : "/reset starts a new conversation"));
  } else if (is_nearly_full && !chat.warned_of_context) {
    note(std::to_string(used * 100 / capacity) + " % of the context's " + std::to_string(capacity) +
         " tokens are used; " +
         (drops ? "soon the oldest turns are dropped, /save keeps them" : "/reset starts a new conversation") +
         ", --context has room for more");
  }
  chat.warned_of_context = is_nearly_full;
}

}  // namespace pinion
