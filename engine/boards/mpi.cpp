#include "engine/boards/exchange.h"

#include <cstdlib>

#ifdef PINION_MPI
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/text.h"
#endif

namespace pinion {

LaunchedProcess launched_process() {
  constexpr const char* kNames[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : kNames) {
    const char *own = std::getenv(rank), *count = std::getenv(size);
    if (own && count) return {std::atoi(own), std::max(1, std::atoi(count))};
  }
  return {};
}

#ifndef PINION_MPI

Error join_boards(std::function<void(const Error&)>, std::unique_ptr<Exchange>*) {
  return error("this build has no MPI, which several boards need (install libopenmpi-dev before it is configured)",
               "mpirun");
}

#else

namespace {

// A wait polls for `busy`, then sleeps between polls: `shortest` at first, twice as long each time, up to `longest`.
struct WaitPolicy {
  std::chrono::microseconds busy, shortest, longest;
  bool is_unlimited = false;  // Exchange::timeout_seconds does not apply
};
// Columns arrive when the slowest board has computed its share.
constexpr WaitPolicy kForColumns{std::chrono::microseconds{2000}, std::chrono::microseconds{20},
                                 std::chrono::microseconds{200}};
// Commands arrive once per token. Longer sleeps let an idle board cool down between requests.
constexpr WaitPolicy kForCommands{std::chrono::microseconds{2000}, std::chrono::microseconds{50},
                                  std::chrono::microseconds{1000}, true};

class MpiExchange final : public Exchange {
 public:
  MpiExchange(const Shares& shares, std::function<void(const Error&)> on_lost)
      : Exchange(shares), on_lost_(std::move(on_lost)) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  ~MpiExchange() override { MPI_Finalize(); }

  void gather(std::byte* bytes, std::span<const int64_t> begins) override {
    set_counts(begins);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, bytes, counts_.data(), offsets_.data(), MPI_BYTE,
                          MPI_COMM_WORLD, &request));
    wait_for(request, kForColumns);
  }

  void gather_on_first(std::byte* bytes, std::span<const int64_t> begins) override {
    set_counts(begins);
    const int32_t rank = shares().rank;
    const void* own = is_first() ? MPI_IN_PLACE : static_cast<const void*>(bytes + begins[rank]);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Igatherv(own, counts_[rank], MPI_BYTE, bytes, counts_.data(), offsets_.data(), MPI_BYTE, 0,
                       MPI_COMM_WORLD, &request));
    wait_for(request, kForColumns);
  }

  void broadcast(std::span<const std::byte> message) override {
    const size_t count = message.size(), in_head = std::min(count, head_.size() - sizeof count);
    std::memcpy(head_.data(), &count, sizeof count);
    std::ranges::copy(message.first(in_head), head_.begin() + sizeof count);
    broadcast_head(kForColumns);
    broadcast_rest(const_cast<std::byte*>(message.data()), in_head, count);
  }

  void receive(std::vector<std::byte>* message) override {
    broadcast_head(kForCommands);
    size_t count = 0;
    std::memcpy(&count, head_.data(), sizeof count);
    const size_t in_head = std::min(count, head_.size() - sizeof count);
    message->resize(count);
    std::copy_n(head_.begin() + sizeof count, in_head, message->begin());
    broadcast_rest(message->data(), in_head, count);
  }

  [[noreturn]] void abort_all() override {
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
  }

 private:
  void set_counts(std::span<const int64_t> begins) {
    counts_.clear(), offsets_.clear();
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      offsets_.push_back(static_cast<int>(begins[i]));
      counts_.push_back(static_cast<int>(begins[i + 1] - begins[i]));
    }
  }

  void broadcast_bytes(std::byte* bytes, size_t count, const WaitPolicy& policy) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(bytes, static_cast<int>(count), MPI_BYTE, 0, MPI_COMM_WORLD, &request));
    wait_for(request, policy);
  }

  void broadcast_head(const WaitPolicy& policy) { broadcast_bytes(head_.data(), head_.size(), policy); }
  void broadcast_rest(std::byte* message, size_t from, size_t count) {
    if (from < count) broadcast_bytes(message + from, count - from, kForColumns);
  }

  void wait_for(MPI_Request request, const WaitPolicy& policy) {
    int is_done = 0;
    const double start = now_seconds(), busy_until = start + std::chrono::duration<double>(policy.busy).count();
    const bool has_limit = is_in_pass && !policy.is_unlimited && timeout_seconds > 0;
    for (auto pause = policy.shortest;; pause = std::min(2 * pause, policy.longest)) {
      for (;;) {
        check(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE));
        if (is_done || now_seconds() >= busy_until) break;
        std::this_thread::yield();  // a machine may run more processes than it has cores
      }
      if (is_done) return;
      if (has_limit && now_seconds() - start > timeout_seconds) {
        end_all(error("has not answered in a pass", "another board", formatted("within %g s", timeout_seconds)));
      }
      std::this_thread::sleep_for(pause);
    }
  }

  void check(int result) {
    if (result == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(result, text, &length);
    end_all(error("the connection to another board is lost", "board " + std::to_string(shares().rank), {}, text));
  }

  [[noreturn]] void end_all(const Error& failure) {
    on_lost_(failure);
    abort_all();
  }

  std::function<void(const Error&)> on_lost_;
  std::vector<int> counts_, offsets_;  // [ranks] bytes, of the current call
  // The length of a message and its first bytes: one Ethernet frame, enough for most commands.
  std::array<std::byte, 1400> head_ = {};
};

}  // namespace

Error join_boards(std::function<void(const Error&)> on_lost, std::unique_ptr<Exchange>* out) {
  // SERIALIZED, since the thread that runs a server's passes is not the one that connects.
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    return error("cannot be started", "MPI");
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    return error("cannot be called from several threads", "MPI");
  }
  Shares shares;
  MPI_Comm_rank(MPI_COMM_WORLD, &shares.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &shares.ranks);
  if (shares.ranks > kMaxBoards) {
    MPI_Finalize();
    return error("too many", "boards", at_most(kMaxBoards), shares.ranks);
  }
  *out = std::make_unique<MpiExchange>(shares, std::move(on_lost));
  return {};
}

#endif

}  // namespace pinion
