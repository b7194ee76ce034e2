// FNV-1a over 32-bit words: tells whether the bits of two runs are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace pinion {

constexpr uint64_t kHashSeed = 0xcbf29ce484222325u;

// The size is a multiple of 4.
inline uint64_t hash_words(uint64_t hash, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    hash = (hash ^ word) * 0x100000001b3u;
  }
  return hash;
}

inline uint64_t hash_floats(uint64_t hash, std::span<const float> values) {
  return hash_words(hash, std::as_bytes(values));
}

}  // namespace pinion
