// The GGUF format of ggml (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little-endian:
// metadata by key, the names and shapes of tensors, their data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "loader/checkpoint/safetensors.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"

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

// `where` names the file in errors. Tensors of types that gguf_blocks.h lacks are errors that name the type. The
// tensors point into `file`.
Error parse_gguf(std::span<const std::byte> file, const std::string& where, GgufFile* out);

// Bits of a weight in the layers' matrices, on average.
double bits_per_weight(const GgufFile& gguf);

// Maps and parses a file, with all parts of a split one (`path` may be any NAME-00001-of-00003.gguf): the tensors of
// all parts, the metadata of the first. The tensors point into `files`.
Error open_gguf(const std::filesystem::path& path, std::vector<MappedFile>* files, GgufFile* out);

}  // namespace pinion
