// One answer: the prompt, the tokens as they come, thoughts apart from what is said.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "apps/chat/chat.h"
#include "apps/chat/word_wrap.h"
#include "kernels/base/clock.h"
#include "tokenizer/answers/answer_text.h"
#include "tokenizer/answers/thinking.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

// What stands around a thought on a terminal: it is dimmed there, if that is welcome.
struct ThoughtMarks {
  const char *begin, *end;
};
constexpr ThoughtMarks kDimmed = {"\x1b[2m", "\x1b[0m\n\n"};
constexpr ThoughtMarks kWritten = {"<think>\n", "\n</think>\n\n"};

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

// Shows an answer up to where a stop text begins: thoughts dimmed on a terminal, as one line where they are hidden, and
// in a pipe as the model wrote them.
class AnswerPrinter {
 public:
  AnswerPrinter(Chat& chat, bool inside_thought)
      : chat_(chat),
        last_words_(*chat.last_words),
        answer_(chat.tokenizer, chat.stops, is_thinking_mark),
        splitter_(inside_thought),
        wrap_(chat.interactive ? terminal_columns() : 0),
        marks_(has_colour() ? kDimmed : kWritten),
        thought_start_seconds_(now_seconds()) {}

  // Whether the answer goes on.
  bool put(int32_t id) {
    if (splitter_.inside()) ++thought_tokens_;
    put_text(answer_.put(id));
    return !answer_.is_stopped();
  }

  // The whole answer, thoughts and marks included: templates cut it themselves, and would take a thought without an end
  // for the answer.
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
    last_words_.add(text);
    const std::vector<ThinkingPart> parts = splitter_.put(text);
    if (shows_as_written()) return print(text);
    show(parts);
  }

  bool shows_as_written() const { return !chat_.interactive && !chat_.hide_thinking; }

  void show(const std::vector<ThinkingPart>& parts) {
    for (const ThinkingPart& part : parts) show_part(part);
  }

  void show_part(const ThinkingPart& part) {
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
    std::array<char, 96> line;
    std::snprintf(line.data(), line.size(), "[thought %.1f s, %lld tokens]\n", now_seconds() - thought_start_seconds_,
                  static_cast<long long>(thought_tokens_));
    print(wrap_.put(line.data()));
  }

  const Chat& chat_;
  LastWords& last_words_;
  AnswerText answer_;
  ThinkingSplitter splitter_;
  WordWrap wrap_;
  ThoughtMarks marks_;
  std::string text_;
  bool in_thought_ = false;  // what was shown, or hidden, last
  int64_t thought_tokens_ = 0;
  double thought_start_seconds_;  // models think first
};

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
  const auto go_on = [&](int32_t id) { return on_token(id) && !interrupted; };
  GenerateResult result;
  if (Error e = generate(*chat.session, prompt.ids, options, go_on, &result)) return e;
  chat.last = std::move(result);
  return {};
}

Error answer_last_message(Chat& chat) {
  Prompt prompt;
  if (Error e = fit_conversation(chat, &prompt)) return e;
  GenerateOptions options;
  options.max_tokens = chat.max_tokens > 0 ? chat.max_tokens : chat.session->sequence.cache.capacity;
  options.sampler = chat.sampler;
  options.hash_logits = false;
  chat.sampler.seed += 1;  // or the same question would always get the same answer
  chat.last_words->set(chat.conversation.messages);
  AnswerPrinter printer(chat, ends_in_thought(prompt.text));
  chat.took_back = true;  // unless this comes to an end
  if (Error e = generate_for(chat, prompt, options, [&](int32_t id) { return printer.put(id); })) return e;
  add_message("assistant", printer.finish(), &chat.conversation);
  chat.last_words->set(chat.conversation.messages);
  chat.took_back = false;
  tell_failure(chat.drafting);
  tell_of_full_context(chat);
  return {};
}

}  // namespace pinion
