// Who does the work of an operation that can be shared. The kernels start no threads; a caller who has some lends them.
#pragma once

#include <cstdint>

namespace pinion {

// run: piece(context, i) once for every i in [0, pieces), in any order and on any threads; returns when all are done.
// Without it the caller's thread does everything.
struct Workers {
  int32_t count = 1;
  void (*run)(void* team, int64_t pieces, void (*piece)(void* context, int64_t index), void* context) = nullptr;
  void* team = nullptr;
};

// f(i) for every piece.
template <class F>
void run_pieces(const Workers& workers, int64_t pieces, F f) {
  if (!workers.run || pieces <= 1) {
    for (int64_t i = 0; i < pieces; ++i) f(i);
    return;
  }
  workers.run(workers.team, pieces, [](void* context, int64_t i) { (*static_cast<F*>(context))(i); }, &f);
}

}  // namespace pinion
