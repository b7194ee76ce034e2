// Arbitrary bytes as a safetensors file: refused, or every byte of every tensor is readable.

#include <cstddef>
#include <cstdint>

#include "loader/checkpoint/safetensors.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(safetensors) {
  const std::span<const std::byte> file{reinterpret_cast<const std::byte*>(data), size};
  pinion::Safetensors parsed;
  (void)pinion::failed(pinion::parse_safetensors(file, "file", &parsed));
  const std::byte* next = nullptr;
  unsigned sum = 0;
  for (const pinion::TensorView& tensor : parsed.tensors) {
    pinion::require(!next || tensor.data == next);
    next = tensor.data + tensor.bytes;
    for (const std::byte byte : tensor.contents()) sum += static_cast<unsigned>(byte);
  }
  pinion::require(!next || next == file.data() + file.size());
  [[maybe_unused]] volatile unsigned kept = sum;  // keeps the compiler from removing the reads
  return 0;
}
