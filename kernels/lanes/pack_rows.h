// The left-hand side of a matmul, packed: see RowBlocks.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace pinion {
namespace {

// Rows into blocks, G elements of a row side by side; rows and k that do not exist are zeros.
template <int G, class T, class F>
void pack_rows(const T* a, int64_t lda, int64_t rows, int64_t k, int64_t whole_k, int64_t block_rows, T* packed,
               F each) {
  for (int64_t first = 0; first < rows; first += block_rows, packed += block_rows * whole_k) {
    for (int64_t r = 0; r < block_rows; ++r) {
      const T* from = a + (first + r) * lda;
      const int64_t present = first + r < rows ? k : 0;
      T* to = packed + r * G;
      int64_t i = 0;
      for (; i + G <= present; i += G, to += block_rows * G) {
        for (int j = 0; j < G; ++j) to[j] = each(from[i + j]);
      }
      for (; i < whole_k; i += G, to += block_rows * G) {
        for (int j = 0; j < G; ++j) to[j] = each(i + j < present ? from[i + j] : T{});
      }
    }
  }
}

[[maybe_unused]] void pack_f32(const float* a, int64_t lda, int64_t rows, int64_t k, int64_t block_rows,
                               float* packed) {
  pack_rows<1>(a, lda, rows, k, k, block_rows, packed, [](float x) { return x; });
}

// Flip is xored to the codes: VPDPBUSD wants unsigned bytes.
template <int G, uint8_t Flip>
void pack_s8(const int8_t* a, int64_t lda, int64_t rows, int64_t k, int64_t block_rows, int8_t* packed) {
  pack_rows<G>(a, lda, rows, k, padded_k(k), block_rows, packed,
               [](int8_t x) { return static_cast<int8_t>(static_cast<uint8_t>(x) ^ Flip); });
}

}  // namespace
}  // namespace pinion
