// Hashes and pseudo-random bits, identical on every machine. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace pinion {

// FNV-1a (Fowler, Noll, Vo), 64 bits. Files store these hashes, so the constants must not change.
constexpr uint64_t kHashSeed = 0xcbf29ce484222325u;
constexpr uint64_t kHashPrime = 0x100000001b3u;

inline uint64_t hash_bytes(std::span<const std::byte> bytes, uint64_t hash = kHashSeed) {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * kHashPrime;
  return hash;
}

// FNV-1a over words of 32 bits instead of bytes, for comparing the results of two runs. The size is a multiple of 4.
inline uint64_t hash_words(uint64_t hash, std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    hash = (hash ^ word) * kHashPrime;
  }
  return hash;
}

// Sixteen hexadecimal digits.
inline std::string hash_text(uint64_t hash) {
  std::string text(16, '0');
  for (size_t i = 0; i < text.size(); ++i) text[text.size() - 1 - i] = "0123456789abcdef"[hash >> 4 * i & 15];
  return text;
}

inline uint64_t hash_floats(uint64_t hash, std::span<const float> values) {
  return hash_words(hash, std::as_bytes(values));
}

// SplitMix64 (Steele, Lea, Flood 2014). Random number i is splitmix64_finalise(i * kGoldenGamma).
constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;

constexpr uint64_t splitmix64_finalise(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace pinion
