#include "loader/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <system_error>

namespace pinion {
namespace {

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

std::string system_error() { return std::generic_category().message(errno); }

struct OpenFile {
  int descriptor = -1;
  int64_t bytes = 0;
  struct stat status = {};
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
};

// Without O_NONBLOCK, opening a FIFO that nobody writes would wait for ever.
Error open_regular(const std::filesystem::path& path, OpenFile* out) {
  out->descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (out->descriptor < 0) return error("cannot open", path.string(), {}, system_error());
  struct stat& status = out->status;
  if (fstat(out->descriptor, &status) != 0) return error("cannot stat", path.string(), {}, system_error());
  if (S_ISDIR(status.st_mode)) return error("is a folder, not a file", path.string());
  if (!S_ISREG(status.st_mode)) return error("not a regular file", path.string());
  out->bytes = status.st_size;
  return {};
}

// What is mapped now, as a list that a signal handler may walk at any time: nodes are used again, but never freed.
struct Mapping {
  std::atomic<uintptr_t> begin = 0, end = 0;  // begin 0: not in use
  std::string path;
  Mapping* next = nullptr;
};
std::atomic<Mapping*> first_mapping = nullptr;
std::mutex mappings_mutex;  // held by who changes the list

Mapping* find_mapping(uintptr_t begin) {
  Mapping* one = first_mapping;
  while (one && one->begin != begin) one = one->next;
  return one;
}

void add_mapping(const void* address, int64_t bytes, const std::filesystem::path& path) {
  const std::lock_guard lock(mappings_mutex);
  Mapping* one = find_mapping(0);
  if (!one) {
    one = new Mapping;
    one->next = first_mapping;
    first_mapping = one;
  }
  one->path = path.string();
  one->end = reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(bytes);
  one->begin = reinterpret_cast<uintptr_t>(address);
}

void remove_mapping(const void* address) {
  const std::lock_guard lock(mappings_mutex);
  if (Mapping* one = find_mapping(reinterpret_cast<uintptr_t>(address))) one->begin = 0;
}

}  // namespace

const char* mapped_file_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Mapping* one = first_mapping; one; one = one->next) {
    const uintptr_t begin = one->begin;
    if (begin != 0 && at >= begin && at < one->end) return one->path.c_str();
  }
  return nullptr;
}

void Unmap::operator()(const std::byte* address) const {
  remove_mapping(address);
  munmap(const_cast<std::byte*>(address), static_cast<size_t>(bytes));
}

Error map_file(const std::filesystem::path& path, MappedFile* out) {
  OpenFile file;
  if (Error e = open_regular(path, &file)) return e;
  if (file.bytes == 0) return error("empty file", path.string());
  void* address = mmap(nullptr, static_cast<size_t>(file.bytes), PROT_READ, MAP_PRIVATE, file.descriptor, 0);
  if (address == MAP_FAILED) return error("cannot map", path.string(), {}, system_error());
  add_mapping(address, file.bytes, path);
  out->pages = {static_cast<const std::byte*>(address), Unmap{file.bytes}};
  out->inode = file.status.st_ino;
  out->changed_ns = nanoseconds(file.status.st_mtim);
  out->inode_changed_ns = nanoseconds(file.status.st_ctim);
  return {};
}

int64_t unwritten_bytes(const std::filesystem::path& path) {
  OpenFile file;
  if (open_regular(path, &file)) return 0;
  int64_t unwritten = 0;
  for (int64_t data = 0; data < file.bytes;) {
    const int64_t hole = lseek(file.descriptor, data, SEEK_HOLE);  // the end is one, too
    if (hole < 0 || hole >= file.bytes) break;
    data = lseek(file.descriptor, hole, SEEK_DATA);
    if (data < 0) data = file.bytes;  // none after it
    unwritten += data - hole;
  }
  return unwritten;
}

// madvise's answer is of no interest in any: these are hints.
void release_pages(std::span<const std::byte> range) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(range.data()) + range.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

static void advise_touched(std::span<const std::byte> range, int advice) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(range.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(range.data()) + range.size();
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

void prefetch_pages(std::span<const std::byte> range) { advise_touched(range, MADV_WILLNEED); }
void prefer_huge_pages(std::span<const std::byte> range) { advise_touched(range, MADV_HUGEPAGE); }

Error read_text_file(const std::filesystem::path& path, int64_t max_bytes, std::string* out) {
  OpenFile file;
  if (Error e = open_regular(path, &file)) return e;
  if (file.bytes > max_bytes) {
    return error("file too large", path.string(), "at most " + std::to_string(max_bytes) + " bytes",
                 std::to_string(file.bytes));
  }
  out->resize(static_cast<size_t>(file.bytes));
  size_t done = 0;
  while (done < out->size()) {
    const ssize_t got = read(file.descriptor, out->data() + done, out->size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return error("cannot read", path.string(), {}, system_error());
    if (got == 0) return error("file was shortened while it was read", path.string());
    done += static_cast<size_t>(got);
  }
  return {};
}

}  // namespace pinion
