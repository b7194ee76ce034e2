#include "apps/serve/text_service.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "apps/cli/console.h"
#include "engine/measure/bandwidth.h"
#include "kernels/base/clock.h"

namespace pinion {
namespace {

Error no_memory() { return error("out of memory", "text"); }

// The thread of all texts does not end for what one of them has to say.
void unless_memory_runs_out(auto& mailbox, const auto& say) {
  try {
    say();
  } catch (const std::bad_alloc&) {
    mailbox.break_off();
  }
}

// Whether some call ends in what comes next.
bool ends_call(ToolCallParser& parser, std::string_view text) {
  const auto is_end = [](const ToolEvent& event) { return event.kind == ToolEvent::Kind::kCallEnded; };
  return std::ranges::any_of(parser.put(text), is_end);
}

// Tokens in the last one.
int64_t rows_of_pass(const Scheduler& scheduler) {
  int64_t rows = 0;
  for (const Segment& segment : scheduler.segments) rows += std::ssize(segment.tokens);
  return rows;
}

}  // namespace

void Texts::Mailbox::put(TextEvent event) {
  {
    const std::lock_guard lock(mutex);
    events.push_back(std::move(event));
  }
  filled.notify_one();
}

Texts::~Texts() {
  if (service_) service_->cancel(std::move(texts_));
}

// Takes no memory.
void Texts::Mailbox::break_off() {
  {
    const std::lock_guard lock(mutex);
    is_broken = true;
  }
  filled.notify_one();
}

std::optional<TextEvent> Texts::take(int64_t most_ms) {
  std::unique_lock lock(mailbox_->mutex);
  const auto is_filled = [&] { return mailbox_->is_broken || !mailbox_->events.empty(); };
  if (!mailbox_->filled.wait_for(lock, std::chrono::milliseconds(most_ms), is_filled)) return {};
  std::optional<TextEvent> event;
  if (mailbox_->is_broken) {
    event.emplace();
    event->is_end = true;
    event->failure = no_memory();
    event->why = Refusal::failed;
    return event;
  }
  event = std::move(mailbox_->events.front());
  mailbox_->events.pop_front();
  return event;
}

TextService::TextService(std::unique_ptr<Scheduler> scheduler, std::shared_ptr<const Tokenizer> tokenizer,
                         const ServiceOptions& options)
    : scheduler_(std::move(scheduler)),
      tokenizer_(std::move(tokenizer)),
      options_(options),
      wake_up_(eventfd(0, EFD_CLOEXEC)) {}

TextService::~TextService() { close(wake_up_); }

void TextService::wake() {
  is_called_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_up_, &one, sizeof one);
}

void TextService::sleep() const {
  uint64_t times;
  [[maybe_unused]] const ssize_t bytes = read(wake_up_, &times, sizeof times);
}

void TextService::drain() {
  const int interrupted = errno;  // of what a signal has come into
  drains_.fetch_add(1);
  wake();
  errno = interrupted;
}

Error TextService::submit(std::vector<TextOrder> orders, std::unique_ptr<Texts>* out, Refusal* why) {
  *why = Refusal::invalid;
  for (const TextOrder& order : orders) {
    if (Error e = check_prompt(scheduler_->model->config, order.prompt, context())) return e;
    if (Error e = check_generate_options(scheduler_->model->config, order.options)) return e;
  }
  auto texts = std::unique_ptr<Texts>(new Texts);
  const double now = now_seconds();
  for (size_t i = 0; i < orders.size(); ++i) {
    const auto& text =
        texts->texts_.emplace_back(std::make_shared<Texts::Text>(std::move(orders[i]), i, tokenizer_, texts->mailbox_));
    text->ordered_seconds = now;
  }
  {
    const std::lock_guard lock(mutex_);
    *why = Refusal::draining;
    if (is_draining() || is_over_) return error("the server is about to end", "");
    *why = Refusal::full;
    const int64_t waiting = metrics_.waiting + std::ssize(ordered_) + std::ssize(texts->texts_);
    const int64_t free_places = scheduler_->options.sequences - metrics_.running;
    if (waiting > options_.most_waiting + free_places) {
      ++metrics_.refused;
      return error("too many texts wait already", "", "at most " + std::to_string(options_.most_waiting));
    }
    ordered_.insert(ordered_.end(), texts->texts_.begin(), texts->texts_.end());
  }
  *why = Refusal::none;
  texts->service_ = this;
  *out = std::move(texts);
  wake();
  return {};
}

void TextService::cancel(std::vector<std::shared_ptr<Texts::Text>> texts) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over_) return;
    cancelled_.insert(cancelled_.end(), texts.begin(), texts.end());
  }
  wake();
}

ServiceMetrics TextService::metrics() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_roof_wanted_, true)) wake();
  return metrics_;
}

bool TextService::wants_roof() {
  const std::lock_guard lock(mutex_);
  return is_roof_wanted_ && !is_roof_measured_;
}

