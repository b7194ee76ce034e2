#include "loader/pack/cache_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "loader/files/arena.h"

namespace pinion {
namespace {

// Whether that is the file that is mapped: another process may have put a new one in its place.
bool is_mapped_one(const struct stat& status, const PackCache& cache, const MappedFile& file) {
  return status.st_ino == file.inode && status.st_size == cache.file_bytes();
}

// The mapped file for writing.
struct WritableFile {
  const PackCache& cache;
  int number = -1;

  WritableFile(const PackCache& written, const MappedFile& file) : cache(written) {
    number = open(cache.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat status = {};
    if (number < 0 || (fstat(number, &status) == 0 && is_mapped_one(status, cache, file))) return;
    close(number);
    number = -1;
    errno = ESTALE;
  }
  ~WritableFile() {
    if (number >= 0) close(number);
  }
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;

  Error failure() const {
    return error("cannot write", cache.path.string(), {}, std::generic_category().message(errno));
  }

  Error write(std::span<const std::byte> bytes, int64_t offset) const {
    while (!bytes.empty()) {
      const ssize_t written = pwrite(number, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return failure();
      bytes = bytes.subspan(static_cast<size_t>(written));
      offset += written;
    }
    return {};
  }
};

// What lies in [first, first + bytes.size()) of the packed bytes, where that is in one of the blocks.
Error write_blocks(const WritableFile& file, std::span<const std::byte> bytes, int64_t first,
                   std::span<const int64_t> blocks) {
  for (const int64_t block : blocks) {
    const int64_t begin = std::max(block * kSealedBlockBytes, first);
    const int64_t end = std::min((block + 1) * kSealedBlockBytes, first + std::ssize(bytes));
    if (begin >= end) continue;
    const auto part = bytes.subspan(static_cast<size_t>(begin - first), static_cast<size_t>(end - begin));
    if (Error e = file.write(part, std::ssize(file.cache.header) + begin)) return e;
  }
  return {};
}

}  // namespace

bool is_damaged(const PackCache& cache, const MappedFile& file, int64_t block) {
  return fast_hash(sealed_block(packed_contents(cache, file), block)) != hash_in(seal_in(cache, file), block);
}

std::vector<int64_t> damaged_blocks(const Workers& workers, const PackCache& cache, const MappedFile& file) {
  std::vector<char> is_bad(static_cast<size_t>(sealed_blocks(cache.packed_bytes)));
  run_pieces(workers, std::ssize(is_bad),
             [&](int64_t i) { is_bad[static_cast<size_t>(i)] = is_damaged(cache, file, i); });
  std::vector<int64_t> damaged;
  for (int64_t i = 0; i < std::ssize(is_bad); ++i) {
    if (is_bad[static_cast<size_t>(i)]) damaged.push_back(i);
  }
  return damaged;
}

int64_t repair_bytes(std::span<const PackJob> jobs) {
  int64_t most = 0;
  for (; !jobs.empty(); jobs = jobs.subspan(static_cast<size_t>(jobs.front().interleaved))) {
    most = std::max(most, packed_bytes(jobs.first(static_cast<size_t>(jobs.front().interleaved))));
  }
  return most;
}

Error repair_blocks(const Workers& workers, std::span<const PackJob> jobs, const PackCache& cache,
                    const MappedFile& file, std::span<const int64_t> blocks) {
  const WritableFile written(cache, file);
  if (written.number < 0) return written.failure();
  int64_t first = 0;
  while (!jobs.empty()) {
    const auto together = jobs.first(static_cast<size_t>(jobs.front().interleaved));
    const int64_t end = first + packed_bytes(together);
    const bool is_hit = std::ranges::any_of(
        blocks, [&](int64_t b) { return b * kSealedBlockBytes < end && (b + 1) * kSealedBlockBytes > first; });
    if (is_hit) {
      Arena arena;
      if (Error e = allocate_arena(end - first, &arena)) return e;
      if (Error e = pack_all(workers, together, arena.data, {.source_mapped = true})) return e;
      if (Error e = write_blocks(written, {arena.data, static_cast<size_t>(arena.bytes)}, first, blocks)) return e;
    }
    first = end;
    jobs = jobs.subspan(together.size());
  }
  if (fsync(written.number) != 0) return written.failure();
  for (const int64_t block : blocks) {
    if (is_damaged(cache, file, block)) return error("packed anew, it is still not what it was", cache.path.string());
  }
  return {};
}

void remove_damaged(const PackCache& cache, const MappedFile& file) {
  struct stat status = {};
  if (stat(cache.path.c_str(), &status) == 0 && is_mapped_one(status, cache, file)) unlink(cache.path.c_str());
}

void note_checked(const PackCache& cache, const MappedFile& file) {
  const WritableFile written(cache, file);
  if (written.number < 0 || written.write(boot_id(), cache.file_bytes() - kBootIdBytes)) return;
  constexpr timespec kTimes[] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, kUnchangedSince};
  futimens(written.number, kTimes);
}

bool was_checked(const PackCache& cache, const MappedFile& file) {
  struct stat status = {};
  return is_of_this_boot(seal_in(cache, file)) && stat(cache.path.c_str(), &status) == 0 &&
         is_mapped_one(status, cache, file) && status.st_mtim.tv_sec == kUnchangedSince.tv_sec &&
         status.st_mtim.tv_nsec == kUnchangedSince.tv_nsec;
}

}  // namespace pinion
