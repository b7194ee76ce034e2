// Where the codes and zeros of a matrix lie in the words, or bytes, of its tensors: reading alone, without the
// multiplication.
#pragma once

#include <cstdint>
#include <cstring>

#include "loader/checkpoint/safetensors.h"
#include "loader/quant/quantization.h"

namespace pinion {

struct CodeFormat;  // loader/quant/stored_weights.h

// Rows [first_row, ...) of a matrix W [n, k] that a file holds as codes in tensors as loader/quant/stored_weights.h has
// them; how many rows, the user knows.
struct CodedMatrix {
  const CodeFormat* format = nullptr;  // null: not such a matrix
  CodeScheme scheme;
  int64_t n = 0;  // of the whole
  int64_t k = 0;
  int64_t first_row = 0;
  TensorView codes, scale;
  TensorView zero;          // data is null where there are none
  TensorView order;         // [k] the group of each input; data is null where they are in order
  float scale_divisor = 1;  // nvfp4: of all scales

  int64_t group_size() const { return scheme.group_size > 0 ? scheme.group_size : k; }
  int64_t groups() const { return (k + group_size() - 1) / group_size(); }
  int64_t codes_a_word() const { return 32 / scheme.bits; }
  // Words that hold `count` codes.
  int64_t words(int64_t count) const { return (count + codes_a_word() - 1) / codes_a_word(); }
};

// Element i of an I32 tensor, which the file does not align.
inline uint32_t word(const TensorView& tensor, int64_t i) {
  uint32_t value;
  std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Integers are read as codes from 0 on, their zero in the middle where it is not stored.
// Codes of the tensor's rows [first, first + rows) of W, wherever first_row is, out [rows][k].
void read_byte_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
void read_packed_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
void read_gptq_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
void read_awq_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
void read_bitnet_codes(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);

// Zeros of the same rows, out [rows][groups]; NaN where nobody can tell.
void read_byte_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
void read_packed_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
void read_gptq_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
void read_awq_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
void read_bitnet_zero_points(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);

// Whether every zero of 4-bit codes is 8, told from whole words: what fills up the last ones counts too.
bool zeros_are_middle(const CodedMatrix& matrix);

}  // namespace pinion
