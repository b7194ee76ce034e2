// A conversation with a model, as `pinion chat` holds it.
#pragma once

#include <memory>
#include <string>

#include "apps/cli/common.h"
#include "engine/session/generate.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace pinion {

struct Chat {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  SamplerOptions sampler;
  int64_t max_tokens = 0;  // 0: until the context is full
  bool interactive = false;
  bool hide_thinking = false;
  Runtime runtime;
  std::unique_ptr<Session> session;

  Conversation conversation;
  bool took_back = false;  // something since the last answer: the session may hold more than the conversation
  GenerateResult last;     // of the turn before
  bool failed = false;     // a turn or a command: in a pipe the exit status tells
};

// A note; the chat goes on.
void complain(Chat& chat, const std::string& message);

void add_message(const char* role, const std::string& text, Conversation* out);

void stop_answers_on_interrupt(Session* session);  // Ctrl-C from now on: prompts and answers end early
void clear_interrupt();                            // before it does something new

// The conversation as token ids, checked to fit the context.
Error encode_conversation(const Chat& chat, Prompt* out);

// generate for a chat, until Ctrl-C.
Error generate_for(Chat& chat, const Prompt& prompt, const GenerateOptions& options,
                   const std::function<void(int32_t)>& on_token);

// Prints the answer to the last message as it comes, and adds it to the conversation.
Error answer_last_message(Chat& chat);

// What commands that begin with / do. Failures are notes, and then nothing has changed.
void save_conversation(Chat& chat, const std::string& file);
void load_conversation(Chat& chat, const std::string& file);
void regenerate_answer(Chat& chat, const std::string&);
void undo_turn(Chat& chat, const std::string&);

}  // namespace pinion
