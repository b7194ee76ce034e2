// How a model is to run, as whoever starts it says so: for the command line, the server and the library alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/runtime/runtime.h"
#include "kernels/base/error.h"

namespace pinion {

inline constexpr const char* kQuantAsAsked = "as asked";

// What is said about a run: options as they are, and names that are looked up when the run begins.
struct RunOptions : RuntimeOptions {
  std::string why_quant;     // kQuantAsAsked, or why else; settle_quant() decides where nobody has asked
  bool no_rotate = false;    // inputs of quantised matrices stay as they are
  std::string calibrate;     // a text file by which w4 is quantised; empty: by the weights alone
  std::string cores;         // "0-3,8", "big"; empty: as planned
  PlanOptions team;          // threads and chunk
  std::string kernels_name;  // empty: the best the CPU has
  bool no_cache = false;
  bool only_drafts = false;   // no text depends on this model
  double board_seconds = 60;  // that another board may take for its part of a pass
};

constexpr int kMaxThreads = 256;

// Of a conversation. A cache for a context of 128k can take more memory than the weights, and few get there.
constexpr int64_t kDefaultContext = 8192;

// Formats that the head may be asked to have, by name.
struct HeadFormat {
  std::string_view name;
  Format format;
};
inline constexpr HeadFormat kHeadFormats[] = {{"none", Format::bf16}, {"w8", Format::w8}, {"w4", Format::w4}};

// Once all options are known: the mode where nobody has asked for one, and whether it rotates.
void settle_quant(RunOptions* options);

std::string_view quant_name(const RunOptions& options);
std::string_view head_name(const RunOptions& options);  // empty: what the mode gives it
std::string_view kv_name(const RunOptions& options);
std::string mode_text(const RunOptions& options);  // "w4a8, head w4"

// The plan of the options.
Error make_plan(const RunOptions& options, const Topology& topology, const Tuning& tuning, Plan* out);

// Why the tune file does not help, where the options leave something to it; else empty.
std::string why_not_tuned(const RunOptions& options, const Tuning& tuning);

}  // namespace pinion
