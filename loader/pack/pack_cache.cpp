#include "loader/pack/pack_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <vector>

#include "kernels/base/hash.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "pinion packed weights\n";
// To be raised with every change of kernels/layout.h's picture or of pack_all's rules that the header does not tell of:
// old files are then left unread.
constexpr int kVersion = 2;
constexpr size_t kHeaderUnit = 4096;
constexpr std::string_view kSuffix = ".packed";
constexpr size_t kHashDigits = 16;
constexpr std::string_view kUnique = ".XXXXXX";  // mkostemp's, after the name that the file will get

std::string system_error(int code) { return std::generic_category().message(code); }

std::string hex(uint64_t value) {
  std::string text(kHashDigits, '0');
  for (size_t i = 0; i < kHashDigits; i++) text[kHashDigits - 1 - i] = "0123456789abcdef"[value >> 4 * i & 15];
  return text;
}

// The length field and the JSON; the file was parsed, so it has both.
std::span<const std::byte> safetensors_header(std::span<const std::byte> file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  return file.first(sizeof length + static_cast<size_t>(length));
}

// A few pages from all over the file, with its first and last bytes: cold disks have to seek for each.
uint64_t hash_samples(std::span<const std::byte> file) {
  constexpr size_t kSamples = 64, kSampleBytes = 4096;
  const size_t bytes = std::min(kSampleBytes, file.size());
  uint64_t hash = fast_hash(file.last(bytes));
  for (size_t i = 0; i + 1 < kSamples; i++) {
    hash = fast_hash(file.subspan((file.size() - bytes) / (kSamples - 1) * i, bytes), hash);
  }
  return hash;
}

std::string order_text(const RowOrder& order) {
  std::string text;
  for (const RowOrder& part : order.parts) text += order_text(part);
  if (order.is_of_file() || !text.empty()) return text;
  text = ", heads of " + std::to_string(order.head_rows) + " with " + std::to_string(order.pairs) + " pairs parted";
  if (order.last > 0) text += ", the last " + std::to_string(order.last) + " first";
  if (!order.is_part()) return text;
  return text + ", from row " + std::to_string(order.first) + " on every " + std::to_string(order.step);
}

