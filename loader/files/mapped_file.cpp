#include "loader/files/mapped_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>

namespace pinion {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;  // on x86-64, and on Arm64 with pages of 4 KB

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

Error errno_error(std::string what, const std::filesystem::path& path) {
  return error(std::move(what), path.string(), {}, std::strerror(errno));
}

// O_NONBLOCK: opening a FIFO without a writer would otherwise block forever.
Error open_regular(const std::filesystem::path& path, FileDescriptor* out, struct stat* status) {
  out->number = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (!out->is_open()) return errno_error("cannot open", path);
  if (fstat(out->number, status) != 0) return errno_error("cannot stat", path);
  if (S_ISDIR(status->st_mode)) return error("is a folder, not a file", path.string());
  if (!S_ISREG(status->st_mode)) return error("not a regular file", path.string());
  return {};
}

// The current mappings, in a list that a signal handler may walk at any time: nodes are reused but never freed.
struct Mapping {
  std::atomic<uintptr_t> begin = 0, end = 0;  // begin 0: unused
  std::string path = {};
  Mapping* next = nullptr;
};
std::atomic<Mapping*> first_mapping = nullptr;
std::mutex mappings_mutex;  // guards changes of the list

Mapping* find_mapping(uintptr_t begin) {
  Mapping* mapping = first_mapping;
  while (mapping && mapping->begin != begin) mapping = mapping->next;
  return mapping;
}

void add_mapping(const void* address, int64_t bytes, const std::filesystem::path& path) {
  const std::lock_guard lock(mappings_mutex);
  Mapping* mapping = find_mapping(0);
  if (!mapping) first_mapping = mapping = new Mapping{.next = first_mapping};
  mapping->path = path.string();
  mapping->end = reinterpret_cast<uintptr_t>(address) + bytes;
  mapping->begin = reinterpret_cast<uintptr_t>(address);
}

// The pages that the range touches, or only those inside it.
void advise(std::span<const std::byte> range, bool only_inside, int advice) {
  const uintptr_t page = sysconf(_SC_PAGESIZE), start = reinterpret_cast<uintptr_t>(range.data());
  const uintptr_t begin = (only_inside ? start + page - 1 : start) / page * page;
  const uintptr_t end = only_inside ? (start + range.size()) / page * page : start + range.size();
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

// `call`: pread or pwrite. `at_end`: the errno if it transfers no byte.
template <class Call, class Byte>
bool transfer(Call call, int number, std::span<Byte> bytes, int64_t offset, int at_end) {
  while (!bytes.empty()) {
    const ssize_t done = call(number, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = at_end;
    if (done <= 0) return false;
    bytes = bytes.subspan(done);
    offset += done;
  }
  return true;
}

}  // namespace

void Unmap::operator()(const std::byte* address) const {
  const std::lock_guard lock(mappings_mutex);
  if (Mapping* mapping = find_mapping(reinterpret_cast<uintptr_t>(address))) mapping->begin = 0;
  munmap(const_cast<std::byte*>(address), bytes);
}

FileDescriptor::~FileDescriptor() { close(); }

void FileDescriptor::close() {
  if (is_open()) ::close(number);
  number = -1;
}

bool FileDescriptor::read(std::span<std::byte> bytes, int64_t offset) const {
  return transfer(pread, number, bytes, offset, 0);
}

bool FileDescriptor::write(std::span<const std::byte> bytes, int64_t offset) const {
  return transfer(pwrite, number, bytes, offset, ENOSPC);
}

const char* mapped_file_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Mapping* mapping = first_mapping; mapping; mapping = mapping->next) {
    const uintptr_t begin = mapping->begin;
    if (begin != 0 && at >= begin && at < mapping->end) return mapping->path.c_str();
  }
  return nullptr;
}

Error map_file(const std::filesystem::path& path, MappedFile* out) {
  FileDescriptor file;
  struct stat status = {};
  if (Error e = open_regular(path, &file, &status)) return e;
  if (status.st_size == 0) return error("empty file", path.string());
  void* address = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (address == MAP_FAILED) return errno_error("cannot map", path);
  add_mapping(address, status.st_size, path);
  out->pages = {static_cast<const std::byte*>(address), Unmap{status.st_size}};
  out->inode = status.st_ino;
  out->mtime_ns = nanoseconds(status.st_mtim);
  out->ctime_ns = nanoseconds(status.st_ctim);
  return {};
}

