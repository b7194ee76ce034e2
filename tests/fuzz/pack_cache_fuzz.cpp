// Arbitrary bytes as a file of packed weights, and the correct file with overwritten bytes: accepted only if its header
// and hashes are correct.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/mapped_file.h"
#include "loader/pack/pack_cache.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"

namespace {

constexpr size_t kHeaderBytes = 4096, kPackedBytes = 64;

// A header in the format of pack_cache_of(), padded to whole pages.
const std::string& right_header() {
  static const std::string header = [] {
    std::string text = "pinion packed weights\nversion 1\nbytes 64\nat 0 w8 [1, 64] m\n";
    text.resize(kHeaderBytes, '\0');
    return text;
  }();
  return header;
}

constexpr size_t kHashesAt = kHeaderBytes + kPackedBytes;
constexpr size_t kHashesBytes = pinion::seal_bytes(kPackedBytes) - pinion::kBootIdBytes;

const std::string& right_file() {
  static const std::string file = [] {
    const std::string packed(kPackedBytes, 'w');
    const uint64_t hash = pinion::fast_hash(std::as_bytes(std::span(packed)));
    const std::vector<std::byte> seal = pinion::make_seal({&hash, 1}, pinion::boot_id());
    return right_header() + packed + std::string(reinterpret_cast<const char*>(seal.data()), seal.size());
  }();
  return file;
}

// True if a file with these bytes is accepted.
bool is_accepted(std::string_view bytes) {
  const int file = memfd_create("packed", MFD_CLOEXEC);
  pinion::require(file >= 0 && write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  pinion::PackCache cache;
  cache.path = "/proc/self/fd/" + std::to_string(file);
  cache.header = right_header();
  cache.packed_bytes = kPackedBytes;
  pinion::MappedFile mapped;
  const bool taken = !pinion::failed(pinion::open_pack_cache(cache, &mapped));
  pinion::require(!taken || packed_contents(cache, mapped).size() == kPackedBytes);
  close(file);
  return taken;
}

}  // namespace

FUZZ_TARGET(pack_cache) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string& right = right_file();
  std::string changed = right;
  pinion::require(is_accepted(right));
  pinion::require(!is_accepted(input) || input.starts_with(right_header()));
  uint16_t place = 0;
  for (size_t at = 0; at + sizeof place < size; at += sizeof place + 1) {
    std::memcpy(&place, data + at, sizeof place);
    if (place % (changed.size() + 1) == changed.size()) changed.pop_back();
    changed[place % changed.size()] = input[at + sizeof place];
  }
  // Opening compares neither the weights with their hashes nor the mark of the last comparison.
  const bool is_right = changed.size() == right.size() && changed.starts_with(right_header()) &&
                        changed.compare(kHashesAt, kHashesBytes, right, kHashesAt, kHashesBytes) == 0;
  pinion::require(is_accepted(changed) == is_right);
  return 0;
}
