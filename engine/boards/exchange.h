// What boards that share a model tell one another. The first of them, rank 0, reads and answers; the others compute
// what it says. mpi.h has the one that connects processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/boards/shares.h"
#include "kernels/base/error.h"

namespace pinion {

// Calls are the same ones in the same order on every board, but that rank 0 tells where the others hear. One thread at
// a time. None of them fails: where a board is lost, all end (mpi.h).
class Exchange {
 public:
  explicit Exchange(const Shares& shares) : shares_(shares) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const Shares& shares() const { return shares_; }
  bool is_first() const { return shares_.rank == 0; }

  // On all boards alike, before any of them has loaded something.
  void set_parts(std::vector<double> parts) { shares_.parts = std::move(parts); }

  // How long a board may be waited for in a pass, where all have work of about the same length; 0: for ever.
  double most_seconds = 0;
  // Between passes others may take longer, to load their part say: nobody is given up then.
  bool is_in_pass = false;

  // What gathers of passes have cost, on this board: for reports.
  struct Traffic {
    int64_t gathers = 0;
    int64_t received_bytes = 0;  // of other boards
    int64_t ns = 0;              // in them, waiting for slower boards included
    bool keeps_sizes = false;    // of each gather, below
    std::vector<int64_t> sizes;  // bytes of all boards together; negative: for the first board alone
  };
  Traffic traffic;

  // Every board has the bytes [begins[rank], begins[rank + 1]) of a buffer that looks alike everywhere. Then all have
  // all of it, or rank 0 alone, where the others' buffers stay as they are. begins: [ranks + 1].
  virtual void gather(std::byte* bytes, std::span<const int64_t> begins) = 0;
  virtual void gather_on_first(std::byte* bytes, std::span<const int64_t> begins) = 0;

  // Rank 0 to all others, who may wait for long.
  virtual void tell(std::span<const std::byte> message) = 0;
  virtual void hear(std::vector<std::byte>* message) = 0;

  // This board cannot go on: all end at once, with status 1.
  [[noreturn]] virtual void give_up() = 0;

 private:
  Shares shares_;
};

// Every board's, by rank, on all of them; each has filled in its own. They travel as bytes.
template <class T>
void gather_each(Exchange& exchange, std::vector<T>* each) {
  std::vector<int64_t> begins;
  for (size_t i = 0; i <= each->size(); ++i) begins.push_back(static_cast<int64_t>(i * sizeof(T)));
  exchange.gather(reinterpret_cast<std::byte*>(each->data()), begins);
}

// One number of each board, by rank.
std::vector<double> numbers_of_all(Exchange& exchange, double own);

// Whether all boards have done something: the error of the first that has not, on all of them.
Error agree(Exchange& exchange, const Error& own);

// Whether all have this number; else `otherwise` is what is wrong with the first that does not.
Error agree_on(Exchange& exchange, uint64_t own, const std::string& otherwise);

}  // namespace pinion
