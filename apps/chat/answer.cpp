// Generates and prints one answer, with thoughts set apart from the rest.
#include <atomic>
#include <csignal>

#include "apps/chat/chat.h"
#include "apps/chat/terminal.h"
#include "kernels/base/clock.h"
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

// Prints an answer up to the beginning of a stop text. Thoughts are dimmed on a terminal, unchanged in a pipe, and
// reduced to one line if hidden.
class AnswerPrinter {
 public:
  AnswerPrinter(Chat& chat, const Prompt& prompt)
      : chat_(chat),
        backup_(*chat.backup),
        answer_(chat.tokenizer, chat.stops, is_thinking_mark, prompt.continued_at == prompt.text.size()),
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

  // The whole answer with thoughts and marks, which templates remove themselves. Closes an unfinished thought, because
  // they would take it for the answer.
  std::string finish() {
    put_text(answer_.finish());
    if (!shows_as_written()) show(splitter_.finish());
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
    show(parts);
  }

  bool shows_as_written() const { return !chat_.interactive && !chat_.hide_thinking; }

  void show(const std::vector<ThinkingText>& parts) {
    for (const ThinkingText& part : parts) show_part(part);
  }

  void show_part(const ThinkingText& part) {
    if (!part.is_thought) {
      leave_thought();
      return print(wrap_.put(part.text));
    }
    if (!chat_.hide_thinking) {
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
    if (!chat_.hide_thinking) {
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

Error answer_last_message(Chat& chat) {
  Prompt prompt;
  if (Error e = fit_conversation(chat, &prompt)) return e;
  GenerateOptions options;
  options.max_tokens = chat.max_tokens > 0 ? chat.max_tokens : chat.session->sequence.cache.capacity;
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
