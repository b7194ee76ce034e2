// Options of a run before names are resolved, shared by the command line, the server and the library: how the model is
// loaded and how it samples.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/runtime.h"
#include "engine/session/generation_config.h"
#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

inline constexpr const char* kQuantRequested = "as asked";

struct RunOptions : RuntimeOptions {
  std::string quant_reason;  // why load.quant was chosen: kQuantRequested or resolve_quant()'s reason
  bool no_rotate = false;    // --no-rotate
  std::string calibrate;     // --calibrate; see calibration_source()
  std::string cores;         // "0-3,8", "big"; empty: the plan's
  PlanOptions team;          // threads and prefill chunk
  std::string kernels_name;  // empty: the best for this CPU
  bool no_cache = false;
  bool is_draft_model = false;        // proposes tokens only; its weights change no result
  double board_timeout_seconds = 60;  // for another board's part of a pass
};

constexpr int kMaxThreads = 256;

// Formats of the output head by option name.
struct HeadFormat {
  std::string_view name;
  Format format;
};
inline constexpr HeadFormat kHeadFormats[] = {{"none", Format::bf16}, {"w8", Format::w8}, {"w4", Format::w4}};

// Call once all options are parsed: chooses the mode unless it was requested, and whether weights are rotated.
void resolve_quant(RunOptions* options);

// Texts that calibrate the weights: kSelfCalibration, kNoCalibration, or a file's text beside the model's own.
inline constexpr std::string_view kSelfCalibration = "self", kNoCalibration = "none";
std::string_view calibration_source(const RunOptions& options);  // default: self for w4a8, else none

std::string_view quant_name(const RunOptions& options);
std::string_view head_name(const RunOptions& options);  // empty: the mode's default
std::string_view kv_name(const RunOptions& options);
std::string mode_text(const RunOptions& options);  // "w4a8, head w4"

Error make_plan(const RunOptions& options, const Topology& topology, const Tuning& tuning, Plan* out);

// The reason why a tune file is not used; empty if it is used or the options leave it nothing to decide.
std::string tuning_note(const RunOptions& options, const Tuning& tuning);

// Sampling options of the user. They override generation_config.json, which overrides greedy.
struct SamplingFlags {
  std::array<std::optional<double>, std::size(kSamplerSettings)> settings;
  std::vector<std::string> dry_breakers;  // texts; empty: kDryBreakers
  std::optional<uint64_t> seed;           // nothing: random
};

// Default sequence breakers of DRY; the single text "none" stands for no breakers.
inline constexpr std::string_view kDryBreakers[] = {"\n", ":", "\"", "*"};

void apply_sampling_flags(const SamplingFlags& flags, SamplerOptions* options);
Error sampler_options(const std::string& folder, const SamplingFlags& flags, SamplerOptions* out);

// Encodes a text without BOS.
using EncodeText = std::function<Error(const std::string& text, std::vector<int32_t>* ids)>;

// Sets DRY's breakers as token ids, if DRY is on: the last token of each text. Without a tokenizer there are none.
Error find_dry_breakers(const SamplingFlags& flags, const Tokenizer* tokenizer, SamplerOptions* out);
Error find_dry_breakers(const SamplingFlags& flags, const EncodeText& encode, SamplerOptions* out);

}  // namespace pinion
