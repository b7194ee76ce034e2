#include "engine/runtime/follow.h"

#include <utility>

#include "engine/runtime/load_order.h"
#include "engine/session/follower.h"

namespace pinion {

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
