// The memory of the packed weights: zero-filled anonymous pages, huge ones where the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/base/error.h"
#include "loader/files/mapped_file.h"

namespace pinion {

// Move-only; unmapped at the end of its life.
struct Arena {
  std::unique_ptr<const std::byte[], Unmap> pages;
  std::byte* data = nullptr;  // [bytes], aligned to a huge page
  int64_t bytes = 0;
};

// bytes >= 0; the error names the figure when the system has no such room.
Error allocate_arena(int64_t bytes, Arena* out);

}  // namespace pinion
