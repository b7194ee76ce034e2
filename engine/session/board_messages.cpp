#include "engine/session/board_messages.h"

namespace pinion {

void Followers::begin(BoardCommand command) {
  message_.begin(command);
  message_.add(id_);
}

Error Followers::open(Exchange* exchange, const RunnerSize& size) {
  if (!exchange) return {};
  static int64_t opened = 0;  // one thread at a time uses the exchange
  id_ = ++opened;
  exchange_ = exchange;
  begin(BoardCommand::open);
  message_.add(size.tokens);
  message_.add(size.positions);
  message_.add(static_cast<int64_t>(size.kv));
  message_.add(size.blocks);
  exchange_->broadcast(message_.bytes());
  return agree(*exchange_, {});
}

// Adds frequencies only if they differ from the last ones: most sequences and passes have the same.
void Followers::add_ropes(std::span<const RopeFrequencies> ropes) {
  const bool are_same = std::ranges::equal(ropes, ropes_);
  message_.add(are_same);
  if (are_same) return;
  ropes_.assign(ropes.begin(), ropes.end());
  message_.add(std::ssize(ropes));
  for (const RopeFrequencies& rope : ropes) {
    message_.add_list(std::span<const float>(rope.inverse));
    message_.add_list(std::span(&rope.amplitude, 1));
  }
}

void read_ropes(MessageReader& message, std::vector<RopeFrequencies>* last) {
  if (message.number() != 0) return;
  last->resize(message.number());
  for (RopeFrequencies& rope : *last) {
    std::vector<float> amplitude;
    message.list(&rope.inverse);
    message.list(&amplitude);
    rope.amplitude = amplitude.front();
  }
}

void Followers::send_pass(std::span<const Segment> segments, bool is_profiled) {
  if (!exchange_) return;
  begin(BoardCommand::pass);
  message_.add(is_profiled);
  message_.add(std::ssize(segments));
  for (const Segment& segment : segments) {
    message_.add_list(std::span<const int32_t>(segment.cache->blocks));
    message_.add_list(segment.tokens);
    message_.add(segment.position);
    message_.add(segment.logit_rows);
    message_.add(segment.drafts);
    message_.add(segment.candidates);
    add_ropes(segment.ropes);
  }
  exchange_->broadcast(message_.bytes());
}

void Followers::send_copy(int32_t from, int32_t to) {
  if (!exchange_) return;
  begin(BoardCommand::copy);
  message_.add(from);
  message_.add(to);
  exchange_->broadcast(message_.bytes());
}

std::vector<BoardProfile> profiles_of_all(Exchange& exchange, const Profile& own) {
  std::vector<BoardProfile> profiles(exchange.shares().ranks);
  BoardProfile& mean = profiles[exchange.shares().rank];
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
  gather_each(exchange, &profiles);
  return profiles;
}

std::vector<BoardProfile> Followers::profiles(const Profile& own) {
  if (!exchange_) return {};
  begin(BoardCommand::profile);
  exchange_->broadcast(message_.bytes());
  return profiles_of_all(*exchange_, own);
}

void Followers::close() {
  if (!exchange_) return;
  begin(BoardCommand::close);
  exchange_->broadcast(message_.bytes());
}

void send_load_options(Exchange& exchange, const LoadOptions& options) {
  MessageWriter message;
  message.begin(BoardCommand::load);
  message.add(static_cast<int64_t>(options.quant));
  message.add(options.head ? static_cast<int64_t>(*options.head) : -1);
  message.add(std::ssize(options.keep));
  for (const std::string& pattern : options.keep) message.add_text(pattern);
  message.add(options.rotate);
  message.add(options.ternary);
  message.add(options.synthetic_ternary);
  message.add(std::ssize(options.calibration));
  for (const CalibrationText& text : options.calibration) {
    message.add(text.added_tokens);
    message.add_list(std::span<const int32_t>(text.ids));
  }
  exchange.broadcast(message.bytes());
}

void read_load_options(MessageReader& message, LoadOptions* out) {
  out->quant = static_cast<Quant>(message.number());
  const int64_t head = message.number();
  out->head.reset();
  if (head >= 0) out->head = static_cast<Format>(head);
  out->keep.resize(message.number());
  for (std::string& pattern : out->keep) pattern = message.text();
  out->rotate = message.number() != 0;
  out->ternary = message.number() != 0;
  out->synthetic_ternary = message.number() != 0;
  out->calibration.resize(message.number());
  for (CalibrationText& text : out->calibration) {
    text.added_tokens = message.number();
    message.list(&text.ids);
  }
}

}  // namespace pinion
