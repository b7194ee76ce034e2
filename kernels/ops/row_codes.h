// A row's scale and codes without memory for the row: it is read in pieces that are widened on the way.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/kernels.h"

namespace pinion {

// f(floats, first, count) over x, a piece at a time.
template <class F>
void each_piece(const Kernels& kernels, const bf16* x, int64_t n, F f) {
  constexpr int64_t kPiece = 1024;
  float wide[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = std::min(kPiece, n - i);
    kernels.to_float(x + i, count, wide);
    f(wide, i, count);
  }
}

template <class F>
void each_piece(const Kernels& /*kernels*/, const float* x, int64_t n, F f) {
  f(x, int64_t{0}, n);
}

template <class T>
float row_scale(const Kernels& kernels, const T* x, int64_t n) {
  float largest[2] = {0, 0};
  each_piece(kernels, x, n, [&](const float* wide, int64_t, int64_t count) {
    largest[1] = kernels.max_magnitude(wide, count);
    largest[0] = kernels.max_magnitude(largest, 2);
  });
  return code_scale(largest[0]);
}

template <class T>
void encode_row(const Kernels& kernels, const T* x, int64_t n, float scale, int8_t* codes) {
  each_piece(kernels, x, n, [&](const float* wide, int64_t first, int64_t count) {
    kernels.encode(wide, count, scale, codes + first);
  });
}

}  // namespace pinion
