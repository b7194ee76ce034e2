// Thread-safe front of the scheduler: any thread submits requests, one thread runs the passes. Concurrent requests
// change no byte of each other's output; each gets the text that `pinion generate` gives.
#pragma once

#include <array>
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

#include "engine/session/scheduler.h"
#include "tokenizer/answers/answer_text.h"
#include "tokenizer/answers/tool_calls.h"

namespace pinion {

struct InferenceRequest {
  std::vector<int32_t> prompt;
  GenerateOptions options;
  std::vector<std::string> stops;                            // strings that end the text
  std::function<bool(std::string_view token)> is_mark = {};  // see AnswerText
  std::shared_ptr<const ToolCallOptions> single_call = {};   // not null: the text ends after its first tool call
  bool continues_prompt = false;                             // the text's leading blank is kept
  bool includes_stop = false;                                // the text ends with the stop string
  bool is_pinned = false;                                    // see TextRequest
  // Not null: the request is for hidden states, not for a text; see TextRequest. Called by the engine's thread.
  std::function<void(int64_t first, std::span<const float> rows)> on_hidden = {};
  bool needs_all_hidden = false;
};

enum class FailureKind : uint8_t {
  none,
  invalid,     // the request is at fault
  queue_full,  // too many requests wait
  draining,    // the server is shutting down
  internal,    // the client cannot do anything about it
};

// Result of one token of a request, or its end.
struct RequestEvent {
  size_t choice = 0;      // index in the group
  std::string text = {};  // complete characters; empty while a character or a stop string may be incomplete
  std::optional<int32_t> id = {};
  std::optional<Logprobs> logprobs = {};
  std::vector<Logprobs> prompt_logprobs = {};  // in the first event, if requested
  bool is_end = false;                         // last event of the request; only then the fields below are set
  std::string stop_text = {};                  // the stop string that ended the text
  Error failure = {};
  FailureKind failure_kind = FailureKind::none;
  GenerateResult result = {};
};

class InferenceService;

// The thread that runs the passes of all models: one team of cores serves them by turns.
class EngineLoop {
 public:
  EngineLoop();
  ~EngineLoop();

  // Runs a pass of each service in turn until it is drained and every request has ended. `update` is called
  // between passes and may replace the services.
  void run(const std::function<void(std::vector<InferenceService*>*)>& update);

  // Any thread; async-signal-safe. The first SIGTERM or SIGINT refuses new requests, the second one also ends the
  // running ones. After SIGHUP took_hang_up() returns true once.
  void signal(int number);
  void wake();
  bool is_draining() const { return drain_calls_.load() > 0; }
  bool is_stopping() const { return drain_calls_.load() > 1; }
  bool took_hang_up() { return has_hung_up_.exchange(false); }
  const std::atomic<bool>& has_news() const { return has_news_; }  // aborts the bandwidth measurement

 private:
  int wake_up_;  // eventfd: signal handlers may write to it
  std::atomic<int> drain_calls_{0};
  std::atomic<bool> has_news_{false}, has_hung_up_{false};
};

// The requests of one HTTP request, one per choice. The destructor cancels those that run, after the current pass.
class RequestGroup {
 public:
  ~RequestGroup();
  RequestGroup(const RequestGroup&) = delete;
  RequestGroup& operator=(const RequestGroup&) = delete;

  // Blocks, and calls `is_connected` every 50 ms. Nothing: it has returned false, so the client is gone.
  std::optional<RequestEvent> next_event(const std::function<bool()>& is_connected);
  bool is_over() const { return running_ == 0; }  // all requests have ended

 private:
  friend class InferenceService;
  struct EventQueue {
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<RequestEvent> events;
    std::atomic<bool> is_out_of_memory{false};  // an event was lost: all requests of the group fail

    void put(RequestEvent event);
    void fail();  // allocates nothing
  };
  // State of one request from submission to its last event.
  struct Request {
    Request(InferenceRequest request, size_t index, std::shared_ptr<const Tokenizer> tokenizer,
            std::shared_ptr<EventQueue> events)
        : input(std::move(request)),
          choice(index),
          text(std::move(tokenizer), input.stops, input.is_mark, !input.continues_prompt),
          queue(std::move(events)) {
      if (input.single_call) call_parser.emplace(*input.single_call);
    }

    InferenceRequest input;
    size_t choice;
    AnswerText text;
    std::optional<ToolCallParser> call_parser;
    std::shared_ptr<EventQueue> queue;
    double submit_seconds = 0, last_token_seconds = 0;
    int64_t id = -1;        // of the scheduler; engine thread only
    bool is_ended = false;  // engine thread only
  };

