// Packed weights kept on disk: a later start maps them instead of packing anew, and processes share the pages.
//
// A file is a header of text, filled up with zeros to a whole page, then the bytes of pack_all as they lie in memory,
// then their seal. The header names everything that those bytes depend on. A file counts only where its header is, byte
// for byte, the one expected, its length is right and the seal's hashes are whole: nothing that it says is ever
// interpreted, so nothing in it can mislead. Comparing the weights with the seal reads them all, so a start does not
// wait for it (cache_check.h). They reach the disk before the file gets its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <span>
#include <string>

#include "kernels/base/error.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/pack/pack.h"
#include "loader/pack/seal.h"

namespace pinion {

constexpr int64_t kMostCacheBytes = 64'000'000'000;

// Where the packed weights of a checkpoint belong, and how that file begins.
struct PackCache {
  std::filesystem::path path;  // FOLDER/HASH.packed, the hash being the header's
  std::string header;          // a whole number of pages
  int64_t packed_bytes = 0;

  int64_t file_bytes() const { return static_cast<int64_t>(header.size()) + packed_bytes + seal_bytes(packed_bytes); }
};

// A shard is known by its size, inode, times of change (of the contents, which tools set back, and of the inode, which
// they cannot), a hash of its safetensors header and one of samples of its tensors; not by its path, so a folder may
// move. The samples tell fine-tunes apart where a file system invents inodes and times.
// calibration: a name of the text that the weights were quantised for; empty: none.
PackCache pack_cache_of(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                        std::span<const PackJob> jobs, const std::string& calibration = {});

// The time of its last change that a file gets when its weights are known to be right: whoever writes into it later
// changes that. When a file was last used its access time says.
constexpr timespec kUnchangedSince = {.tv_sec = 946'684'800, .tv_nsec = 0};  // the year 2000

// Maps the file and marks it as used now. An error says why there is no such file or why it does not count.
Error open_pack_cache(const PackCache& cache, MappedFile* out);

// The packed bytes of a file that open_pack_cache gave, and their seal.
std::span<const std::byte> packed_contents(const PackCache& cache, const MappedFile& file);
std::span<const std::byte> seal_in(const PackCache& cache, const MappedFile& file);

// Removes the unfinished files of writers that were killed, and nothing of those that still write.
void remove_unfinished(const std::filesystem::path& folder);

// Writes the file: under another name in the same folder, then renamed, so that it is whole or not there. Before that
// it removes unfinished files, and the least recently used ones until all fit into most_bytes and into half of the
// space that the file system would have free without them. `packed` holds packed_bytes.
Error write_pack_cache(const PackCache& cache, const std::byte* packed, int64_t most_bytes = kMostCacheBytes);

}  // namespace pinion
