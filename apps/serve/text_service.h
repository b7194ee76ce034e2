// The engine behind a server: requests come from any thread, one thread runs the passes. Each text is the one that
// `pinion generate` would give alone: what runs beside it, and when, changes no byte.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "apps/serve/metrics.h"
#include "engine/session/scheduler.h"
#include "tokenizer/answers/answer_text.h"
#include "tokenizer/answers/tool_calls.h"

namespace pinion {

struct TextOrder {
  std::vector<int32_t> prompt;
  GenerateOptions options;
  std::vector<std::string> stops;
  std::function<bool(std::string_view token)> is_mark = {};  // see AnswerText
  std::shared_ptr<const ToolCallOptions> one_call = {};      // read so, the text ends behind its first call
  bool goes_on = false;                                      // with the text of the prompt
};

// Why an order was not taken, or a text has failed: `failed` where nobody who asked can do anything about it.
enum class Refusal : uint8_t { none, invalid, full, draining, failed };

// What a pass brought for one text of a request.
struct TextEvent {
  size_t choice = 0;  // its place in the request
  std::string text;   // may be empty: a stop text, or a character, may just be beginning
  std::optional<int32_t> id = {};
  std::optional<Logprobs> logprobs = {};
  std::vector<Logprobs> prompt_logprobs = {};  // where wanted, in the first event
  bool is_end = false;                         // the last one of this text; the rest is only for it
  std::string stop_text = {};                  // the one that has ended it
  Error failure = {};
  Refusal why = Refusal::none;  // it has failed
  GenerateResult result = {};
};

class TextService;

// The texts of one request. Those that have not ended when this goes are cancelled: at the latest after the pass that
// runs, a long prompt's chunk included.
class Texts {
 public:
  ~Texts();
  Texts(const Texts&) = delete;
  Texts& operator=(const Texts&) = delete;

  // The next event; none within `most_ms`: nothing.
  std::optional<TextEvent> take(int64_t most_ms);
  size_t size() const { return texts_.size(); }

 private:
  friend class TextService;
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<TextEvent> events;
    std::atomic<bool> is_broken{false};  // there was no memory for an event: all texts have failed

    void put(TextEvent event);
    void break_off();
  };
  // One text, from the order to its end.
  struct Text {
    Text(TextOrder asked, size_t place, std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<Mailbox> events)
        : order(std::move(asked)),
          choice(place),
          answer(std::move(tokenizer), order.stops, order.is_mark, !order.goes_on),
          mailbox(std::move(events)) {
      if (order.one_call) calls.emplace(*order.one_call);
    }

    TextOrder order;
    size_t choice;
    AnswerText answer;
    std::optional<ToolCallParser> calls;
    std::shared_ptr<Mailbox> mailbox;
    double ordered_seconds = 0, last_token_seconds = 0;
    int64_t id = -1;  // the scheduler's; this and the next are the engine thread's
    bool is_ended = false;
  };

  Texts() = default;

  TextService* service_ = nullptr;
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::vector<std::shared_ptr<Text>> texts_;
};

struct ServiceOptions {
  int64_t most_waiting = 64;      // texts that wait for a place among those that run
  bool speculates = false;        // texts draft from what they said before
  int64_t roof_buffer_bytes = 0;  // that the roof reads
};

class TextService {
 public:
  TextService(std::unique_ptr<Scheduler> scheduler, std::shared_ptr<const Tokenizer> tokenizer,
              const ServiceOptions& options);
  ~TextService();
  TextService(const TextService&) = delete;
  TextService& operator=(const TextService&) = delete;

  // From any thread: all of the texts or none. Errors: prompts that do not fit the context or the vocabulary
  // (invalid), no room (full), the program is about to end (draining).
  Error submit(std::vector<TextOrder> orders, std::unique_ptr<Texts>* out, Refusal* why);
  int64_t context() const { return scheduler_->options.context; }
  // The roof is measured once somebody has asked and while nothing is to be done, so the first answer is without it.
  ServiceMetrics metrics();

  // On the thread that opened the model: passes, until drain() was called and all texts have ended.
  void run();

  // From any thread and from signal handlers. The first call refuses what comes and lets the rest end; the second one
  // ends that, too.
  void drain();
  bool is_draining() const { return drains_.load() > 0; }
  bool is_hurried() const { return drains_.load() > 1; }
  // That may run and wait: a request for more can never be taken.
  int64_t most_texts() const { return scheduler_->options.sequences + options_.most_waiting; }

 private:
  friend class Texts;
  void cancel(std::vector<std::shared_ptr<Texts::Text>> texts);
  void wake();
  bool wants_roof();
  void measure_roof();
  void sleep() const;
  void take_orders();
  void end_all();
  void start(const std::shared_ptr<Texts::Text>& text);
  void end(Texts::Text& text, const Error& failure, GenerateResult result, Refusal why = Refusal::failed);
  bool put_token(Texts::Text& text, int32_t id, const GenerateResult& so_far);

  std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ServiceOptions options_;
  int wake_up_ = -1;  // an eventfd: signal handlers may write it
  std::atomic<int> drains_{0};
  std::atomic<bool> is_called_{false};                // since orders were taken last: what fills idle time gives way
  std::vector<std::shared_ptr<Texts::Text>> active_;  // the engine thread's: those that have not ended

  std::mutex mutex_;  // of the rest
  std::vector<std::shared_ptr<Texts::Text>> ordered_;
  std::vector<std::shared_ptr<Texts::Text>> cancelled_;
  ServiceMetrics metrics_;
  bool is_over_ = false;  // run() has returned
  bool is_roof_wanted_ = false, is_roof_measured_ = false;
};

}  // namespace pinion
