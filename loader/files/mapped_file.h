// Mapped memory: read-only files, an arena of anonymous pages for packed weights. Small text files, and files that are
// written whole or not at all.
#pragma once

#include <cstddef>
#include <ctime>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

struct Unmap {
  int64_t bytes = 0;
  void operator()(const std::byte* address) const;
};

// Closed at the end of its life.
struct FileDescriptor {
  int number = -1;  // -1: not open

  FileDescriptor() = default;
  explicit FileDescriptor(int open_number) : number(open_number) {}
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  bool is_open() const { return number >= 0; }
  void close();
  // All of the bytes. False: the reason is in errno, 0 at the end of the file.
  bool read(std::span<std::byte> bytes, int64_t offset) const;
  bool write(std::span<const std::byte> bytes, int64_t offset) const;
};

// Move-only; unmapped at the end of its life. The length is fixed at opening: when the file is truncated while it is
// mapped, or its disk fails, later reads raise SIGBUS (mapped_file_at names the file).
struct MappedFile {
  std::unique_ptr<const std::byte[], Unmap> pages;
  uint64_t inode = 0;
  int64_t mtime_ns = 0;  // last write, since 1970; the owner may set it
  int64_t ctime_ns = 0;  // last write or change of owner, name or times; nobody can set it

  std::span<const std::byte> contents() const { return {pages.get(), static_cast<size_t>(pages.get_deleter().bytes)}; }
};

// Maps a regular file of at least one byte; anything else is an error.
Error map_file(const std::filesystem::path& path, MappedFile* out);
// The name of the file that is mapped at this address, or null. A signal handler may call it at any time.
const char* mapped_file_at(const void* address);

// Bytes of a file in holes, which read as zeros: a download that reserved its space and did not finish has some.
// 0 if the file does not exist or its file system does not report holes.
int64_t unwritten_bytes(const std::filesystem::path& path);

// Hints for a range of a mapped file, never of heap memory, which release_pages would zero.
void release_pages(std::span<const std::byte> range);      // drops whole pages inside the range from this process
void prefetch_pages(std::span<const std::byte> range);     // starts to read, without waiting
void prefer_huge_pages(std::span<const std::byte> range);  // before prefetch_pages; if the file system supports it

// A regular file of at most max_bytes, possibly empty, as a string.
Error read_text_file(const std::filesystem::path& path, int64_t max_bytes, std::string* out);

// Zero-filled anonymous memory, in huge pages if the system provides them. Move-only; unmapped at the end of its life.
struct Arena {
  std::unique_ptr<const std::byte[], Unmap> pages;
  std::byte* data = nullptr;  // [bytes], aligned to a huge page
  int64_t bytes = 0;
};
Error allocate_arena(int64_t bytes, Arena* out);

constexpr std::string_view kTemporarySuffix = ".XXXXXX";  // for mkostemp, after the final name

// A file that is written under a temporary name and renamed, so that it is either complete or absent. Only the owner
// may read it. A lock tells it from an abandoned one. Removed at the end of its life unless finish() has renamed it.
struct TemporaryFile {
  std::string final_path, path;
  std::string content;  // names the content in errors
  FileDescriptor file;
  int64_t written = 0;

  TemporaryFile(std::string target, std::string what);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  Error failure(int code) const;
  Error append(std::span<const std::byte> bytes);
  // Allocates all space at once, so that a full disk fails early. A write beyond the limit would raise a signal.
  Error reserve(int64_t bytes) const;
  // Renames the file once it is on the disk. times: of last access and last write, see utimensat().
  Error finish(const timespec (&times)[2]);
};

// Removes a temporary file whose writer was killed. On file systems without locks it counts as abandoned after an hour.
void remove_if_abandoned(const std::filesystem::path& path);

}  // namespace pinion
