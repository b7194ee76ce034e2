#include "apps/serve/inference_service.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <new>

#include "apps/cli/speculate.h"
#include "engine/measure/bandwidth.h"

namespace pinion {
namespace {

Error out_of_memory() { return error("out of memory", "request"); }

// Runs `deliver`; a bad_alloc in it fails this group only. The engine thread, which serves all of them, goes on.
void deliver_or_fail(auto& queue, const auto& deliver) {
  try {
    deliver();
  } catch (const std::bad_alloc&) {
    queue.fail();
  }
}

}  // namespace

void Histogram::add(double seconds) {
  const auto bound = std::ranges::lower_bound(kBounds_s, seconds);
  if (bound != kBounds_s.end()) ++counts[bound - kBounds_s.begin()];
  ++count;
  sum_s += seconds;
}

void RequestGroup::EventQueue::put(RequestEvent event) {
  {
    const std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }
  filled.notify_one();
}

void RequestGroup::EventQueue::fail() {
  const std::lock_guard lock(mutex);
  is_out_of_memory = true;
  filled.notify_one();
}

RequestGroup::~RequestGroup() {
  if (service_) service_->cancel(std::move(requests_));
}

std::optional<RequestEvent> RequestGroup::next_event(const std::function<bool()>& is_connected) {
  constexpr std::chrono::milliseconds kInterval(50);
  const auto is_ready = [&] { return queue_->is_out_of_memory || !queue_->events.empty(); };
  for (;;) {
    std::unique_lock lock(queue_->mutex);
    const bool has_event = queue_->filled.wait_for(lock, kInterval, is_ready);
    lock.unlock();
    if (now_seconds() - checked_seconds_ > std::chrono::duration<double>(kInterval).count()) {
      if (!is_connected()) return {};
      checked_seconds_ = now_seconds();
    }
    if (has_event) break;
  }
  const std::lock_guard lock(queue_->mutex);
  RequestEvent event{.is_end = true, .failure = out_of_memory(), .failure_kind = FailureKind::internal};
  if (!queue_->is_out_of_memory) {
    event = std::move(queue_->events.front());
    queue_->events.pop_front();
  }
  if (event.failure) warn(event.failure.message());
  running_ -= event.is_end;
  return event;
}

InferenceService::InferenceService(std::unique_ptr<Scheduler> scheduler, std::shared_ptr<const Tokenizer> tokenizer,
                                   const ServiceOptions& options)
    : scheduler_(std::move(scheduler)), tokenizer_(std::move(tokenizer)), options_(options) {}

EngineLoop::EngineLoop() : wake_up_(eventfd(0, EFD_CLOEXEC)) {}
EngineLoop::~EngineLoop() { close(wake_up_); }

void EngineLoop::wake() {
  const int saved_errno = errno;  // of the code that a signal interrupted
  has_news_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_up_, &one, sizeof one);
  errno = saved_errno;
}

void EngineLoop::signal(int number) {
  if (number == SIGHUP) has_hung_up_ = true;
  if (number != SIGHUP) ++drain_calls_;
  wake();
}

void EngineLoop::run(const std::function<void(std::vector<InferenceService*>*)>& update) {
  std::vector<InferenceService*> services;
  struct FailRemaining {  // a destructor, because a pass may throw bad_alloc
    const std::vector<InferenceService*>& services;
    ~FailRemaining() { std::ranges::for_each(services, &InferenceService::fail_all); }
  } const fail_remaining{services};
  while (!is_stopping()) {
    has_news_ = false;
    const bool ends = is_draining();  // before `services`, so that a model which is loaded now is not missed
    update(&services);
    bool has_run = false;
    for (InferenceService* service : services) has_run |= service->run_pass();
    if (has_run) continue;
    if (ends && std::ranges::all_of(services, &InferenceService::is_over)) break;
    if (std::ranges::any_of(services, &InferenceService::measure_roof_if_requested)) continue;
    uint64_t wakes;
    [[maybe_unused]] const ssize_t bytes = read(wake_up_, &wakes, sizeof wakes);  // sleeps until wake()
  }
}

