// Arbitrary bytes as a GGUF file: refused, or the metadata can be written as JSON and all tensors are readable, with
// the same numbers in one read as row by row.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(gguf) {
  const std::span<const std::byte> file{reinterpret_cast<const std::byte*>(data), size};
  pinion::GgufFile parsed;
  if (pinion::failed(pinion::parse_gguf(file, "file", &parsed))) return 0;
  pinion::require(!parsed.metadata.dump().empty());  // throws if a string is not valid UTF-8
  const std::byte* next = file.data();
  unsigned sum = 0;
  for (const pinion::TensorView& tensor : parsed.tensors) {
    pinion::require(!pinion::dtype_name(tensor.dtype).empty() && tensor.data >= next);
    next = tensor.data + tensor.bytes;
    for (const std::byte byte : tensor.contents()) sum += static_cast<unsigned>(byte);
    if (!pinion::is_float(tensor.dtype) && !pinion::block_format(tensor.dtype)) continue;
    std::vector<float> whole(tensor.elements()), by_row(whole.size());
    pinion::read_floats(tensor, whole.data());
    const int64_t row = tensor.shape.back();
    for (size_t at = 0; at < whole.size(); at += row) pinion::read_floats(tensor, at, row, by_row.data() + at);
    pinion::require(std::memcmp(whole.data(), by_row.data(), whole.size() * sizeof(float)) == 0);
  }
  pinion::require(next <= file.data() + size);
  [[maybe_unused]] volatile unsigned kept = sum;  // keeps the compiler from removing the reads
  return 0;
}
