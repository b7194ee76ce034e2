// How a GEMV goes through the weights in memory. What is best differs between makers' memories, not with the
// instruction set, so it is a table of its own: on x86-64 one row for each kind of CPU, measured (tools/MEASURED.md);
// on Arm64, where no board was at hand, what `pinion tune` tries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pinion {

struct AccessPattern {
  std::string_view name;
  std::string_view suits;    // whose memory, or what it is for
  int streams;               // of a w8 panel, read side by side
  int unrolled;              // streams per step of the unrolled loop; divides streams
  int64_t rows_ahead;        // prefetch distance in rows of four k, 256 bytes each; 0: nothing is prefetched
  int64_t flat_rows_ahead;   // the same of the flat layout
  int load_bytes;            // of a cache line of 64, by one load, where an instruction set leaves the choice
  int64_t w4_panels;         // panels of w4, and of other formats with groups, that are streams
  int64_t w4_records_ahead;  // prefetch distance in records of w4; 0: nothing is prefetched
  int prefetch_level;        // the cache that prefetches bring lines to
  bool plain_chunks;         // attention of one or two rows reads a whole chunk in order, without prefetching
};

#if defined(__aarch64__)

// The first is the default. Public manuals give no reason for another: the prefetchers of Arm's cores since Cortex-A55
// follow a read stream across pages and go further ahead by themselves the longer it lasts (Cortex-A55 Technical
// Reference Manual, A6.5), and out-of-order cores have loads of many lines in flight.
inline constexpr AccessPattern kAccessPatterns[] = {
    {.name = "plain",
     .suits = "one stream, in the hardware's hands",
     .streams = 1,
     .unrolled = 1,
     .rows_ahead = 0,
     .flat_rows_ahead = 0,
     .load_bytes = 16,
     .w4_panels = 1,
     .w4_records_ahead = 0,
     .prefetch_level = 1,
     .plain_chunks = false},
    {.name = "whole_lines",
     .suits = "one stream, a cache line a load",
     .streams = 1,
     .unrolled = 1,
     .rows_ahead = 0,
     .flat_rows_ahead = 0,
     .load_bytes = 64,
     .w4_panels = 1,
     .w4_records_ahead = 0,
     .prefetch_level = 1,
     .plain_chunks = false},
    {.name = "ahead",
     .suits = "one stream, prefetched 4 KB ahead",
     .streams = 1,
     .unrolled = 1,
     .rows_ahead = 16,
     .flat_rows_ahead = 16,
     .load_bytes = 16,
     .w4_panels = 1,
     .w4_records_ahead = 3,
     .prefetch_level = 1,
     .plain_chunks = false},
    {.name = "four_streams",
     .suits = "four streams side by side",
     .streams = 4,
     .unrolled = 1,
     .rows_ahead = 0,
     .flat_rows_ahead = 0,
     .load_bytes = 16,
     .w4_panels = 4,
     .w4_records_ahead = 0,
     .prefetch_level = 1,
     .plain_chunks = false},
    {.name = "four_streams_ahead",
     .suits = "four streams side by side, each prefetched 1 KB ahead",
     .streams = 4,
     .unrolled = 1,
     .rows_ahead = 4,
     .flat_rows_ahead = 4,
     .load_bytes = 16,
     .w4_panels = 4,
     .w4_records_ahead = 1,
     .prefetch_level = 1,
     .plain_chunks = false},
};

#else

inline constexpr AccessPattern kAccessPatterns[] = {
    {.name = "many_streams",
     .suits = "Intel, and every maker not listed below",
     .streams = 16,
     .unrolled = 16,
     .rows_ahead = 4,
     .flat_rows_ahead = 4,
     .load_bytes = 64,
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
     .load_bytes = 64,
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
     .load_bytes = 32,
     .w4_panels = 1,
     .w4_records_ahead = 0,
     .prefetch_level = 2,
     .plain_chunks = true},
};

#endif

// The row in use: at first default_access_pattern(). No row changes a bit of a result.
size_t access_pattern();

// From now on, for every table and thread. Not while kernels run: they may take either row.
void use_access_pattern(size_t row);

// The environment's PINION_ACCESS, by name, else by the CPU's maker.
size_t default_access_pattern();

// Empty where there is none of that name.
std::optional<size_t> find_access_pattern(std::string_view name);

}  // namespace pinion
