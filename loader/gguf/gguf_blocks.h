// The types of GGUF tensors (ggml.h, ggml-common.h of https://github.com/ggml-org/ggml). Most are stored in blocks: 32
// to 256 numbers that share scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "loader/checkpoint/safetensors.h"
#include "loader/pack/pack.h"

namespace pinion {

struct BlockFormat {
  uint32_t id;            // ggml_type in the file
  std::string_view name;  // "Q4_K"
  DType dtype = DType::u8;
  int64_t elements = 0;  // of a block, and rows are whole blocks; 1: no blocks; 0: a type that Pinion does not read
  int64_t bytes = 0;     // of a block
  // out [count * elements]: the numbers of `count` blocks, as gguf-py's dequantize, bit for bit. Null without blocks.
  void (*read)(const std::byte* blocks, int64_t count, float* out) = nullptr;
  // Codes of 4 bits with scales and minima for every kGroupK, which w4z can keep: codes [count * elements], groups
  // [count * elements / kGroupK]. Null for other types.
  void (*read_codes)(const std::byte* blocks, int64_t count, uint8_t* codes, W4Block* groups) = nullptr;
};

// Null for the types of safetensors.h.
const BlockFormat* block_format(DType dtype);

// A type by its number in the file; null: unknown.
const BlockFormat* ggml_type(uint32_t id);

}  // namespace pinion
