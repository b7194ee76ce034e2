// Boards as threads of one process.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/boards/exchange.h"
#include "engine/runtime/follow.h"
#include "engine/runtime/load.h"

namespace pinion {

// State shared by the boards.
struct Hub {
  explicit Hub(int32_t ranks) : all(ranks), buffers(ranks) {}

  std::barrier<> all;
  std::vector<std::byte*> buffers;  // [ranks] of the current call
  std::vector<std::byte> message;
};

class ThreadExchange final : public Exchange {
 public:
  ThreadExchange(const Shares& shares, Hub* hub) : Exchange(shares), hub_(*hub) {}

  void gather(std::byte* bytes, std::span<const int64_t> begins) override { take(bytes, begins, true); }
  void gather_on_first(std::byte* bytes, std::span<const int64_t> begins) override { take(bytes, begins, is_first()); }
  void broadcast(std::span<const std::byte> message) override {
    hub_.message.assign(message.begin(), message.end());
    hub_.all.arrive_and_wait();
    hub_.all.arrive_and_wait();
  }
  void receive(std::vector<std::byte>* message) override {
    hub_.all.arrive_and_wait();
    *message = hub_.message;
    hub_.all.arrive_and_wait();
  }
  [[noreturn]] void abort_all() override { std::abort(); }

 private:
  void take(std::byte* bytes, std::span<const int64_t> begins, bool wants) {
    hub_.buffers[shares().rank] = bytes;
    hub_.all.arrive_and_wait();
    for (size_t i = 0; wants && i < hub_.buffers.size(); ++i) {
      if (i != static_cast<size_t>(shares().rank)) {
        std::copy(hub_.buffers[i] + begins[i], hub_.buffers[i] + begins[i + 1], bytes + begins[i]);
      }
    }
    hub_.all.arrive_and_wait();
  }

  Hub& hub_;
};

// f(exchange) on each of so many boards at once. bounds: Shares::bounds.
template <class F>
void on_boards(int32_t ranks, int64_t unit, F f, const std::vector<double>& bounds = {}) {
  Hub hub(ranks);
  std::vector<std::thread> others;
  const auto run = [&](int32_t rank) {
    ThreadExchange exchange({rank, ranks, unit, bounds}, &hub);
    f(exchange);
  };
  for (int32_t rank = 1; rank < ranks; ++rank) others.emplace_back(run, rank);
  run(0);
  for (std::thread& other : others) other.join();
}

// Loads a model on all boards and calls f(model) on board 0; the others follow. sizes: receives the bytes of each
// board's packed weights; may be null.
template <class F>
void with_shared_model(const std::string& folder, const LoadOptions& options, int32_t ranks, int64_t unit, F f,
                       std::vector<int64_t>* sizes = nullptr, const std::vector<double>& bounds = {}) {
  if (sizes) sizes->resize(ranks);
  const auto run = [&](Exchange& exchange) {
    LoadOptions own = options;
    own.exchange = &exchange;
    std::unique_ptr<Model> model;
    const Error e = load_model(folder, own, &model);
    ASSERT_FALSE(e) << e.message();
    if (sizes) (*sizes)[exchange.shares().rank] = model->weight_bytes;
    if (exchange.is_first()) {
      f(*model);
      return stop_followers(exchange);
    }
    Team team({-1});
    const Kernels* kernels = nullptr;
    ASSERT_FALSE(select_kernels({}, &kernels));
    Follower follower = {model.get(), &team, &team, kernels};
    for (std::vector<std::byte> message;;) {
      exchange.receive(&message);
      MessageReader reader(message);
      const auto command = reader.read<BoardCommand>();
      if (command == BoardCommand::end) return;
      execute(follower, command, reader);
    }
  };
  on_boards(ranks, unit, run, bounds);
}

}  // namespace pinion
