// The end of a file of the weight cache, by which damage to its weights is noticed: a hash of each block, a hash of
// these hashes, and during which run of the machine the weights were last found to be right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pinion {

constexpr int64_t kSealedBlockBytes = int64_t{1} << 20;
constexpr int64_t kBootIdBytes = 64;  // the last ones of a seal

constexpr int64_t sealed_blocks(int64_t bytes) { return (bytes + kSealedBlockBytes - 1) / kSealedBlockBytes; }
constexpr int64_t seal_bytes(int64_t bytes) {
  return (sealed_blocks(bytes) + 1) * static_cast<int64_t>(sizeof(uint64_t)) + kBootIdBytes;
}

// XXH3 (Yann Collet), 64 bits: as fast as the memory. Not against attackers.
uint64_t fast_hash(std::span<const std::byte> bytes, uint64_t seed = 0);

// Block `index` of what is sealed; the last may be shorter.
std::span<const std::byte> sealed_block(std::span<const std::byte> bytes, int64_t index);

// The seal of blocks with these hashes, found to be right now.
std::vector<std::byte> make_seal(std::span<const uint64_t> hashes);

// Whether the hashes themselves are undamaged.
bool is_whole(std::span<const std::byte> seal);
uint64_t hash_in(std::span<const std::byte> seal, int64_t block);

// Names this run of the machine, from its start to its end; zeros where the system does not tell.
std::vector<std::byte> boot_id();

// Whether the seal was made or renewed during this run of the machine.
bool is_of_this_boot(std::span<const std::byte> seal);

}  // namespace pinion
