#include "loader/pack/pack_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace pinion {
namespace {

// False if another process has replaced the file since it was mapped.
bool is_mapped_file(const struct stat& status, const PackCache& cache, const MappedFile& file) {
  return status.st_ino == file.inode && status.st_size == cache.file_bytes();
}

// Opens the mapped file for writing; on failure `out` is not open and errno has the reason.
void open_for_writing(const PackCache& cache, const MappedFile& file, FileDescriptor* out) {
  out->number = open(cache.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat status = {};
  if (!out->is_open() || (fstat(out->number, &status) == 0 && is_mapped_file(status, cache, file))) return;
  out->close();
  errno = ESTALE;
}

}  // namespace

bool is_segment_damaged(const PackCache& cache, const MappedFile& file, int64_t segment) {
  return fast_hash(segment_at(packed_contents(cache, file), segment)) != segment_hash(seal_in(cache, file), segment);
}

int64_t damaged_segments(const Workers& workers, const PackCache& cache, const MappedFile& file) {
  std::atomic<int64_t> count = 0;
  run_pieces(workers, segment_count(cache.packed_bytes),
             [&](int64_t i) { count += is_segment_damaged(cache, file, i); });
  return count;
}

void remove_damaged(const PackCache& cache, const MappedFile& file) {
  struct stat status = {};
  if (stat(cache.path.c_str(), &status) == 0 && is_mapped_file(status, cache, file)) unlink(cache.path.c_str());
}

void mark_checked(const PackCache& cache, const MappedFile& file) {
  FileDescriptor written;
  open_for_writing(cache, file, &written);
  if (!written.is_open() || !written.write(boot_id(), cache.file_bytes() - kBootIdBytes)) return;
  constexpr timespec kTimes[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, kVerifiedTime};
  futimens(written.number, kTimes);
}

bool was_checked(const PackCache& cache, const MappedFile& file) {
  struct stat status = {};
  return is_of_this_boot(seal_in(cache, file)) && stat(cache.path.c_str(), &status) == 0 &&
         is_mapped_file(status, cache, file) && status.st_mtim.tv_sec == kVerifiedTime.tv_sec &&
         status.st_mtim.tv_nsec == kVerifiedTime.tv_nsec;
}

}  // namespace pinion
