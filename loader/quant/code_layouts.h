// The bits of codes, scales and zero points in the tensors of each format, without the multiplication.
#pragma once

#include <cstdint>
#include <cstring>

#include "loader/checkpoint/safetensors.h"
#include "loader/quant/coded_matrix.h"

namespace pinion {

// Element i of an I32 tensor, which may be unaligned.
inline uint32_t word(const TensorView& tensor, int64_t i) {
  uint32_t value;
  std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// `first` counts rows of the stored matrix.

// Integer codes of rows [first, first + rows), out [rows][k], from 0 on. Signed codes are shifted by half of the range.
void read_byte_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
void read_packed_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
void read_gptq_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
void read_awq_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
void read_bitnet_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);

// Zero points of the same rows, out [rows][groups]: the middle of the codes if none are stored, NaN if ambiguous.
void read_byte_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
void read_packed_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
void read_gptq_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
void read_awq_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
void read_bitnet_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);

// True if every zero point of 4-bit codes is 8. Compares whole words, so the padding of the last ones counts, too.
bool zeros_are_middle(const CodedMatrix& matrix);

// Codes that are numbers: one row times its scales [groups], out [k].
void read_fp8_row(const CodedMatrix& matrix, int64_t row, const float* scales, float* out);
void read_nvfp4_row(const CodedMatrix& matrix, int64_t row, const float* scales, float* out);

// FP8 scales [first, first + count), divided by the matrix's divisor.
void read_fp8_scales(const CodedMatrix& matrix, int64_t first, int64_t count, float* out);

}  // namespace pinion
