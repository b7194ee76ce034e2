// How checkpoints hold the weights of linear layers: as floats, as int8 codes that the engine takes as they are, or as
// codes of other formats. Those are read here and become fp32, w = (code - zero) * scale, where they are not taken as
// they are too (loader/quant/coded_w4.h).
//
//   format  tensors of a module NAME, W being [n, k]
//   int8    weight I8 [n, k]; weight_scale [n, 1], [n] or one number
//   fp8     weight F8_E4M3 [n, k], the code being the number itself; weight_scale or weight_scale_inv (never an
//           inverse) as above, or [n / rows, k / columns] rounded up, a scale for each block
//   nvfp4   weight_packed U8 [n, k / 2], two E2M1 numbers a byte; weight_scale F8_E4M3 [n, k / 16];
//           weight_global_scale F32 [1], by which all scales are divided
//   bytes   weight I8 [n, k], codes of 4 or 8 bits with a sign; weight_scale [n, k / group]; with zeros
//           weight_zero_point I8 [n, k / group]
//   packed  weight_packed I32 [n, k bits / 32], weight_shape, weight_scale [n, k / group]; with zeros weight_zero_point
//           I32 [n bits / 32, k / group]
//   gptq    qweight I32 [k bits / 32, n], scales [k / group, n], qzeros I32 [k / group, n bits / 32], and g_idx I32 [k]
//           where inputs were quantised in an order of their own: the group of each
//   awq     qweight I32 [k, n bits / 32], scales and qzeros as in gptq; in a word the columns 0 2 4 6 1 3 5 7
//   bitnet  weight U8 [n / 4, k]: in a byte of row i the codes of rows i, i + n / 4, i + n / 2 and i + 3 n / 4, of two
//           bits, each a weight plus 1; weight_scale, one number
//
// Words and bytes hold their first code in the lowest bits. Scales are BF16, F16 or F32 where nothing else is said.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/pack/pack.h"
#include "loader/quant/code_layouts.h"
#include "loader/quant/quantization.h"

namespace pinion {

// A row of the table of formats other than int8.
struct CodeFormat {
  std::string_view name;
  bool by_column;  // the codes of one row of W are spread over the whole tensor

  // Finds the module's tensors and checks them; gives the names of all that belong to the weight.
  Error (*bind)(const Checkpoint& checkpoint, const std::string& module, CodedMatrix* out,
                std::vector<std::string>* names);
  // A row of codes that are numbers, times their scales; null where codes are integers.
  void (*read_numbers)(const CodedMatrix& matrix, int64_t row, const float* scales, float* out);
  // loader/quant/code_layouts.h; null where codes are numbers.
  void (*read_codes)(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
  void (*read_zero_points)(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
};

// A linear layer's weight. Of a coded one `weight` is what to call it and about which bytes of the file it is.
struct LinearWeight {
  std::string stored_as;             // "int8", "GPTQ, 4 bits, groups of 128"; empty: in floating point
  TensorView weight;                 // [n, k]
  TensorView scale;                  // of int8 codes: n numbers or one; data is null for all others
  CodedMatrix coded;                 // codes of other formats
  std::vector<std::string> tensors;  // by name, all that belong to it
};

// What the file has for this module, types and shapes checked against the quantisation, if there is one.
Error bind_linear(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
                  const std::string& module, int64_t n, int64_t k, LinearWeight* out);

// Rows [first, first + count), as a weight.
LinearWeight rows_of(const LinearWeight& whole, int64_t first, int64_t count);

// Scales of the tensor's rows [first, first + rows), out [rows][groups].
void read_scales(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);

// Codes [rows][k] and zeros [rows][groups] of the tensor's rows [first, first + rows). A row with a code that has too
// many bits has NaN as all its zeros.
void read_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* codes, float* zero_points);

// W's rows [first, first + rows), out [rows][k]: exact but for one rounding to fp32. NaN where a zero or a code says
// nothing.
void read_rows(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);

// Why a row has NaNs, where its codes tell.
Error explain_nan(const CodedMatrix& matrix, int64_t row);

// The three for pack_all; of a matrix without a format one that reads nothing. as_w4: its codes stay what they are, for
// which there is a format (loader/quant/coded_w4.h).
RowReader reader_of(const CodedMatrix& matrix, bool as_w4);

}  // namespace pinion
