// How a GEMV goes through the weights in memory on x86-64. What is best differs between makers' memories, not with the
// instruction set, so it is a table of its own: one row for each kind of CPU. The measurements are in
// tools/MEASURED.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pinion {

struct AccessPattern {
  std::string_view name;
  std::string_view suits;    // whose memory
  int streams;               // of a w8 panel, read side by side
  int unrolled;              // streams per step of the unrolled loop; divides streams
  int64_t rows_ahead;        // prefetch distance in rows of four k, 256 bytes each
  int64_t flat_rows_ahead;   // the same of the flat layout
  bool halved_loads;         // 64 bytes as two loads
  int64_t w4_panels;         // panels of w4 that are streams
  int64_t w4_records_ahead;  // prefetch distance in records; 0: nothing is prefetched
  int prefetch_level;        // the cache that prefetches bring lines to
  bool plain_chunks;         // attention of one or two rows reads a whole chunk in order, without prefetching
};

inline constexpr AccessPattern kAccessPatterns[] = {
    {.name = "many_streams",
     .suits = "Intel, and every maker not listed below",
     .streams = 16,
     .unrolled = 16,
     .rows_ahead = 4,
     .flat_rows_ahead = 4,
     .halved_loads = false,
     .w4_panels = 4,
     .w4_records_ahead = 2,
     .prefetch_level = 1,
     .plain_chunks = false},
    {.name = "few_streams",
     .suits = "AMD up to Zen 3",
     .streams = 4,
     .unrolled = 1,  // with 4, GCC issues all prefetches at once, which is slower
     .rows_ahead = 2,
     .flat_rows_ahead = 2,
     .halved_loads = false,
     .w4_panels = 4,
     .w4_records_ahead = 1,
     .prefetch_level = 1,
     .plain_chunks = false},
    {.name = "one_stream",
     .suits = "AMD since Zen 4",
     .streams = 1,
     .unrolled = 1,
     .rows_ahead = 4,
     .flat_rows_ahead = 16,
     .halved_loads = true,
     .w4_panels = 1,
     .w4_records_ahead = 0,
     .prefetch_level = 2,
     .plain_chunks = true},
};

#if defined(__x86_64__)
constexpr bool kHasAccessPatterns = true;
#else
constexpr bool kHasAccessPatterns = false;  // the other tables read in one way
#endif

// Which of them this CPU has: the environment's PINION_ACCESS, by name, else by the CPU's maker. Never changes a bit.
size_t access_pattern();

}  // namespace pinion
