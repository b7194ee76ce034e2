// Operands of the public operations: argument errors, quantising without a row's buffer, packing for gemm_batch.
#pragma once

#include <algorithm>
#include <optional>

#include "kernels/ops/gemm.h"

namespace pinion {

// "OPERATION: NAME: wrong argument: want EXPECTED, have ACTUAL".
inline Error argument_error(const std::string& operation, const std::string& name, const std::string& expected,
                            std::optional<int64_t> actual = {}) {
  return error("wrong argument", operation + ": " + name, expected, actual ? std::to_string(*actual) : "");
}

// Calls f(floats, first, count) for consecutive runs of x [n], converted to float.
template <class F>
void for_each_widened(const Kernels& kernels, const bf16* x, int64_t n, F f) {
  constexpr int64_t kBuffered = 1024;
  float wide[kBuffered];
  for (int64_t i = 0; i < n; i += kBuffered) {
    const int64_t count = std::min(kBuffered, n - i);
    kernels.to_float(x + i, count, wide);
    f(wide, i, count);
  }
}

template <class F>
void for_each_widened(const Kernels& /*kernels*/, const float* x, int64_t n, F f) {
  f(x, int64_t{0}, n);
}

// Kernels::quantize in two steps for a row x [n] of float or bf16: its scale, then its codes [n], not padded.
template <class T>
float row_scale(const Kernels& kernels, const T* x, int64_t n) {
  float largest[2] = {0, 0};
  for_each_widened(kernels, x, n, [&](const float* wide, int64_t, int64_t count) {
    largest[1] = kernels.max_magnitude(wide, count);
    largest[0] = kernels.max_magnitude(largest, 2);
  });
  return code_scale(largest[0]);
}

template <class T>
void encode_row(const Kernels& kernels, const T* x, int64_t n, float scale, int8_t* codes) {
  for_each_widened(kernels, x, n, [&](const float* wide, int64_t first, int64_t count) {
    kernels.encode(wide, count, scale, codes + first);
  });
}

int64_t element_bytes(GemmType type);

// k of packed rows and panels, and the bytes of one packed panel of B.
int64_t packed_k(GemmType type, int64_t k);
int64_t packed_panel_bytes(GemmType type, int64_t k);

// Packs panel `index` of B [k][n] into the panels that start at `packed`.
void pack_b_panel(GemmType type, const GemmMatrix& b, int64_t n, int64_t k, int64_t index, std::byte* packed);

// Packs rows [first, first + rows) of A [m][k] into one row block of block_rows rows, codes or floats.
void pack_a_block(const Kernels& kernels, GemmType type, const GemmMatrix& a, int64_t first, int64_t rows, int64_t k,
                  int64_t block_rows, std::byte* packed);

}  // namespace pinion
