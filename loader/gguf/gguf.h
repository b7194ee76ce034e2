// The GGUF format of ggml (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little-endian:
// metadata by key, the names and shapes of tensors, their data.
#pragma once

#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "kernels/layout.h"
#include "loader/checkpoint/safetensors.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "loader/pack/pack.h"

namespace pinion {

struct GgufFile {
  // Values by key: "general.architecture", "llama.block_count". Numbers are finite, strings valid UTF-8.
  Json metadata = Json::object();
  // In the order of the file. Shapes are outermost first, as in safetensors: the reverse of the file's.
  std::vector<TensorView> tensors;
};

constexpr std::string_view kGgufMagic = "GGUF";              // the first bytes of a file
constexpr int64_t kMaxGgufHeaderBytes = int64_t{128} << 20;  // all before the data of the tensors
constexpr uint64_t kMaxGgufValues = 8'000'000;               // in the header; one takes 16 to 200 bytes of memory

// `where` names the file in errors. Tensors of types that Pinion lacks are errors that name the type. The
// tensors point into `file`. Without the vocabulary, lists of more than 4096 items are checked and left empty.
Error parse_gguf(std::span<const std::byte> file, const std::string& where, GgufFile* out,
                 bool keeps_vocabulary = true);

// Bits of a weight in the layers' matrices, on average.
double bits_per_weight(const GgufFile& gguf);

// Maps and parses a file, with all parts of a split one (`path` may be any NAME-00001-of-00003.gguf): the tensors of
// all parts, the metadata of the first. The tensors point into `files`.
Error open_gguf(const std::filesystem::path& path, std::vector<MappedFile>* files, GgufFile* out,
                bool keeps_vocabulary = false);

// --- gguf_blocks.cpp: the types of tensors (ggml.h, ggml-common.h of https://github.com/ggml-org/ggml). Most are
// stored in blocks: 32 to 256 numbers that share scales.

struct BlockFormat {
  uint32_t id;            // ggml_type in the file
  std::string_view name;  // "Q4_K"
  DType dtype = DType::u8;
  int64_t elements = 0;  // of a block, and rows are whole blocks; 1: no blocks; 0: a type that Pinion does not read
  int64_t bytes = 0;     // of a block
  // out [count * elements]: the numbers of `count` blocks, as gguf-py's dequantize, bit for bit. Null without blocks.
  void (*read)(const std::byte* blocks, int64_t count, float* out) = nullptr;
  // Codes of 4 bits with scales and minima for every kGroupK, which `kept` can keep: codes [count * elements], groups
  // [count * elements / kGroupK]. Null for other types.
  void (*read_codes)(const std::byte* blocks, int64_t count, uint8_t* codes, W4Block* groups) = nullptr;
  std::optional<Format> kept = {};
};

// Null for the types of safetensors.h.
const BlockFormat* block_format(DType dtype);

// A type by its number in the file; null: unknown.
const BlockFormat* ggml_type(uint32_t id);

// Numbers as Q8_0: each 32 share an f16 scale, and codes are rounded to nearest even. blocks: [count] of 34 bytes.
constexpr uint32_t kQ8_0 = 8;
void write_q8_0(const float* numbers, int64_t count, std::byte* blocks);

}  // namespace pinion
