#include "apps/serve/answer.h"

#include <utility>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr int64_t kLook_ms = 50;  // how often a silent connection is looked at

class Events {
 public:
  explicit Events(std::unique_ptr<Texts> texts) : texts_(std::move(texts)), left_(texts_->size()) {}

  // None: the client has gone.
  std::optional<TextEvent> next(const std::function<bool()>& is_open) {
    for (;;) {
      std::optional<TextEvent> event = texts_->take(kLook_ms);
      const double now = now_seconds();
      if (now - looked_seconds_ > 1e-3 * kLook_ms) {
        if (!is_open()) return {};
        looked_seconds_ = now;
      }
      if (!event) continue;
      if (event->failure) warn(event->failure.message());
      left_ -= event->is_end;
      return event;
    }
  }
  bool are_over() const { return left_ == 0; }

 private:
  std::unique_ptr<Texts> texts_;
  size_t left_;  // that have not ended
  double looked_seconds_ = now_seconds();
};

struct Streamed {
  Shape shape;
  Events events;
  std::unique_ptr<Answer> answer;
  TextEvent first;
};

// False: the client has gone.
bool stream(Streamed& of, Connection& connection) {
  std::string text = of.answer->begin();
  std::optional<TextEvent> event = std::move(of.first);
  while (event) {
    if (event->failure) return connection.write(error_event(of.shape, refusal_error(event->why, event->failure)));
    text += of.answer->put(*event);
    if (of.events.are_over()) text += of.answer->finish();
    if (!text.empty() && !connection.write(text)) return false;
    if (of.events.are_over()) return true;
    text.clear();
    event = of.events.next([&] { return connection.is_open(); });
  }
  return false;
}

}  // namespace

Reply answer_reply(const Serving& serving, Shape shape, const TextFields& fields, const HttpRequest& http,
                   std::unique_ptr<Texts> texts, std::unique_ptr<Answer> answer) {
  Reply reply;
  reply.headers = {{"X-Pinion-Fingerprint", serving.fingerprint},
                   {"X-Pinion-Weights", serving.weights},
                   {"X-Pinion-Seed", std::to_string(fields.options.sampler.seed)}};
  Events events(std::move(texts));
  while (!events.are_over()) {
    std::optional<TextEvent> event = events.next(http.is_open);
    if (!event) return error_reply(shape, {499, "the client has gone"});  // nobody reads it
    if (event->failure) return error_reply(shape, refusal_error(event->why, event->failure));
    if (fields.streams) {
      reply.type = shape == Shape::ollama ? "application/x-ndjson" : "text/event-stream";
      const auto streamed = std::make_shared<Streamed>(shape, std::move(events), std::move(answer), *std::move(event));
      reply.stream = [streamed](Connection& connection) { return stream(*streamed, connection); };
      return reply;
    }
    answer->put(*event);
  }
  reply.body = answer->finish();
  return reply;
}

}  // namespace pinion
