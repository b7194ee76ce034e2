#include "loader/files/arena.h"

#include <sys/mman.h>

#include <limits>
#include <string>

namespace pinion {

// 2 MB on x86-64, and on Arm64 with 4 KB pages.
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

Error allocate_arena(int64_t bytes, Arena* out) {
  const Error no_room = error("no memory for packed weights", "arena", std::to_string(bytes) + " bytes");
  if (bytes < 0 || bytes > std::numeric_limits<int64_t>::max() - kHugePageBytes) return no_room;
  // One huge page more than asked for: the start is then moved up to a boundary. Untouched pages cost nothing.
  const int64_t mapped_bytes = bytes + kHugePageBytes;
  void* address =
      mmap(nullptr, static_cast<size_t>(mapped_bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return no_room;
  auto* first = static_cast<std::byte*>(address);
  out->pages = {first, Unmap{mapped_bytes}};
  const auto past_boundary = static_cast<int64_t>(reinterpret_cast<uintptr_t>(first) % kHugePageBytes);
  out->data = first + (kHugePageBytes - past_boundary) % kHugePageBytes;
  out->bytes = bytes;
  madvise(address, static_cast<size_t>(mapped_bytes), MADV_HUGEPAGE);
  // Chat templates are rendered in a forked process: it shall not copy page tables of gigabytes it never reads.
  madvise(address, static_cast<size_t>(mapped_bytes), MADV_DONTFORK);
  return {};
}

}  // namespace pinion
