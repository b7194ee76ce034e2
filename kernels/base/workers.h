// Threads that the caller lends to an operation. The kernels start none.
#pragma once

#include <cstdint>

namespace pinion {

// run calls piece(context, i) exactly once for every i in [0, pieces), in any order and on any threads, and returns
// when all calls have returned. If run is null, the calling thread does all the work.
struct Workers {
  int32_t count = 1;  // threads that can run pieces at the same time
  void (*run)(void* team, int64_t pieces, void (*piece)(void* context, int64_t index), void* context) = nullptr;
  void* team = nullptr;  // first argument of run
};

// Calls f(i) for every i in [0, pieces).
template <class F>
void run_pieces(const Workers& workers, int64_t pieces, F f) {
  if (!workers.run || pieces <= 1) {
    for (int64_t i = 0; i < pieces; ++i) f(i);
    return;
  }
  workers.run(workers.team, pieces, [](void* context, int64_t i) { (*static_cast<F*>(context))(i); }, &f);
}

}  // namespace pinion
