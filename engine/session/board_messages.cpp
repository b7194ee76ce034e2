#include "engine/session/board_messages.h"

#include <tuple>

namespace pinion {

template <class... T>
void Followers::send(BoardCommand command, const T&... values) {
  message_.begin(command, id_, values...);
  exchange_->broadcast(message_.bytes());
}

Error Followers::open(Exchange* exchange, const RunnerSize& size) {
  if (!exchange) return {};
  static int64_t opened = 0;  // one thread at a time uses the exchange
  id_ = ++opened;
  exchange_ = exchange;
  send(BoardCommand::open, size);
  return agree(*exchange_, {});
}

// Adds frequencies only if they differ from the last ones: most sequences and passes have the same.
void Followers::add_ropes(std::span<const RopeFrequencies> ropes) {
  const bool are_same = std::ranges::equal(ropes, ropes_);
  message_.add(are_same);
  if (are_same) return;
  ropes_.assign(ropes.begin(), ropes.end());
  message_.add(std::ssize(ropes));
  for (const RopeFrequencies& rope : ropes) message_.add(rope.inverse, rope.amplitude);
}

void read_ropes(MessageReader& message, std::vector<RopeFrequencies>* last) {
  if (message.read<bool>()) return;
  last->resize(message.read<int64_t>());
  for (RopeFrequencies& rope : *last) message.read(rope.inverse, rope.amplitude);
}

void Followers::send_pass(std::span<const Segment> segments, bool is_profiled) {
  if (!exchange_) return;
  message_.begin(BoardCommand::pass, id_, is_profiled, std::ssize(segments));
  for (const Segment& segment : segments) {
    message_.add(segment.cache->blocks, segment.tokens, segment.position, segment.logit_rows, segment.drafts,
                 segment.candidates);
    add_ropes(segment.ropes);
  }
  exchange_->broadcast(message_.bytes());
}

void Followers::send_copy(int32_t from, int32_t to) {
  if (exchange_) send(BoardCommand::copy, from, to);
}

std::vector<BoardProfile> profiles_of_all(Exchange& exchange, const Profile& own) {
  BoardProfile mean;
  mean.exchange_ns = own.exchange_ns;
  int64_t workers = 0;
  for (const WorkerProfile& worker : own.workers) {
    int64_t all_ns = 0;
    for (size_t i = 0; i < kStages; ++i) {
      mean.stages[i].work_ns += worker.stages[i].work_ns;
      mean.stages[i].wait_ns += worker.stages[i].wait_ns;
      all_ns += worker.stages[i].work_ns + worker.stages[i].wait_ns;
    }
    workers += all_ns > 0;
  }
  for (StageTime& stage : mean.stages) {
    stage.work_ns /= std::max<int64_t>(1, workers);
    stage.wait_ns /= std::max<int64_t>(1, workers);
  }
  return values_of_all(exchange, mean);
}

std::vector<BoardProfile> Followers::profiles(const Profile& own) {
  if (!exchange_) return {};
  send(BoardCommand::profile);
  return profiles_of_all(*exchange_, own);
}

void Followers::close() {
  if (exchange_) send(BoardCommand::close);
}

namespace {

auto sent_options(auto& o) {
  return std::tie(o.quant, o.head, o.keep, o.lora, o.rotate, o.ternary, o.synthetic_ternary);
}

}  // namespace

void send_load_options(Exchange& exchange, const LoadOptions& options) {
  MessageWriter message;
  message.begin(BoardCommand::load);
  std::apply([&](const auto&... values) { message.add(values...); }, sent_options(options));
  message.add(std::ssize(options.calibration));
  for (const CalibrationText& text : options.calibration) message.add(text.ids, text.added_tokens);
  exchange.broadcast(message.bytes());
}

void read_load_options(MessageReader& message, LoadOptions* out) {
  std::apply([&](auto&... values) { message.read(values...); }, sent_options(*out));
  out->calibration.resize(message.read<int64_t>());
  for (CalibrationText& text : out->calibration) message.read(text.ids, text.added_tokens);
}

}  // namespace pinion