int64_t unwritten_bytes(const std::filesystem::path& path) {
  FileDescriptor file;
  struct stat status = {};
  if (open_regular(path, &file, &status)) return 0;
  int64_t unwritten = 0;
  for (int64_t data = 0; data < status.st_size;) {
    const int64_t hole = lseek(file.number, data, SEEK_HOLE);  // the end of the file counts as a hole
    if (hole < 0 || hole >= status.st_size) break;
    data = lseek(file.number, hole, SEEK_DATA);
    if (data < 0) data = status.st_size;  // no data after the hole
    unwritten += data - hole;
  }
  return unwritten;
}

void release_pages(std::span<const std::byte> range) { advise(range, true, MADV_DONTNEED); }
void prefetch_pages(std::span<const std::byte> range) { advise(range, false, MADV_WILLNEED); }
void prefer_huge_pages(std::span<const std::byte> range) { advise(range, false, MADV_HUGEPAGE); }

Error read_text_file(const std::filesystem::path& path, int64_t max_bytes, std::string* out) {
  FileDescriptor file;
  struct stat status = {};
  if (Error e = open_regular(path, &file, &status)) return e;
  if (status.st_size > max_bytes) {
    return error("file too large", path.string(), at_most(max_bytes) + " bytes", status.st_size);
  }
  out->resize(status.st_size);
  if (file.read(std::as_writable_bytes(std::span(*out)), 0)) return {};
  return errno != 0 ? errno_error("cannot read", path) : error("file was shortened while it was read", path.string());
}

Error allocate_arena(int64_t bytes, Arena* out) {
  const Error no_memory = Error{"no memory for packed weights", "arena", std::to_string(bytes) + " bytes", {}, bytes};
  if (bytes < 0 || bytes > std::numeric_limits<int64_t>::max() - kHugePageBytes) return no_memory;
  // One extra huge page lets the start move up to a boundary. Untouched pages cost nothing.
  const int64_t mapped_bytes = bytes + kHugePageBytes;
  void* address = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return no_memory;
  auto* first = static_cast<std::byte*>(address);
  out->pages = {first, Unmap{mapped_bytes}};
  out->data = first + -reinterpret_cast<uintptr_t>(first) % kHugePageBytes;
  out->bytes = bytes;
  madvise(address, mapped_bytes, MADV_HUGEPAGE);
  // Chat templates are rendered in a forked process, which must not copy the page tables of gigabytes it never reads.
  madvise(address, mapped_bytes, MADV_DONTFORK);
  return {};
}

// Between creation and lock, another process may remove the file as abandoned: then a new one is created.
TemporaryFile::TemporaryFile(std::string target, std::string what)
    : final_path(std::move(target)), content(std::move(what)) {
  do {
    file.close();
    path = final_path + std::string(kTemporarySuffix);
    file.number = mkostemp(path.data(), O_CLOEXEC);
    if (file.is_open()) flock(file.number, LOCK_EX);
  } while (file.is_open() && access(path.c_str(), F_OK) != 0);
}

TemporaryFile::~TemporaryFile() {
  if (file.is_open() && !path.empty()) unlink(path.c_str());
}

Error TemporaryFile::failure(int code) const {
  return error("cannot write " + content, final_path, {}, std::strerror(code));
}

Error TemporaryFile::append(std::span<const std::byte> bytes) {
  if (!file.write(bytes, written)) return failure(errno);
  written += std::ssize(bytes);
  return {};
}

Error TemporaryFile::reserve(int64_t bytes) const {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && static_cast<rlim_t>(bytes) > limit.rlim_cur) return failure(EFBIG);
  int code = 0;
  do {
    code = posix_fallocate(file.number, 0, bytes);
  } while (code == EINTR);
  return code == 0 || code == EOPNOTSUPP || code == EINVAL ? Error{} : failure(code);
}

Error TemporaryFile::finish(const timespec (&times)[2]) {
  futimens(file.number, times);  // if this fails, the file looks older or newer than it is
  if (fsync(file.number) != 0) return failure(errno);
  if (rename(path.c_str(), final_path.c_str()) != 0) return failure(errno);
  path.clear();
  return {};
}

void remove_if_abandoned(const std::filesystem::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status = {};
  if (!file.is_open() || fstat(file.number, &status) != 0) return;
  const bool is_unlocked = flock(file.number, LOCK_EX | LOCK_NB) == 0;
  const bool has_no_locks = !is_unlocked && errno != EWOULDBLOCK;
  const bool is_old = std::time(nullptr) - std::max(status.st_atime, status.st_mtime) > 3600;
  if (is_unlocked || (has_no_locks && is_old)) unlink(path.c_str());
}

}  // namespace pinion
