// Generates and prints one answer, with thoughts set apart, and makes room for it in the context.
#include <csignal>

#include "apps/chat/chat.h"
#include "apps/chat/terminal.h"
#include "apps/cli/turns.h"
#include "kernels/base/text.h"
#include "tokenizer/answers/answer_text.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

// Printed around a thought on a terminal: dimmed, or marked if colours are off.
struct ThoughtMarks {
  const char *begin, *end;
};
constexpr ThoughtMarks kDimmed = {"\x1b[2m", "\x1b[0m\n\n"};
constexpr ThoughtMarks kWritten = {"<think>\n", "\n</think>\n\n"};

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

// Prints an answer up to a stop text. Thoughts are dimmed on a terminal, unchanged in a pipe, one line if hidden.
class AnswerPrinter {
 public:
  AnswerPrinter(Chat& chat, const Prompt& prompt)
      : chat_(chat),
        backup_(*chat.backup),
        answer_(chat.tokenizer, chat.options.stops, is_thinking_mark, prompt.continued_at == prompt.text.size()),
        splitter_(false),
        wrap_(chat.interactive ? terminal_columns() : 0),
        marks_(has_colour() ? kDimmed : kWritten),
        thought_start_seconds_(now_seconds()) {
    splitter_.put(opening_mark(std::string_view(prompt.text).substr(0, prompt.continued_at)));
    splitter_.put(std::string_view(prompt.text).substr(prompt.continued_at));
  }

  // Returns false after a stop text.
  bool put(int32_t id) {
    if (splitter_.inside()) ++thought_tokens_;
    put_text(answer_.put(id));
    return !answer_.is_stopped();
  }

  // The whole answer with thoughts, which templates remove: they would take an unfinished one for the answer.
  std::string finish() {
    put_text(answer_.finish());
    for (const ThinkingText& part : splitter_.finish()) {
      if (!shows_as_written()) show(part);
    }
    leave_thought();
    print(wrap_.flush() + "\n");
    return splitter_.inside() ? text_ + "\n" + std::string(splitter_.close_mark()) + "\n\n" : text_;
  }

 private:
  void put_text(const std::string& text) {
    text_ += text;
    backup_.add(text);
    const std::vector<ThinkingText> parts = splitter_.put(text);
    if (shows_as_written()) return print(text);
    for (const ThinkingText& part : parts) show(part);
  }

  bool shows_as_written() const { return !chat_.interactive && !chat_.options.hide_thinking; }

  void show(const ThinkingText& part) {
    if (!part.is_thought) {
      leave_thought();
      return print(wrap_.put(part.text));
    }
    if (!chat_.options.hide_thinking) {
      if (!in_thought_) {
        print(wrap_.flush());
        print_control(marks_.begin);
      }
      print(wrap_.put(part.text));
    }
    in_thought_ = true;
  }

  void leave_thought() {
    if (!in_thought_) return;
    in_thought_ = false;
    if (!chat_.options.hide_thinking) {
      print(wrap_.flush());
      print_control(marks_.end);
      wrap_ = WordWrap(chat_.interactive ? terminal_columns() : 0);
      return;
    }
    print(wrap_.put(formatted("[thought %.1f s, %lld tokens]\n", now_seconds() - thought_start_seconds_,
                              static_cast<long long>(thought_tokens_))));
  }

  const Chat& chat_;
  ChatBackup& backup_;
  AnswerText answer_;
  ThinkingSplitter splitter_;
  WordWrap wrap_;
  ThoughtMarks marks_;
  std::string text_;
  bool in_thought_ = false;  // state of the output, shown or hidden
  int64_t thought_tokens_ = 0;
  double thought_start_seconds_;  // start of the answer: models think first
};

constexpr int64_t kNearlyFullPercent = 80;

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
  const auto at_most = [](int64_t count) { return pinion::at_most(count) + " tokens"; };
  if (question.empty()) {
    return error("the last turn alone does not fit" + advice(chat, false, tokens), "context", at_most(capacity - 1),
                 tokens);
  }
  if (room > 0) {
    return error("this question is too long" + advice(chat, true, tokens), "context", at_most(room), question.size());
  }
  if (has_role(conversation.messages.front(), "system")) {
    return error("the system message leaves no room for a question" + advice(chat, true, around + 1), "context",
                 at_most(capacity - 2), around);
  }
  return error("no room for a question" + advice(chat, false, around + 1), "context", at_least(around + 2) + " tokens",
               capacity);
}

