#include "engine/boards/mpi.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#ifdef PINION_MPI
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "kernels/base/clock.h"
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

// How long to look again and again, and how long to sleep between two looks after that: twice as long each time.
struct Patience {
  std::chrono::microseconds busy, shortest, longest;
  bool may_last = false;  // however long it takes
};
// For columns, which come when the slowest board has computed its own.
constexpr Patience kForColumns{std::chrono::microseconds{2000}, std::chrono::microseconds{20},
                               std::chrono::microseconds{200}};
// For orders: as long as it takes to draw a token. Between two questions a board shall not heat its cores.
constexpr Patience kForOrders{std::chrono::microseconds{2000}, std::chrono::microseconds{50},
                              std::chrono::microseconds{1000}, true};

class MpiExchange final : public Exchange {
 public:
  MpiExchange(const Shares& shares, std::function<void(const Error&)> lost) : Exchange(shares), lost_(std::move(lost)) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  ~MpiExchange() override { MPI_Finalize(); }

  void gather(std::byte* bytes, std::span<const int64_t> begins) override {
    set_parts(begins);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, bytes, counts_.data(), places_.data(), MPI_BYTE,
                          MPI_COMM_WORLD, &request));
    wait_for(request, kForColumns);
  }

  void gather_on_first(std::byte* bytes, std::span<const int64_t> begins) override {
    set_parts(begins);
    const auto rank = static_cast<size_t>(shares().rank);
    const void* own = is_first() ? MPI_IN_PLACE : static_cast<const void*>(bytes + begins[rank]);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Igatherv(own, counts_[rank], MPI_BYTE, bytes, counts_.data(), places_.data(), MPI_BYTE, 0, MPI_COMM_WORLD,
                       &request));
    wait_for(request, kForColumns);
  }

  void tell(std::span<const std::byte> message) override {
    const size_t count = message.size(), with_count = std::min(count, first_.size() - sizeof count);
    std::memcpy(first_.data(), &count, sizeof count);
    std::ranges::copy(message.first(with_count), first_.begin() + sizeof count);
    share_first(kForColumns);
    share_rest(const_cast<std::byte*>(message.data()), with_count, count);
  }

  void hear(std::vector<std::byte>* message) override {
    share_first(kForOrders);
    size_t count = 0;
    std::memcpy(&count, first_.data(), sizeof count);
    const size_t with_count = std::min(count, first_.size() - sizeof count);
    message->resize(count);
    std::copy_n(first_.begin() + sizeof count, with_count, message->begin());
    share_rest(message->data(), with_count, count);
  }

  [[noreturn]] void give_up() override {
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::_Exit(1);
  }

 private:
  void set_parts(std::span<const int64_t> begins) {
    counts_.clear(), places_.clear();
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      places_.push_back(static_cast<int>(begins[i]));
      counts_.push_back(static_cast<int>(begins[i + 1] - begins[i]));
    }
  }

  // Rank 0's to all.
  void share(std::byte* bytes, size_t count, const Patience& patience) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(bytes, static_cast<int>(count), MPI_BYTE, 0, MPI_COMM_WORLD, &request));
    wait_for(request, patience);
  }

  void share_first(const Patience& patience) { share(first_.data(), first_.size(), patience); }
  void share_rest(std::byte* message, size_t from, size_t count) {
    if (from < count) share(message + from, count - from, kForColumns);
  }

  void wait_for(MPI_Request request, const Patience& patience) {
    int is_there = 0;
    const double start = now_seconds(), busy_until = start + std::chrono::duration<double>(patience.busy).count();
    const bool has_limit = is_in_pass && !patience.may_last && most_seconds > 0;
    for (auto pause = patience.shortest;; pause = std::min(2 * pause, patience.longest)) {
      for (;;) {
        check(MPI_Test(&request, &is_there, MPI_STATUS_IGNORE));
        if (is_there || now_seconds() >= busy_until) break;
        std::this_thread::yield();  // a board may have fewer cores than workers
      }
      if (is_there) return;
      if (has_limit && now_seconds() - start > most_seconds) {
        std::array<char, 32> seconds;
        std::snprintf(seconds.data(), seconds.size(), "%g s", most_seconds);
        lose(error("has not answered in a pass", "another board", std::string("within ") + seconds.data()));
      }
      std::this_thread::sleep_for(pause);
    }
  }

  void check(int result) {
    if (result == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(result, text, &length);
    lose(error("the connection to another board is lost", "board " + std::to_string(shares().rank), {}, text));
  }

  [[noreturn]] void lose(const Error& failure) {
    lost_(failure);
    give_up();
  }

  std::function<void(const Error&)> lost_;
  std::vector<int> counts_, places_;  // in bytes, of a call
  // How long a message is and how it begins: a frame of Ethernet, which most orders fit into.
  std::array<std::byte, 1400> first_ = {};
};

}  // namespace

Error join_boards(std::function<void(const Error&)> lost, std::unique_ptr<Exchange>* out) {
  // A server's passes run on another thread than this one, and always on one.
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
  if (shares.ranks > kMostBoards) {
    MPI_Finalize();
    return error("too many", "boards", "at most " + std::to_string(kMostBoards), std::to_string(shares.ranks));
  }
  *out = std::make_unique<MpiExchange>(shares, std::move(lost));
  return {};
}

#endif

}  // namespace pinion
