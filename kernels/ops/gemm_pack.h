// What gemm_batch makes of its operands: panels of B, blocks of A's rows, as the tables' matmuls want them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops/gemm.h"

namespace pinion {

int64_t element_bytes(GemmType type);

// k as it is packed, and the bytes of a packed panel of B.
int64_t packed_k(GemmType type, int64_t k);
int64_t packed_panel_bytes(GemmType type, int64_t k);

// Panel `index` of B [k][n]; packed: where the panels begin.
void pack_b_panel(GemmType type, const GemmMatrix& b, int64_t n, int64_t k, int64_t index, std::byte* packed);

// Rows [first, first + rows) of A [m][k] as one block of `block` rows: codes, or floats.
void pack_a_block(const Kernels& kernels, GemmType type, const GemmMatrix& a, int64_t first, int64_t rows, int64_t k,
                  int64_t block, std::byte* packed);

}  // namespace pinion