  RequestGroup() = default;

  InferenceService* service_ = nullptr;
  std::shared_ptr<EventQueue> queue_ = std::make_shared<EventQueue>();
  std::vector<std::shared_ptr<Request>> requests_;
  size_t running_ = 0;          // requests whose last event was not returned yet
  double checked_seconds_ = 0;  // start, then the last call of is_connected
};

// Histogram with Prometheus' bucket bounds.
struct Histogram {
  static constexpr std::array<double, 13> kBounds_s = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                       1,     2.5,  5,     10,   30,  120};
  std::array<int64_t, kBounds_s.size()> counts{};  // values in (previous bound, bound]
  int64_t count = 0;
  double sum_s = 0;

  void add(double seconds);
};

// GET /metrics shows these. Counters grow from the start of the server.
struct ServiceMetrics {
  int64_t running = 0, waiting = 0;  // requests, now
  int64_t finished = 0;              // requests, including failed ones
  int64_t cancelled = 0;             // requests of disconnected clients
  int64_t refused = 0;               // submissions that found the queue full
  int64_t prompt_tokens = 0;         // of finished requests
  int64_t cached_tokens = 0;         // the part of prompt_tokens that the KV cache held
  int64_t tokens = 0;                // generated
  int64_t passes = 0;
  int64_t preempted = 0;
  int64_t snapshot_bytes = 0, snapshots_taken = 0, snapshots_evicted = 0;  // of recurrent states
  PromptCacheCounts prompt_cache;
  double busy_seconds = 0;           // spent in passes
  double weight_bytes = 0;           // read by passes
  Histogram first_token_s;           // from submission to the first token
  Histogram token_s;                 // between consecutive tokens of a request
  double roof_bytes_per_second = 0;  // read bandwidth of the memory; 0: not measured
};

struct ServiceOptions {
  int64_t max_waiting = 64;       // requests beyond those that run
  bool speculates = false;        // requests have drafts
  int64_t roof_buffer_bytes = 0;  // buffer for the bandwidth measurement
  std::shared_ptr<EngineLoop> engine = std::make_shared<EngineLoop>();
};

class InferenceService {
 public:
  InferenceService(std::unique_ptr<Scheduler> scheduler, std::shared_ptr<const Tokenizer> tokenizer,
                   const ServiceOptions& options);

  // Any thread. Submits all requests or none. Errors: a prompt that exceeds the context or the vocabulary, options out
  // of range (invalid), no room (queue_full), shutdown (draining).
  Error submit(std::vector<InferenceRequest> requests, std::unique_ptr<RequestGroup>* out, FailureKind* kind);
  const Model& model() const { return *scheduler_->model; }
  int64_t context() const { return scheduler_->options.context; }
  int64_t parallel() const { return scheduler_->options.sequences; }
  int64_t untouched_bytes() const { return pinion::untouched_bytes(*scheduler_); }
  int64_t max_requests() const { return scheduler_->options.sequences + options_.max_waiting; }
  // The first call with measures_roof starts the bandwidth measurement, which runs while the engine is idle; its result
  // is 0 until then.
  ServiceMetrics metrics(bool measures_roof = true);
  void resume(const ServiceMetrics& counted);  // before the first pass: goes on from an earlier service of this model

 private:
  using Request = RequestGroup::Request;
  friend class EngineLoop;
  friend class RequestGroup;
  bool run_pass();                   // false: no request runs
  bool is_over();                    // no request runs or will be admitted
  bool measure_roof_if_requested();  // true: it was measured or aborted
  void cancel(std::vector<std::shared_ptr<Request>> requests);
  void take_submissions();
  void fail_all();
  void start(const std::shared_ptr<Request>& request);
  void finish(Request& request, const Error& failure, GenerateResult result, FailureKind kind = FailureKind::internal);
  bool put_token(Request& request, int32_t id, const GenerateResult& so_far);

  std::unique_ptr<Scheduler> scheduler_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  ServiceOptions options_;
  std::vector<std::shared_ptr<Request>> active_;  // unfinished requests; engine thread only
  bool is_draft_failure_noted_ = false;           // engine thread only

  std::mutex mutex_;  // guards the members below
  std::vector<std::shared_ptr<Request>> submitted_;
  std::vector<std::shared_ptr<Request>> cancelled_;
  ServiceMetrics metrics_;
  bool is_over_ = false;  // run() has returned
  bool is_roof_requested_ = false, is_roof_measured_ = false;
};

}  // namespace pinion
