// A conversation with a model, as `pinion chat` holds it.
#pragma once

#include "apps/cli/speculate.h"
#include "engine/session/session.h"
#include "tokenizer/templates/chat_template.h"

namespace pinion {

// Effect of a question that does not fit into the context.
enum class Overflow : uint8_t { drop, stop };
inline constexpr std::string_view kOverflowNames[] = {"drop", "stop"};

// A copy of the conversation, including an unfinished answer, that is saved if the program has to end. Thread-safe.
class ChatBackup {
 public:
  void set(const OrderedJson& messages);  // the whole conversation; an answer begins
  void add(std::string_view text);        // to the answer

  // Writes a new file in the format of /save to the user's state folder. Returns the name or the failure, for the end
  // of the message about the loss; nothing without messages.
  std::string save();

 private:
  std::mutex mutex_;
  OrderedJson messages_ = OrderedJson::array();
  std::string answer_;
};

struct ChatOptions {
  RunOptions run;
  SamplingFlags sampling;
  std::string speculate;  // empty: off
  std::string system;
  int64_t max_tokens = 0;  // 0: until the context is full
  int64_t context = 0;     // 0: as much as fits
  std::vector<std::string> stops;
  std::string prompt_cache;  // DIR[,SIZE]; empty: none
  Overflow overflow = Overflow::drop;
  bool hide_thinking = false, no_thinking = false, quiet = false;
};

struct Chat {
  const ChatOptions& options;
  std::shared_ptr<const Tokenizer> tokenizer = {};
  std::shared_ptr<const ChatTemplate> chat_template = {};
  SamplerOptions sampler = {};
  bool interactive = false;
  Runtime runtime = {};
  std::unique_ptr<Session> session = {};
  Drafting drafting = {};

  Conversation conversation = {};
  std::shared_ptr<ChatBackup> backup = std::make_shared<ChatBackup>();  // never null
  bool session_is_ahead = false;   // the session holds tokens that may no longer be part of the conversation
  GenerateResult last = {};        // of the last answer
  bool warned_of_context = false;  // that the context is nearly full
  bool failed = false;             // a turn or command failed, which becomes the exit status in a pipe
};

// Prints the failure of a turn or command; the chat continues.
void report_failure(Chat& chat, const std::string& message);

void add_message(const char* role, const std::string& text, Conversation* out);
void drop_last_message(Chat& chat);

void stop_answers_on_interrupt(Session* session);  // from now on Ctrl-C ends evaluation and generation early
void clear_interrupt();                            // before the next turn or command
void end_on_interrupt();                           // from now on Ctrl-C ends the program

// Fails if the conversation, which is a system message or empty, leaves no room for a question.
Error check_system_message(const Chat& chat);

// The conversation as token ids. Fails unless they fit the context.
Error encode_conversation(Chat& chat, Prompt* out);

// Makes room for an answer first by dropping the oldest turns, with a note. May change the conversation and fail.
Error fit_conversation(Chat& chat, Prompt* out);

// generate() for a chat, until Ctrl-C or until on_token returns false.
Error generate_for(Chat& chat, const Prompt& prompt, const GenerateOptions& options,
                   const std::function<bool(int32_t)>& on_token);

// Prints the answer to the last message, or the rest of that message (Conversation::continue_final_message), and adds
// it to the conversation. After a failure, which is reported, the messages are those of `before`.
void answer_or_restore(Chat& chat, const OrderedJson& before);

}  // namespace pinion
