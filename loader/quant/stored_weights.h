// The weights of linear layers in checkpoints: floats, int8 codes that the engine uses directly, or codes of other
// formats. These become fp32, w = (code - zero point) * scale, unless w4 keeps them (coded_matrix.h).
//
//   format  tensors of a module NAME; W is [n, k]
//   int8    weight I8 [n, k]; weight_scale [n, 1], [n] or one number
//   fp8     weight F8_E4M3 [n, k], codes are numbers; weight_scale or weight_scale_inv (which is no inverse) as for
//           int8, or [n / rows, k / columns] rounded up, one for each tile of [rows, columns] weights
//   nvfp4   weight_packed U8 [n, k / 2], two E2M1 numbers a byte; weight_scale F8_E4M3 [n, k / 16];
//           weight_global_scale F32 [1], which divides all scales
//   bytes   weight I8 [n, k], signed codes of 4 or 8 bits; weight_scale [n, k / group]; with zero points
//           weight_zero_point I8 [n, k / group]
//   packed  weight_packed I32 [n, k bits / 32], weight_shape, weight_scale [n, k / group]; with zero points
//           weight_zero_point I32 [n bits / 32, k / group]
//   gptq    qweight I32 [k bits / 32, n], scales [k / group, n], qzeros I32 [k / group, n bits / 32]; if inputs were
//           reordered (act order), g_idx I32 [k], the group of each input
//   awq     qweight I32 [k, n bits / 32], scales and qzeros as for gptq; a word holds the columns 0 2 4 6 1 3 5 7
//   bitnet  weight U8 [n / 4, k]: byte row i holds two-bit codes of rows i, i + n / 4, i + n / 2 and i + 3 n / 4, each
//   a
//           weight plus 1; weight_scale, one number
//
// Words and bytes hold their first code in the lowest bits. Scales are BF16, F16 or F32 unless stated otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/quant/coded_matrix.h"
#include "loader/quant/quantization.h"

namespace pinion {

// The weight of a linear layer.
struct LinearWeight {
  std::string stored_as;               // "int8", "GPTQ, 4 bits, groups of 128"; empty: floating point
  TensorView weight;                   // [n, k]; of codes: their name and bytes
  TensorView scale;                    // of int8 codes: n numbers or one; data is null for other formats
  CodedMatrix coded;                   // codes of other formats
  std::vector<LowRankUpdate> updates;  // by adapters
  std::vector<std::string> tensors;    // names of all tensors that belong to it
};

// Finds the tensors of a module, also those of adapters, and checks their types and shapes against the quantisation, if
// there is one.
Error bind_linear(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
                  const std::string& module, int64_t n, int64_t k, LinearWeight* out);

// Rows [first, first + count), as a weight.
LinearWeight rows_of(const LinearWeight& whole, int64_t first, int64_t count);

}  // namespace pinion
