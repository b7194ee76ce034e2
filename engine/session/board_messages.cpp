#include "engine/session/board_messages.h"

namespace pinion {

void Followers::begin(Order order) {
  message_.begin(order);
  message_.add(id_);
}

Error Followers::open(Exchange* exchange, const RunnerNeeds& needs) {
  if (!exchange) return {};
  static int64_t opened = 0;  // one thread at a time talks to the other boards
  id_ = ++opened;
  exchange_ = exchange;
  begin(Order::open);
  message_.add(needs.tokens);
  message_.add(needs.positions);
  message_.add(static_cast<int64_t>(needs.kv));
  message_.add(needs.blocks);
  exchange_->tell(message_.bytes());
  return agree(*exchange_, {});
}

// Most sequences have the same ones, pass after pass.
void Followers::add_ropes(std::span<const RopeFrequencies> ropes) {
  const bool are_known = std::ranges::equal(ropes, ropes_);
  message_.add(are_known);
  if (are_known) return;
  ropes_.assign(ropes.begin(), ropes.end());
  message_.add(std::ssize(ropes));
  for (const RopeFrequencies& rope : ropes) {
    message_.add_list(std::span<const float>(rope.inverse));
    message_.add_list(std::span(&rope.amplitude, 1));
  }
}

void read_ropes(MessageReader& message, std::vector<RopeFrequencies>* last) {
  if (message.number() != 0) return;
  last->resize(static_cast<size_t>(message.number()));
  for (RopeFrequencies& rope : *last) {
    std::vector<float> amplitude;
    message.list(&rope.inverse);
    message.list(&amplitude);
    rope.amplitude = amplitude.front();
  }
}

void Followers::tell_pass(std::span<const Segment> segments, bool is_profiled) {
  if (!exchange_) return;
  begin(Order::pass);
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
  exchange_->tell(message_.bytes());
}

void Followers::tell_copy(int32_t from, int32_t to) {
  if (!exchange_) return;
  begin(Order::copy);
  message_.add(from);
  message_.add(to);
  exchange_->tell(message_.bytes());
}

std::vector<BoardProfile> profiles_of_all(Exchange& exchange, const Profile& own) {
  std::vector<BoardProfile> each(static_cast<size_t>(exchange.shares().ranks));
  BoardProfile& mean = each[static_cast<size_t>(exchange.shares().rank)];
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
  gather_each(exchange, &each);
  return each;
}

std::vector<BoardProfile> Followers::profiles(const Profile& own) {
  if (!exchange_) return {};
  begin(Order::profile);
  exchange_->tell(message_.bytes());
  return profiles_of_all(*exchange_, own);
}

void Followers::close() {
  if (!exchange_) return;
  begin(Order::close);
  exchange_->tell(message_.bytes());
}

}  // namespace pinion
