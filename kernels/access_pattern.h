// Access patterns: the order in which a GEMV reads the weights from memory. The best order depends on the maker of the
// CPU, not on the instruction set, so patterns are a table of their own. On x86-64 it has one measured row for each
// kind of CPU (tools/MEASURED.md); on Arm64, where no board was at hand, it has the candidates of `pinion tune`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pinion {

struct AccessPattern {
  std::string_view name;
  std::string_view suits;        // CPUs, or the purpose
  int streams = 1;               // streams of a w8 panel, read side by side
  int unrolled = 1;              // streams per step of the unrolled loop; divides streams
  int64_t rows_ahead = 0;        // prefetch distance in rows of four k, 256 bytes each; 0: no prefetch
  int64_t flat_rows_ahead = 0;   // the same for the flat layout
  int load_bytes = 16;           // bytes of one load, at most a cache line, if the instruction set has a choice
  int64_t w4_panels = 1;         // panels of formats with groups that are read side by side, one stream each
  int64_t w4_records_ahead = 0;  // prefetch distance in records of w4; 0: no prefetch
  int prefetch_level = 1;        // cache level that prefetches load into
  bool plain_chunks = false;     // attention of one or two rows reads a whole chunk in order, without prefetch
};

#if defined(__aarch64__)

// The first row is the default. Public manuals give no reason for another: since Cortex-A55 the prefetchers of Arm's
// cores follow a read stream across pages, further ahead the longer it lasts (Cortex-A55 Technical Reference Manual,
// A6.5), and out-of-order cores keep loads of many lines in flight.
inline constexpr AccessPattern kAccessPatterns[] = {
    {.name = "plain", .suits = "one stream, hardware prefetch"},
    {.name = "whole_lines", .suits = "one stream, one load per cache line", .load_bytes = 64},
    {.name = "ahead",
     .suits = "one stream, prefetched 4 KB ahead",
     .rows_ahead = 16,
     .flat_rows_ahead = 16,
     .w4_records_ahead = 3},
    {.name = "four_streams", .suits = "four streams side by side", .streams = 4, .w4_panels = 4},
    {.name = "four_streams_ahead",
     .suits = "four streams side by side, each prefetched 1 KB ahead",
     .streams = 4,
     .rows_ahead = 4,
     .flat_rows_ahead = 4,
     .w4_panels = 4,
     .w4_records_ahead = 1},
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
     .w4_records_ahead = 2},
    {.name = "few_streams",
     .suits = "AMD up to Zen 3",
     .streams = 4,
     .unrolled = 1,  // with 4, GCC issues all prefetches at once, which is slower
     .rows_ahead = 2,
     .flat_rows_ahead = 2,
     .load_bytes = 64,
     .w4_panels = 4,
     .w4_records_ahead = 1},
    {.name = "one_stream",
     .suits = "AMD since Zen 4",
     .rows_ahead = 4,
     .flat_rows_ahead = 16,
     .load_bytes = 32,
     .prefetch_level = 2,
     .plain_chunks = true},
};

#endif

// Row of kAccessPatterns in use, at first default_access_pattern(). Results do not depend on it.
size_t access_pattern();

// Sets the row for every table and thread. Kernels that run meanwhile may use either row.
void use_access_pattern(size_t row);

// The row named by the environment variable PINION_ACCESS, else the row for this CPU's maker.
size_t default_access_pattern();

// The row with this name; empty if there is none.
std::optional<size_t> find_access_pattern(std::string_view name);

}  // namespace pinion
