// Any bytes as a safetensors file: refused, or every byte of every tensor may be read.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "loader/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file{reinterpret_cast<const std::byte*>(data), size};
  pinion::Safetensors parsed;
  const pinion::Error e = pinion::parse_safetensors(file, "file", &parsed);
  if (e.message().find('\n') != std::string::npos) abort();
  const std::byte* next = nullptr;
  unsigned sum = 0;
  for (const pinion::TensorView& tensor : parsed.tensors) {
    if (next && tensor.data != next) abort();
    next = tensor.data + tensor.bytes;
    for (const std::byte byte : tensor.contents()) sum += static_cast<unsigned>(byte);
  }
  if (next && next != file.data() + file.size()) abort();
  [[maybe_unused]] volatile unsigned kept = sum;  // so that the reads are not left out
  return 0;
}
