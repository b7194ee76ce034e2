// A file that is written under a temporary name and renamed, so that it is either complete or absent.
#pragma once

#include <ctime>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "kernels/base/error.h"
#include "loader/files/mapped_file.h"

namespace pinion {

constexpr std::string_view kTemporarySuffix = ".XXXXXX";  // for mkostemp, after the final name

// Only the owner may read it. A lock marks it as being written, so that readers of the folder can tell it from an
// abandoned one. Removed at the end of its life unless finish() has renamed it.
struct TemporaryFile {
  std::string final_path;
  std::string path;
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
