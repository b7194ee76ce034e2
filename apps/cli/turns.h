// Turns of a conversation: each is a question with all messages up to the next one. System messages come before them.
#pragma once

#include <cstdint>

#include "tokenizer/templates/chat_template.h"

namespace pinion {

bool has_role(const nlohmann::ordered_json& message, const char* role);
bool ends_with_role(const nlohmann::ordered_json& messages, const char* role);  // the last message has it

// Drops the fewest of the oldest turns, never the last one, whose absence leaves at most `wanted` tokens. The remaining
// prompt has at most `max_tokens` (see EncodeOptions), or the error is that of make_prompt().
Error drop_turns(const ChatTemplate& chat_template, const Tokenizer& tokenizer, int64_t wanted, int64_t max_tokens,
                 Conversation* conversation, Prompt* prompt, int64_t* dropped);

void keep_last_turn(nlohmann::ordered_json* messages);

}  // namespace pinion