// The error for a conversation that does not fit, with advice.
Error no_longer_fits(const Chat& chat, int64_t tokens) {
  Conversation last_turn = chat.conversation;
  keep_last_turn(&last_turn.messages);
  if (Error e = check_turn(chat, last_turn)) return e;
  return error("the conversation no longer fits; /reset starts a new one", "context",
               "fewer than " + std::to_string(chat.session->sequence.cache.capacity) + " tokens", tokens);
}

// After an answer: a note if the context ended it, or once when the context is nearly full.
void note_full_context(Chat& chat) {
  const int64_t capacity = chat.session->sequence.cache.capacity, used = std::ssize(chat.session->sequence.ids);
  const bool drops = chat.options.overflow == Overflow::drop;
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

Error answer_last_message(Chat& chat) {
  Prompt prompt;
  if (Error e = fit_conversation(chat, &prompt)) return e;
  GenerateOptions options;
  options.max_tokens = chat.options.max_tokens > 0 ? chat.options.max_tokens : chat.session->sequence.cache.capacity;
  options.sampler = chat.sampler;
  options.hash_logits = false;
  chat.sampler.seed += 1;  // the same question should get different answers
  const std::string begun = prompt.text.substr(prompt.continued_at);
  if (chat.conversation.continue_final_message) drop_last_message(chat);
  chat.backup->set(chat.conversation.messages);
  chat.backup->add(begun);
  AnswerPrinter printer(chat, prompt);
  chat.session_is_ahead = true;  // until generation succeeds
  if (Error e = generate_for(chat, prompt, options, [&](int32_t id) { return printer.put(id); })) return e;
  add_message("assistant", begun + printer.finish(), &chat.conversation);
  chat.backup->set(chat.conversation.messages);
  chat.session_is_ahead = false;
  note_draft_failure(*chat.session, &chat.drafting.failure_noted);
  note_full_context(chat);
  return {};
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
  if (chat.options.overflow != Overflow::drop) return encode_conversation(chat, out);
  if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, chat.conversation, out)) return e;
  const int64_t capacity = chat.session->sequence.cache.capacity, tokens = std::ssize(out->ids);
  const int64_t max = chat.options.max_tokens, eighth = capacity / 8;
  const int64_t room_for_answer = std::max<int64_t>(1, max > 0 ? std::min(max, eighth) : eighth);
  if (tokens + room_for_answer <= capacity) return {};
  // Until half of the context is free: the rest must be evaluated again, which should not happen for every question.
  int64_t turns = 0;
  if (Error e = drop_turns(*chat.chat_template, *chat.tokenizer, capacity / 2, EncodeOptions().max_tokens,
                           &chat.conversation, out, &turns)) {
    return e;
  }
  const int64_t left = std::ssize(out->ids);
  if (left >= capacity) return no_longer_fits(chat, left);
  if (turns == 0) return {};
  const std::string dropped = turns == 1 ? "the oldest turn" : "the " + std::to_string(turns) + " oldest turns";
  note("the context is full: dropped " + dropped + ", " + std::to_string(tokens - left) + " of " +
       std::to_string(tokens) + " tokens");
  return {};
}

void add_message(const char* role, const std::string& text, Conversation* out) {
  out->messages.push_back({{"role", role}, {"content", to_utf8(text)}});
}

void stop_answers_on_interrupt(Session* session) {
  session->interrupted = &interrupted;
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = true; };
  sigaction(SIGINT, &action, nullptr);
}

void end_on_interrupt() { std::signal(SIGINT, SIG_DFL); }

void clear_interrupt() { interrupted = false; }

Error generate_for(Chat& chat, const Prompt& prompt, const GenerateOptions& options,
                   const std::function<bool(int32_t)>& on_token) {
  const auto put = [&](int32_t id) { return on_token(id) && !interrupted; };
  GenerateResult result;
  if (Error e = generate(*chat.session, prompt.ids, options, put, &result)) return e;
  chat.last = std::move(result);
  return {};
}

void answer_or_restore(Chat& chat, const OrderedJson& before) {
  const Error e = answer_last_message(chat);
  if (!e) return;
  report_failure(chat, e.message());
  chat.conversation.messages = before;
}

}  // namespace pinion