std::string header_text(const Checkpoint& checkpoint, std::span<const PackJob> jobs, const std::string& calibration) {
  std::string text(kMagic);
  text += "version " + std::to_string(kVersion);
  text += std::endian::native == std::endian::little ? ", little-endian" : ", big-endian";
  text += ", panels of " + std::to_string(kPanelColumns) + ", k in " + std::to_string(kBlockK) + "\n";
  text += "bytes " + std::to_string(packed_bytes(jobs)) + "\n";
  for (const MappedFile& file : checkpoint.files) {
    const std::span<const std::byte> contents = file.contents();
    text += "from bytes " + std::to_string(contents.size()) + ", inode " + std::to_string(file.inode) + ", changed " +
            std::to_string(file.changed_ns) + " and " + std::to_string(file.inode_changed_ns) + ", header " +
            hex(hash_bytes(safetensors_header(contents))) + ", samples " + hex(hash_samples(contents)) + "\n";
    release_pages(contents);  // with each sample the system maps up to a huge page
  }
  if (!calibration.empty()) text += "calibrated by " + calibration + "\n";
  int64_t offset = 0;
  for (const PackJob& job : jobs) {
    const int64_t n = job.rows(), k = job.source.shape[1];
    text += "at " + std::to_string(offset) + " " + traits_of(job.format).name + " [" + std::to_string(n) + ", " +
            std::to_string(k) + "] " + job.source.name + (job.scale.data ? " * " + job.scale.name : "") +
            (job.reader.read ? ", " + job.reader.stored_as : "") + order_text(job.order) +
            (job.interleaved > 1 ? ", interleaved by " + std::to_string(job.interleaved) : "") +
            (job.rotation > 1 ? ", rotated in " + std::to_string(job.rotation) : "") + "\n";
    offset += packed_bytes(job.format, n, k);
  }
  return text;
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// "0123456789abcdef.packed"
bool is_cache_name(std::string_view name) {
  return name.ends_with(kSuffix) && is_hash(name.substr(0, name.size() - kSuffix.size()));
}

// The same with ".a1B2c3" behind it
bool is_temporary_name(std::string_view name) {
  if (name.size() < kUnique.size()) return false;
  const std::string_view unique = name.substr(name.size() - kUnique.size());
  return unique[0] == '.' && unique.find('.', 1) == unique.npos &&
         is_cache_name(name.substr(0, name.size() - kUnique.size()));
}

struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

struct KeptFile {
  fs::path path;
  int64_t bytes = 0;
  int64_t used_seconds = 0;  // since 1970
};

// Ours is what has such a name and our first line; a writer may have died before it wrote that.
bool look_at(const fs::path& path, bool may_be_empty, KeptFile* out) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  struct stat status = {};
  if (file.number < 0 || fstat(file.number, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  std::array<char, kMagic.size()> first = {};
  const bool is_ours = read(file.number, first.data(), first.size()) == std::ssize(kMagic) &&
                       std::string_view(first.data(), first.size()) == kMagic;
  *out = {path, status.st_size, std::max(status.st_atime, status.st_mtime)};
  return is_ours || (may_be_empty && status.st_size == 0);
}

// A writer holds a lock on its file. Where there are no locks an hour must do.
void remove_if_abandoned(const KeptFile& file) {
  const Descriptor descriptor{open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
  if (descriptor.number < 0) return;
  const bool is_locked = flock(descriptor.number, LOCK_EX | LOCK_NB) == 0;
  const bool has_no_locks = !is_locked && errno != EWOULDBLOCK;
  const int64_t now_seconds = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  if (is_locked || (has_no_locks && now_seconds - file.used_seconds > 3600)) unlink(file.path.c_str());
}

// f(file) for each of ours whose name is_wanted; an unfinished one may have nothing in it yet.
template <class F>
void each_file(const fs::path& folder, bool (*is_wanted)(std::string_view name), F&& f) {
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    KeptFile file;
    if (!is_wanted(it->path().filename().native())) continue;
    if (look_at(it->path(), is_wanted == is_temporary_name, &file)) f(file);
  }
}

// The whole files except `but`, least recently used first.
std::vector<KeptFile> kept_files(const fs::path& folder, const fs::path& but) {
  std::vector<KeptFile> kept;
  each_file(folder, is_cache_name, [&](const KeptFile& file) {
    if (file.path != but) kept.push_back(file);
  });
  std::ranges::sort(kept, {}, &KeptFile::used_seconds);
  return kept;
}

Error make_room(const PackCache& cache, int64_t most_bytes) {
  const fs::path folder = cache.path.parent_path();
  std::error_code code;
  fs::create_directories(folder, code);
  if (code) return error("cannot make the folder", folder.string(), {}, code.message());
  remove_unfinished(folder);
  const std::vector<KeptFile> kept = kept_files(folder, cache.path);
  int64_t kept_bytes = 0;
  for (const KeptFile& file : kept) kept_bytes += file.bytes;
  const fs::space_info space = fs::space(folder, code);
  if (code) return error("cannot tell the free space", folder.string(), {}, code.message());
  const auto free_bytes = static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX / 2));
  const int64_t limit = std::min(most_bytes, (free_bytes + kept_bytes) / 2);
  if (cache.file_bytes() > limit) {
    return error("no room for packed weights", folder.string(), "at most " + std::to_string(limit) + " bytes",
                 std::to_string(cache.file_bytes()));
  }
  for (const KeptFile& file : kept) {
    if (kept_bytes + cache.file_bytes() <= limit) break;
    if (unlink(file.path.c_str()) == 0) kept_bytes -= file.bytes;
  }
  return {};
}

// Removed at the end of its life unless it was renamed.
struct TemporaryFile {
  std::string where;  // the name that the file will get
  std::string path;
  Descriptor descriptor;

