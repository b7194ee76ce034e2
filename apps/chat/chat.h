// A conversation with a model, as `pinion chat` holds it.
#pragma once

#include <memory>
#include <string>

#include "apps/chat/last_words.h"
#include "apps/cli/common.h"
#include "apps/cli/speculate.h"
#include "engine/session/generate.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// What happens to a conversation that no longer fits into the context.
enum class Overflow : uint8_t { drop, stop };
inline constexpr std::string_view kOverflowNames[] = {"drop", "stop"};

struct Chat {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;
  SamplerOptions sampler;
  int64_t max_tokens = 0;  // 0: until the context is full
  std::vector<std::string> stops;
  Overflow overflow = Overflow::drop;
  bool interactive = false;
  bool hide_thinking = false;
  Runtime runtime;
  std::unique_ptr<Session> session;
  Drafting drafting;

  Conversation conversation;
  // Of it, and of the answer under way; never null.
  std::shared_ptr<LastWords> last_words = std::make_shared<LastWords>();
  bool took_back = false;        // something since the last answer: the session may hold more than the conversation
  GenerateResult last;           // of the turn before
  bool told_of_context = false;  // that it is nearly full
  bool failed = false;           // a turn or a command: in a pipe the exit status tells
};

// A failure; the chat goes on.
void complain(Chat& chat, const std::string& message);

void add_message(const char* role, const std::string& text, Conversation* out);

void stop_answers_on_interrupt(Session* session);  // Ctrl-C from now on: prompts and answers end early
void clear_interrupt();                            // before it does something new
void end_on_interrupt();                           // Ctrl-C from now on: the program ends

// Whether the conversation, a system message or nothing, leaves room for a question.
Error check_system_message(const Chat& chat);

// The conversation as token ids, checked to fit the context.
Error encode_conversation(Chat& chat, Prompt* out);

// The same with room for an answer: the oldest turns are dropped for it, if they may be, and a note says so. After an
// error the caller puts the conversation back.
Error fit_conversation(Chat& chat, Prompt* out);

// A note after an answer that ended with the context, or the first time that the context is nearly full.
void tell_of_full_context(Chat& chat);

// generate for a chat, until Ctrl-C or until on_token returns false.
Error generate_for(Chat& chat, const Prompt& prompt, const GenerateOptions& options,
                   const std::function<bool(int32_t)>& on_token);

// Prints the answer to the last message as it comes, and adds it to the conversation.
Error answer_last_message(Chat& chat);

// What commands that begin with / do. Failures are notes, and then nothing has changed.
void save_conversation(Chat& chat, const std::string& file);
void load_conversation(Chat& chat, const std::string& file);
void regenerate_answer(Chat& chat, const std::string&);
void undo_turn(Chat& chat, const std::string&);

}  // namespace pinion
