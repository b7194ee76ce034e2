#include "loader/pack/pack_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

Error write_failure(const PackCache& cache) {
  return error("cannot write", cache.path.string(), {}, std::strerror(errno));
}

// Writes those of `bytes`, which begin at offset `first` of the packed weights, that are in one of the segments.
Error write_segments(const FileDescriptor& file, const PackCache& cache, std::span<const std::byte> bytes,
                     int64_t first, std::span<const int64_t> segments) {
  for (const int64_t segment : segments) {
    const int64_t begin = std::max(segment * kSegmentBytes, first);
    const int64_t end = std::min((segment + 1) * kSegmentBytes, first + std::ssize(bytes));
    if (begin >= end) continue;
    if (!file.write(bytes.subspan(begin - first, end - begin), std::ssize(cache.header) + begin)) {
      return write_failure(cache);
    }
  }
  return {};
}

// Matrices whose panels are interleaved are packed together.
std::span<const PackJob> first_group(std::span<const PackJob> jobs) { return jobs.first(jobs.front().interleaved); }

}  // namespace

bool is_segment_damaged(const PackCache& cache, const MappedFile& file, int64_t segment) {
  return fast_hash(segment_at(packed_contents(cache, file), segment)) != segment_hash(seal_in(cache, file), segment);
}

std::vector<int64_t> damaged_segments(const Workers& workers, const PackCache& cache, const MappedFile& file) {
  std::vector<char> is_damaged(segment_count(cache.packed_bytes));
  run_pieces(workers, std::ssize(is_damaged), [&](int64_t i) { is_damaged[i] = is_segment_damaged(cache, file, i); });
  std::vector<int64_t> damaged;
  for (int64_t i = 0; i < std::ssize(is_damaged); ++i) {
    if (is_damaged[i]) damaged.push_back(i);
  }
  return damaged;
}

int64_t repair_bytes(std::span<const PackJob> jobs) {
  int64_t max_bytes = 0;
  for (; !jobs.empty(); jobs = jobs.subspan(jobs.front().interleaved)) {
    max_bytes = std::max(max_bytes, packed_bytes(first_group(jobs)));
  }
  return max_bytes;
}

Error repair_segments(const Workers& workers, std::span<const PackJob> jobs, const PackCache& cache,
                      const MappedFile& file, std::span<const int64_t> segments) {
  FileDescriptor written;
  open_for_writing(cache, file, &written);
  if (!written.is_open()) return write_failure(cache);
  for (int64_t first = 0; !jobs.empty();) {
    const std::span<const PackJob> group = first_group(jobs);
    const int64_t end = first + packed_bytes(group);
    const bool is_damaged = std::ranges::any_of(
        segments, [&](int64_t s) { return s * kSegmentBytes < end && (s + 1) * kSegmentBytes > first; });
    if (is_damaged) {
      Arena arena;
      if (Error e = allocate_arena(end - first, &arena)) return e;
      if (Error e = pack_all(workers, group, arena.data, {.source_mapped = true})) return e;
      if (Error e = write_segments(written, cache, std::span(arena.data, arena.bytes), first, segments)) return e;
    }
    first = end;
    jobs = jobs.subspan(group.size());
  }
  if (fsync(written.number) != 0) return write_failure(cache);
  for (const int64_t segment : segments) {
    if (is_segment_damaged(cache, file, segment)) {
      return error("packing again did not restore it", cache.path.string());
    }
  }
  return {};
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