Error InferenceService::submit(std::vector<InferenceRequest> requests, std::unique_ptr<RequestGroup>* out,
                               FailureKind* kind) {
  *kind = FailureKind::invalid;
  for (const InferenceRequest& request : requests) {
    if (Error e = check_prompt(scheduler_->model->config, request.prompt, context())) return e;
    if (Error e = check_generate_options(scheduler_->model->config, request.options)) return e;
    if (Error e = request.on_hidden ? Error{} : check_writes_texts(scheduler_->model->config)) return e;
  }
  auto group = std::unique_ptr<RequestGroup>(new RequestGroup);
  const double now = now_seconds();
  for (size_t i = 0; i < requests.size(); ++i) {
    group->requests_.push_back(std::make_shared<Request>(std::move(requests[i]), i, tokenizer_, group->queue_));
    group->requests_.back()->submit_seconds = now;
  }
  group->running_ = requests.size();
  group->checked_seconds_ = now;
  {
    const std::lock_guard lock(mutex_);
    *kind = FailureKind::draining;
    if (options_.engine->is_draining() || is_over_) return error("the server is shutting down", "");
    *kind = FailureKind::queue_full;
    const int64_t waiting = metrics_.waiting + std::ssize(submitted_) + std::ssize(group->requests_);
    const int64_t free_slots = scheduler_->options.sequences - metrics_.running;
    if (waiting > options_.max_waiting + free_slots) {
      ++metrics_.refused;
      return error("too many requests are waiting", "", at_most(options_.max_waiting));
    }
    submitted_.insert(submitted_.end(), group->requests_.begin(), group->requests_.end());
  }
  *kind = FailureKind::none;
  group->service_ = this;
  *out = std::move(group);
  options_.engine->wake();
  return {};
}

void InferenceService::cancel(std::vector<std::shared_ptr<Request>> requests) {
  const std::lock_guard lock(mutex_);
  if (is_over_) return;
  cancelled_.insert(cancelled_.end(), requests.begin(), requests.end());
  options_.engine->wake();
}

ServiceMetrics InferenceService::metrics(bool measures_roof) {
  const std::lock_guard lock(mutex_);
  if (measures_roof && !std::exchange(is_roof_requested_, true)) options_.engine->wake();
  return metrics_;
}

void InferenceService::resume(const ServiceMetrics& counted) {
  const std::lock_guard lock(mutex_);
  metrics_ = counted;
  scheduler_->passes = counted.passes, scheduler_->preempted = counted.preempted;
  scheduler_->snapshots.taken = counted.snapshots_taken, scheduler_->snapshots.evicted = counted.snapshots_evicted;
  if (scheduler_->prompt_cache) scheduler_->prompt_cache->resume(counted.prompt_cache);
  is_roof_measured_ = counted.roof_bytes_per_second > 0;
}

// A new request aborts the measurement; it starts over when the engine is idle again.
bool InferenceService::measure_roof_if_requested() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_roof_requested_ || is_roof_measured_) return false;
  }
  Team& team = *scheduler_->team;
  ReadBuffer buffer;
  buffer.stop = &options_.engine->has_news();
  double roof = 0;  // stays 0 without memory for the buffer
  if (!allocate_read_buffer(team, options_.roof_buffer_bytes, &buffer)) roof = read_bandwidth(team, buffer, 3);
  if (roof == 0 && buffer.is_stopped()) return true;
  const std::lock_guard lock(mutex_);
  metrics_.roof_bytes_per_second = roof;
  return is_roof_measured_ = true;
}

// False: the text ends with this token.
bool InferenceService::put_token(Request& request, int32_t id, const GenerateResult& so_far) {
  const double now = now_seconds();
  {
    const std::lock_guard lock(mutex_);
    ++metrics_.tokens;
    const bool is_first = request.last_token_seconds == 0;
    (is_first ? metrics_.first_token_s : metrics_.token_s)
        .add(now - (is_first ? request.submit_seconds : request.last_token_seconds));
  }
  request.last_token_seconds = now;
  bool continues = false;
  deliver_or_fail(*request.queue, [&] {
    RequestEvent event{.choice = request.choice, .text = request.text.put(id), .id = id};
    if (!so_far.logprobs.empty()) event.logprobs = so_far.logprobs.back();
    if (so_far.ids.size() == 1) event.prompt_logprobs = so_far.prompt_logprobs;
    const auto ends_call = [](const ToolEvent& part) { return part.kind == ToolEvent::Kind::kCallEnded; };
    continues = !request.text.is_stopped() &&
                !(request.call_parser && std::ranges::any_of(request.call_parser->put(event.text), ends_call));
    request.queue->put(std::move(event));
  });
  return continues && !request.queue->is_out_of_memory;
}

