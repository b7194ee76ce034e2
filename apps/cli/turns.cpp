#include "apps/cli/turns.h"

#include <algorithm>

namespace pinion {
namespace {

using Messages = nlohmann::ordered_json;

bool is_question(const Messages& message) { return has_role(message, "user"); }

auto begin_of_turns(auto& messages) {
  return std::find_if_not(messages.begin(), messages.end(), [](const auto& each) { return has_role(each, "system"); });
}

int64_t count_turns(const Messages& messages) {
  if (!messages.is_array()) return 0;
  const auto first = begin_of_turns(messages);
  return first == messages.end() ? 0 : 1 + std::count_if(first + 1, messages.end(), is_question);
}

void drop_oldest(int64_t turns, Messages* messages) {
  const auto first = begin_of_turns(*messages);
  auto end = first;
  for (; turns > 0; --turns) end = std::find_if(end + 1, messages->end(), is_question);
  messages->erase(first, end);
}

}  // namespace

bool has_role(const Messages& message, const char* role) { return message.contains("role") && message["role"] == role; }

bool ends_with_role(const Messages& messages, const char* role) {
  return messages.is_array() && !messages.empty() && has_role(messages.back(), role);
}

void keep_last_turn(Messages* messages) { drop_oldest(std::max<int64_t>(0, count_turns(*messages) - 1), messages); }

// A binary search: rendering a long conversation once for each of its turns would take minutes.
Error drop_turns(const ChatTemplate& chat_template, const Tokenizer& tokenizer, int64_t wanted, int64_t max_tokens,
                 Conversation* conversation, Prompt* prompt, int64_t* dropped) {
  int64_t low = 0, high = std::max<int64_t>(0, count_turns(conversation->messages) - 1);
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    Conversation trial = *conversation;
    drop_oldest(middle, &trial.messages);
    const Error e = make_prompt(chat_template, tokenizer, trial, prompt, wanted);
    if (e && e.what != "too long") return e;
    if (e) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  drop_oldest(low, &conversation->messages);
  *dropped = low;
  return make_prompt(chat_template, tokenizer, *conversation, prompt, max_tokens);
}

}  // namespace pinion