// Where it is stopped it begins anew, next time that there is nothing to do.
void TextService::measure_roof() {
  Team& team = *scheduler_->team;
  ReadBuffer buffer;
  buffer.stop = &is_called_;
  double roof = 0;  // stays so without memory for it
  if (!allocate_read_buffer(team, options_.roof_buffer_bytes, &buffer)) roof = read_bandwidth(team, buffer, 3);
  if (roof == 0 && buffer.is_stopped()) return;
  const std::lock_guard lock(mutex_);
  metrics_.roof_bytes_per_second = roof;
  is_roof_measured_ = true;
}

bool TextService::put_token(Texts::Text& text, int32_t id, const GenerateResult& so_far) {
  const double now = now_seconds();
  {
    const std::lock_guard lock(mutex_);
    ++metrics_.tokens;
    if (text.last_token_seconds == 0) {
      metrics_.first_token_s.add(now - text.ordered_seconds);
    } else {
      metrics_.token_s.add(now - text.last_token_seconds);
    }
  }
  text.last_token_seconds = now;
  bool goes_on = false;
  unless_memory_runs_out(*text.mailbox, [&] {
    TextEvent event{.choice = text.choice, .text = text.answer.put(id), .id = id};
    if (!so_far.logprobs.empty()) event.logprobs = so_far.logprobs.back();
    if (so_far.ids.size() == 1) event.prompt_logprobs = so_far.prompt_logprobs;
    goes_on = !text.answer.is_stopped() && !(text.calls && ends_call(*text.calls, event.text));
    text.mailbox->put(std::move(event));
  });
  return goes_on && !text.mailbox->is_broken;
}

void TextService::end(Texts::Text& text, const Error& failure, GenerateResult result, Refusal why) {
  text.is_ended = true;
  std::erase_if(active_, [&](const auto& other) { return other.get() == &text; });
  {
    const std::lock_guard lock(mutex_);
    ++metrics_.texts;
    metrics_.prompt_tokens += result.reused_tokens + result.prefilled_tokens;
    metrics_.cached_tokens += result.reused_tokens;
  }
  unless_memory_runs_out(*text.mailbox, [&] {
    TextEvent event{.choice = text.choice, .text = text.answer.finish(), .is_end = true};
    event.stop_text = text.answer.stop_text();
    event.failure = failure;
    if (failure) event.why = why;
    if (result.ids.empty()) event.prompt_logprobs = std::move(result.prompt_logprobs);
    event.result = std::move(result);
    text.mailbox->put(std::move(event));
  });
}

void TextService::start(const std::shared_ptr<Texts::Text>& text) {
  bool is_started = false;
  unless_memory_runs_out(*text->mailbox, [&] {
    active_.push_back(text);
    TextRequest request = {
        .prompt = std::move(text->order.prompt),
        .options = text->order.options,
        .speculate_ngram = options_.speculates,
        .on_token = [this, text](int32_t id, const GenerateResult& so_far) { return put_token(*text, id, so_far); },
        .on_end = [this, text](const Error& e, GenerateResult result) { end(*text, e, std::move(result)); }};
    if (Error e = pinion::submit(*scheduler_, std::move(request), &text->id)) end(*text, e, {});
    is_started = true;
  });
  if (!is_started) end(*text, no_memory(), {});
}

// What came from other threads since the last pass.
void TextService::take_orders() {
  is_called_ = false;
  std::vector<std::shared_ptr<Texts::Text>> ordered, cancelled;
  {
    const std::lock_guard lock(mutex_);
    ordered.swap(ordered_);
    metrics_.waiting += std::ssize(ordered);  // until the scheduler has counted them
    cancelled.swap(cancelled_);
  }
  for (const auto& text : ordered) start(text);
  int64_t gone = 0;
  for (const auto& text : cancelled) {
    if (text->is_ended) continue;
    gone += pinion::cancel(*scheduler_, text->id);
    text->is_ended = true;
    std::erase(active_, text);
  }
  const std::lock_guard lock(mutex_);
  metrics_.cancelled += gone;
  metrics_.running = std::ssize(scheduler_->running);
  metrics_.waiting = std::ssize(scheduler_->waiting);
}

void TextService::run() {
  struct AtEnd {  // also where memory runs out
    TextService* service;
    ~AtEnd() { service->end_all(); }
  } const at_end{this};
  while (drains_.load() < 2) {
    take_orders();
    const double begin = now_seconds();
    if (step(*scheduler_)) {
      const double seconds = now_seconds() - begin;
      const std::lock_guard lock(mutex_);
      metrics_.busy_seconds += seconds;
      metrics_.weight_bytes += static_cast<double>(scheduler_->model->bytes_per_pass(rows_of_pass(*scheduler_)));
      metrics_.passes = scheduler_->passes;
      metrics_.preempted = scheduler_->preempted;
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      is_over_ = is_draining() && ordered_.empty();
      if (is_over_) break;
    }
    if (wants_roof()) {
      measure_roof();
    } else {
      sleep();
    }
  }
}

void TextService::end_all() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  const Error over = error("the server has ended", "");
  for (const auto& text : std::exchange(ordered_, {})) end(*text, over, {}, Refusal::draining);
  while (!active_.empty()) end(*std::shared_ptr(active_.back()), over, {}, Refusal::draining);
}

}  // namespace pinion
