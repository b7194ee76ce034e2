// One answer: the prompt, the tokens as they come, thoughts apart from what is said.
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "apps/chat/chat.h"
#include "tokenizer/thinking.h"
#include "tokenizer/unicode.h"

namespace pinion {
namespace {

constexpr const char* kDim = "\x1b[2m";
constexpr const char* kNotDim = "\x1b[0m";

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

// Shows thoughts dimmed on a terminal, as one line where they are hidden, and in a pipe as the model wrote them.
class AnswerPrinter {
 public:
  AnswerPrinter(const Chat& chat, bool inside_thought)
      : chat_(chat), decoder_(chat.tokenizer), splitter_(inside_thought), thought_start_seconds_(now_seconds()) {}

  void put(int32_t id) {
    if (splitter_.inside()) ++thought_tokens_;
    // Some vocabularies have the marks as special tokens, which the decoder leaves out.
    const std::string token = token_text(*chat_.tokenizer, id);
    const bool is_special_mark = is_thinking_mark(token) && is_special(*chat_.tokenizer, id);
    put_text(is_special_mark ? decoder_.finish() + token : decoder_.put(id));
  }

  // The whole answer, thoughts and marks included: templates cut it themselves, and would take a thought without an end
  // for the answer.
  std::string finish() {
    put_text(decoder_.finish());
    if (!shows_as_written()) show(splitter_.finish());
    leave_thought();
    print("\n");
    return splitter_.inside() ? text_ + "\n</think>\n\n" : text_;
  }

 private:
  void put_text(const std::string& text) {
    text_ += text;
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
      return print(part.text);
    }
    if (!chat_.hide_thinking) print((in_thought_ ? "" : kDim) + part.text);
    in_thought_ = true;
  }

  void leave_thought() {
    if (!in_thought_) return;
    in_thought_ = false;
    if (!chat_.hide_thinking) return print(std::string(kNotDim) + "\n\n");
    std::array<char, 96> line;
    std::snprintf(line.data(), line.size(), "[thought %.1f s, %lld tokens]\n", now_seconds() - thought_start_seconds_,
                  static_cast<long long>(thought_tokens_));
    print(line.data());
  }

  const Chat& chat_;
  StreamDecoder decoder_;
  ThinkingSplitter splitter_;
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

void clear_interrupt() { interrupted = false; }

Error encode_conversation(const Chat& chat, Prompt* out) {
  if (Error e = make_prompt(*chat.chat_template, *chat.tokenizer, chat.conversation, out)) return e;
  const int64_t capacity = chat.session->cache.capacity;
  if (std::ssize(out->ids) < capacity) return {};
  return error("the conversation no longer fits; /reset starts a new one", "context",
               "fewer than " + std::to_string(capacity) + " tokens", std::to_string(out->ids.size()));
}

Error generate_for(Chat& chat, const Prompt& prompt, const GenerateOptions& options,
                   const std::function<void(int32_t)>& on_token) {
  const auto go_on = [&](int32_t id) {
    on_token(id);
    return !interrupted;
  };
  GenerateResult result;
  if (Error e = generate(*chat.session, prompt.ids, options, go_on, &result)) return e;
  chat.last = std::move(result);
  return {};
}

Error answer_last_message(Chat& chat) {
  Prompt prompt;
  if (Error e = encode_conversation(chat, &prompt)) return e;
  GenerateOptions options;
  options.max_tokens = chat.max_tokens > 0 ? chat.max_tokens : chat.session->cache.capacity;
  options.sampler = chat.sampler;
  options.hash_logits = false;
  chat.sampler.seed += 1;  // or the same question would always get the same answer
  AnswerPrinter printer(chat, ends_in_thought(prompt.text));
  chat.took_back = true;  // unless this comes to an end
  if (Error e = generate_for(chat, prompt, options, [&](int32_t id) { printer.put(id); })) return e;
  add_message("assistant", printer.finish(), &chat.conversation);
  chat.took_back = false;
  if (chat.last.finish_reason == FinishReason::context) note("the context is full; /reset starts a new conversation");
  return {};
}

}  // namespace pinion
