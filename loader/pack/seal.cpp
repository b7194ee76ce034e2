#include "loader/pack/seal.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>

namespace pinion {
namespace {

// The blocks' hashes, without the hash of these.
std::span<const std::byte> hashes_of(std::span<const std::byte> seal) {
  return seal.first(seal.size() - sizeof(uint64_t) - kBootIdBytes);
}

}  // namespace

uint64_t fast_hash(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::span<const std::byte> sealed_block(std::span<const std::byte> bytes, int64_t index) {
  const int64_t first = index * kSealedBlockBytes;
  return bytes.subspan(static_cast<size_t>(first),
                       static_cast<size_t>(std::min(kSealedBlockBytes, std::ssize(bytes) - first)));
}

std::vector<std::byte> make_seal(std::span<const uint64_t> hashes) {
  const std::span<const std::byte> bytes = std::as_bytes(hashes);
  const uint64_t whole = fast_hash(bytes);
  const std::vector<std::byte> boot = boot_id();
  std::vector<std::byte> seal(bytes.begin(), bytes.end());
  const auto* of_whole = reinterpret_cast<const std::byte*>(&whole);
  seal.insert(seal.end(), of_whole, of_whole + sizeof whole);
  seal.insert(seal.end(), boot.begin(), boot.end());
  return seal;
}

bool is_whole(std::span<const std::byte> seal) {
  const std::span<const std::byte> hashes = hashes_of(seal);
  return fast_hash(hashes) == hash_in(seal, std::ssize(hashes) / static_cast<int64_t>(sizeof(uint64_t)));
}

uint64_t hash_in(std::span<const std::byte> seal, int64_t block) {
  uint64_t hash = 0;
  std::memcpy(&hash, seal.data() + block * static_cast<int64_t>(sizeof hash), sizeof hash);
  return hash;
}

std::vector<std::byte> boot_id() {
  std::string text(kBootIdBytes, '\0');
  std::ifstream("/proc/sys/kernel/random/boot_id").getline(text.data(), kBootIdBytes);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

bool is_of_this_boot(std::span<const std::byte> seal) {
  const std::vector<std::byte> boot = boot_id();
  return boot[0] != std::byte{0} && std::ranges::equal(seal.last(kBootIdBytes), boot);
}

}  // namespace pinion
