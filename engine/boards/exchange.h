// Several boards that share one model: their messages. Rank 0, the first board, runs the command and sends commands to
// the others (session/board_messages.h).
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "kernels/base/error.h"
#include "loader/config/division.h"

namespace pinion {

constexpr int32_t kMaxBoards = 256;

// Collective operations of the boards. Every board makes the same calls in the same order, except that rank 0
// broadcasts while the others receive. One thread at a time. No call fails: when a board is lost, all processes end.
class Exchange {
 public:
  explicit Exchange(const Shares& shares) : shares_(shares) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const Shares& shares() const { return shares_; }
  bool is_first() const { return shares_.rank == 0; }

  // Sets Shares::bounds: the same call on all boards, before any of them loads a model.
  void set_bounds(std::vector<double> bounds) { shares_.bounds = std::move(bounds); }

  // Longest wait for another board inside a pass, where all boards have about the same work; 0: no limit. Outside of
  // passes waits are unlimited, since loading a share can take minutes.
  double timeout_seconds = 0;
  bool is_in_pass = false;

  // Cost of the gathers of passes on this board, for reports.
  struct Traffic {
    int64_t gathers = 0;
    int64_t received_bytes = 0;  // from other boards
    int64_t ns = 0;              // inside gathers, waits for slower boards included
    bool records_sizes = false;  // fills `sizes`
    std::vector<int64_t> sizes;  // bytes of each gather over all boards; negative: gathered on rank 0 only
  };
  Traffic traffic;

  // The buffer has the same layout on all boards; board r contributes its bytes [begins[r], begins[r + 1]). Afterwards
  // all boards (gather), or rank 0 only (gather_on_first), hold the whole buffer. begins: [ranks + 1].
  virtual void gather(std::byte* bytes, std::span<const int64_t> begins) = 0;
  virtual void gather_on_first(std::byte* bytes, std::span<const int64_t> begins) = 0;

  // Sends a message from rank 0 to all others, which call receive() and may wait for it without limit.
  virtual void broadcast(std::span<const std::byte> message) = 0;
  virtual void receive(std::vector<std::byte>* message) = 0;

  // Ends the processes of all boards at once, with status 1.
  [[noreturn]] virtual void abort_all() = 0;

 private:
  Shares shares_;
};

// Gathers one value per board. Returns them by rank. T is copied as bytes.
template <class T>
std::vector<T> values_of_all(Exchange& exchange, const T& own) {
  std::vector<T> values(exchange.shares().ranks);
  std::vector<int64_t> begins;
  for (size_t i = 0; i <= values.size(); ++i) begins.push_back(i * sizeof(T));
  values[exchange.shares().rank] = own;
  exchange.gather(reinterpret_cast<std::byte*>(values.data()), begins);
  return values;
}

// Returns the error of the lowest rank that has one, on all boards.
Error agree(Exchange& exchange, const Error& own);

// Compares one number per board. The error `otherwise` names a board whose number differs from rank 0's.
Error agree_on(Exchange& exchange, uint64_t own, const std::string& otherwise);

// --- mpi.cpp, the only file that has MPI: boards as processes of an MPI job,
// `mpirun -n 4 --hostfile boards pinion chat --model DIR`.

// Rank and number of the processes that Open MPI or MPICH started together, by the environment; without: one process.
struct LaunchedProcess {
  int32_t rank = 0;
  int32_t count = 1;
};
LaunchedProcess launched_process();

// Connects this process with the others, once. A board that detects a loss calls `on_lost`, then all processes end with
// status 1. Errors: no MPI, or one without MPI_THREAD_SERIALIZED; more than kMaxBoards boards.
Error join_boards(std::function<void(const Error&)> on_lost, std::unique_ptr<Exchange>* out);

}  // namespace pinion
