// The turns that passes of one model take.
#pragma once

#include <sched.h>

#include <atomic>
#include <mutex>
#include <thread>

namespace pinion {

// Who runs passes on a model's teams: one thread at a time.
struct Turns {
  std::mutex mutex;
  std::atomic<std::thread::id> runner;  // none: nobody
};

// Lends the calling thread to the teams. The thread leaves as it came: a pass pins it.
class Turn {
 public:
  explicit Turn(Turns& turns);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  bool is_taken() const { return lock_.owns_lock(); }  // false: this thread has it already, we are in a callback

 private:
  Turns& turns_;
  std::unique_lock<std::mutex> lock_;
  cpu_set_t affinity_;
  bool has_affinity_ = false;
};

}  // namespace pinion