  // Between making a file and locking it, somebody who tidies up may take it for abandoned: then another is made.
  explicit TemporaryFile(const fs::path& final_path) : where(final_path.string()) {
    do {
      if (descriptor.number >= 0) close(descriptor.number);
      path = where + std::string(kUnique);
      descriptor.number = mkostemp(path.data(), O_CLOEXEC);
      if (descriptor.number >= 0) flock(descriptor.number, LOCK_EX);
    } while (descriptor.number >= 0 && access(path.c_str(), F_OK) != 0);
  }
  ~TemporaryFile() {
    if (descriptor.number >= 0 && !path.empty()) unlink(path.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  Error failure(int code) const { return error("cannot write packed weights", where, {}, system_error(code)); }

  Error write(const void* data, int64_t bytes) const {
    const auto* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(descriptor.number, next, static_cast<size_t>(bytes));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return failure(written < 0 ? errno : ENOSPC);
      next += written;
      bytes -= written;
    }
    return {};
  }

  // All the space at once: a full disk shows now. Beyond the limit the kernel would end the process with a signal.
  Error reserve(int64_t bytes) const {
    rlimit limit = {};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && static_cast<rlim_t>(bytes) > limit.rlim_cur) return failure(EFBIG);
    int code = 0;
    do {
      code = posix_fallocate(descriptor.number, 0, bytes);
    } while (code == EINTR);
    return code == 0 || code == EOPNOTSUPP || code == EINVAL ? Error{} : failure(code);
  }

  Error finish() {
    constexpr timespec kTimes[] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, kUnchangedSince};
    futimens(descriptor.number, kTimes);  // in vain: the next start checks
    if (fsync(descriptor.number) != 0) return failure(errno);
    if (rename(path.c_str(), where.c_str()) != 0) return failure(errno);
    path.clear();
    return {};
  }
};

}  // namespace

PackCache pack_cache_of(const fs::path& folder, const Checkpoint& checkpoint, std::span<const PackJob> jobs,
                        const std::string& calibration) {
  PackCache cache;
  cache.header = header_text(checkpoint, jobs, calibration);
  cache.path = folder / (hex(hash_bytes(std::as_bytes(std::span(cache.header)))) + std::string(kSuffix));
  cache.header.resize((cache.header.size() + kHeaderUnit - 1) / kHeaderUnit * kHeaderUnit, '\0');
  cache.packed_bytes = packed_bytes(jobs);
  return cache;
}

Error open_pack_cache(const PackCache& cache, MappedFile* out) {
  MappedFile file;
  if (Error e = map_file(cache.path, &file)) return e;
  const std::span<const std::byte> contents = file.contents();
  if (std::ssize(contents) != cache.file_bytes()) {
    return error("not these weights: length differs", cache.path.string(), std::to_string(cache.file_bytes()),
                 std::to_string(contents.size()));
  }
  if (std::memcmp(contents.data(), cache.header.data(), cache.header.size()) != 0) {
    return error("not these weights: header differs", cache.path.string());
  }
  if (!is_whole(seal_in(cache, file))) return error("not these weights: damaged hashes", cache.path.string());
  constexpr timespec kUsed[] = {{.tv_sec = 0, .tv_nsec = UTIME_NOW}, {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
  utimensat(AT_FDCWD, cache.path.c_str(), kUsed, 0);  // in vain where the folder is read-only: nothing is lost
  *out = std::move(file);
  return {};
}

std::span<const std::byte> packed_contents(const PackCache& cache, const MappedFile& file) {
  return file.contents().subspan(cache.header.size(), static_cast<size_t>(cache.packed_bytes));
}

std::span<const std::byte> seal_in(const PackCache& cache, const MappedFile& file) {
  return file.contents().last(static_cast<size_t>(seal_bytes(cache.packed_bytes)));
}

void remove_unfinished(const fs::path& folder) { each_file(folder, is_temporary_name, remove_if_abandoned); }

Error write_pack_cache(const PackCache& cache, const std::byte* packed, int64_t most_bytes) {
  if (Error e = make_room(cache, most_bytes)) return e;
  TemporaryFile file(cache.path);
  if (file.descriptor.number < 0) return file.failure(errno);
  // The header first, so that whatever a killed process leaves is known as ours.
  if (Error e = file.write(cache.header.data(), std::ssize(cache.header))) return e;
  if (Error e = file.reserve(cache.file_bytes())) return e;
  // In one piece: the page cache then holds it in large folios, which a later start maps in half the time.
  if (Error e = file.write(packed, cache.packed_bytes)) return e;
  std::vector<uint64_t> hashes;
  for (int64_t i = 0; i < sealed_blocks(cache.packed_bytes); i++) {
    hashes.push_back(fast_hash(sealed_block({packed, static_cast<size_t>(cache.packed_bytes)}, i)));
  }
  const std::vector<std::byte> seal = make_seal(hashes);
  if (Error e = file.write(seal.data(), std::ssize(seal))) return e;
  return file.finish();
}

}  // namespace pinion
