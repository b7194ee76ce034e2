// Files as memory: a read-only mapping, and small text files read whole. Knows nothing of what is in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "kernels/base/error.h"

namespace pinion {

struct Unmap {
  int64_t bytes = 0;
  void operator()(const std::byte* address) const;
};

// Move-only; unmapped at the end of its life. The length is taken once, at opening: where somebody shortens the file
// while it is mapped, or its disk fails, later reads raise SIGBUS (see mapped_file_at).
struct MappedFile {
  std::unique_ptr<const std::byte[], Unmap> pages;
  uint64_t inode = 0;
  int64_t changed_ns = 0;        // when the file was last written, since 1970, as its owner may set it
  int64_t inode_changed_ns = 0;  // likewise, or its owner, name or times were changed: nobody sets this

  std::span<const std::byte> contents() const { return {pages.get(), static_cast<size_t>(pages.get_deleter().bytes)}; }
};

// Regular files with at least one byte; anything else is an error.
Error map_file(const std::filesystem::path& path, MappedFile* out);

// The name of the file whose mapping holds this address; null: none does. A signal handler may call it at any time.
const char* mapped_file_at(const void* address);

// How much of a file was never written, as far as its file system knows: of a download, say, whose space was reserved
// and that did not end. Reads as zeros. 0 too where there is no such file.
int64_t unwritten_bytes(const std::filesystem::path& path);

// Hints for a range of a mapped file. release_pages drops the whole pages inside the range from this process (a later
// read brings them back); prefetch_pages starts reading without waiting; prefer_huge_pages, before that, has a file
// system that can do so read and map as large pieces as it has. Never for heap memory: releasing zeroes it.
void release_pages(std::span<const std::byte> range);
void prefetch_pages(std::span<const std::byte> range);
void prefer_huge_pages(std::span<const std::byte> range);

// A regular file of at most max_bytes (an empty one is fine) as a string.
Error read_text_file(const std::filesystem::path& path, int64_t max_bytes, std::string* out);

}  // namespace pinion
