#include "engine/runtime/follow.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "engine/measure/statistics.h"
#include "engine/runtime/load_order.h"
#include "engine/session/follower.h"
#include "kernels/base/clock.h"

namespace pinion {

double rehearse(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds) {
  const Shares& shares = exchange.shares();
  int64_t most = 0;
  for (const int64_t size : sizes) most = std::max(most, std::abs(size));
  std::vector<std::byte> bytes(static_cast<size_t>(most));
  std::vector<int64_t> begins(static_cast<size_t>(shares.ranks) + 1);
  std::vector<double> seconds;
  for (int64_t round = 0; round < rounds; ++round) {
    numbers_of_all(exchange, 0);  // so that nobody begins early
    const double start = now_seconds();
    for (const int64_t size : sizes) {
      for (int32_t board = 0; board <= shares.ranks; ++board) {
        begins[static_cast<size_t>(board)] = shares.begin(std::abs(size), board);
      }
      size > 0 ? exchange.gather(bytes.data(), begins) : exchange.gather_on_first(bytes.data(), begins);
    }
    seconds.push_back(now_seconds() - start);
  }
  return median_of(std::move(seconds));
}

void follow(RuntimeOptions options) {
  Exchange& exchange = *options.exchange;
  std::unique_ptr<Runtime> runtime;
  Follower follower;
  for (std::vector<std::byte> message;;) {
    exchange.hear(&message);
    MessageReader reader(message);
    const auto order = static_cast<Order>(reader.number());
    if (order == Order::end) return;
    if (order == Order::rehearse) {
      const int64_t rounds = reader.number();
      std::vector<int64_t> sizes;
      reader.list(&sizes);
      rehearse(exchange, sizes, rounds);
      continue;
    }
    if (order != Order::load) {
      obey(follower, order, reader);
      continue;
    }
    read_load_order(reader, &options.load);
    follower = {};
    runtime = std::make_unique<Runtime>();
    [[maybe_unused]] const Error of_any = open_runtime(options, runtime.get());  // the first board says it
    follower.model = runtime->model.get();
    follower.team = runtime->team.get();
    follower.prefill_team = runtime->prefill_team.get();
    follower.kernels = runtime->kernels;
  }
}

double rehearse_on_all(Exchange& exchange, std::span<const int64_t> sizes, int64_t rounds) {
  MessageWriter message;
  message.begin(Order::rehearse);
  message.add(rounds);
  message.add_list(sizes);
  exchange.tell(message.bytes());
  return rehearse(exchange, sizes, rounds);
}

void end_following(Exchange& exchange) {
  MessageWriter message;
  message.begin(Order::end);
  exchange.tell(message.bytes());
}

}  // namespace pinion