void InferenceService::finish(Request& request, const Error& failure, GenerateResult result, FailureKind kind) {
  request.is_ended = true;
  note_draft_failure(*scheduler_, &is_draft_failure_noted_);
  std::erase_if(active_, [&](const auto& other) { return other.get() == &request; });
  {
    const std::lock_guard lock(mutex_);
    ++metrics_.finished;
    metrics_.prompt_tokens += result.reused_tokens + result.prefilled_tokens;
    metrics_.cached_tokens += result.reused_tokens;
  }
  deliver_or_fail(*request.queue, [&] {
    RequestEvent event{.choice = request.choice, .text = request.text.finish(), .is_end = true};
    event.stop_text = request.text.stop_text();
    if (request.input.includes_stop) event.text += event.stop_text;
    event.failure = failure;
    if (failure) event.failure_kind = kind;
    if (result.ids.empty()) event.prompt_logprobs = std::move(result.prompt_logprobs);
    event.result = std::move(result);
    request.queue->put(std::move(event));
  });
}

void InferenceService::start(const std::shared_ptr<Request>& request) {
  bool is_started = false;
  deliver_or_fail(*request->queue, [&] {
    active_.push_back(request);
    TextRequest order = {
        .prompt = std::move(request->input.prompt),
        .options = request->input.options,
        .speculates = options_.speculates,
        .is_pinned = request->input.is_pinned,
        .on_hidden = request->input.on_hidden,
        .needs_all_hidden = request->input.needs_all_hidden,
        .on_token = [this, request](int32_t id,
                                    const GenerateResult& so_far) { return put_token(*request, id, so_far); },
        .on_end = [this, request](const Error& e, GenerateResult result) { finish(*request, e, std::move(result)); }};
    if (Error e = pinion::submit(*scheduler_, std::move(order), &request->id)) finish(*request, e, {});
    is_started = true;
  });
  if (!is_started) finish(*request, out_of_memory(), {});
}

// Passes submissions and cancellations of other threads on to the scheduler.
void InferenceService::take_submissions() {
  std::vector<std::shared_ptr<Request>> submitted, cancelled;
  {
    const std::lock_guard lock(mutex_);
    submitted.swap(submitted_);
    metrics_.waiting += std::ssize(submitted);  // corrected below, once the scheduler has counted them
    cancelled.swap(cancelled_);
  }
  for (const auto& request : submitted) start(request);
  int64_t cancelled_count = 0;
  for (const auto& request : cancelled) {
    if (request->is_ended) continue;
    cancelled_count += pinion::cancel(*scheduler_, request->id);
    request->is_ended = true;
    std::erase(active_, request);
  }
  const std::lock_guard lock(mutex_);
  metrics_.cancelled += cancelled_count;
  metrics_.running = std::ssize(scheduler_->running);
  metrics_.waiting = std::ssize(scheduler_->waiting);
}

bool InferenceService::run_pass() {
  take_submissions();
  const double start_seconds = now_seconds();
  if (!step(*scheduler_)) return false;
  const double seconds = now_seconds() - start_seconds;
  int64_t rows = 0;
  for (const Segment& segment : scheduler_->segments) rows += std::ssize(segment.tokens);
  const std::lock_guard lock(mutex_);
  metrics_.busy_seconds += seconds;
  if (rows > 0) metrics_.weight_bytes += static_cast<double>(scheduler_->model->bytes_per_pass(rows));
  metrics_.passes = scheduler_->passes;
  metrics_.preempted = scheduler_->preempted;
  metrics_.snapshot_bytes = snapshot_bytes(scheduler_->snapshots);
  metrics_.snapshots_taken = scheduler_->snapshots.taken;
  metrics_.snapshots_evicted = scheduler_->snapshots.evicted;
  if (scheduler_->prompt_cache) metrics_.prompt_cache = scheduler_->prompt_cache->counts();
  return true;
}

bool InferenceService::is_over() {
  const std::lock_guard lock(mutex_);
  return is_over_ = options_.engine->is_draining() && submitted_.empty();
}

void InferenceService::fail_all() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  const Error over = error("the server has shut down", "");
  for (const auto& request : std::exchange(submitted_, {})) finish(*request, over, {}, FailureKind::draining);
  while (!active_.empty()) finish(*std::shared_ptr(active_.back()), over, {}, FailureKind::draining);
}

}  // namespace pinion
