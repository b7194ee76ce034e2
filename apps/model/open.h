// A run's options before names are resolved, as the command line, the server and the library read them, and opening the
// model folder that they name. Prints nothing; the caller decides where notes go.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/model/load_options.h"
#include "engine/runtime/runtime.h"
#include "engine/session/generation_config.h"
#include "kernels/base/error.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/config/model_config.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// --- Options

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

  bool has_model() const { return !model.empty() || !synthetic.empty(); }
};

constexpr int kMaxThreads = 256;

// Formats of the output head, and their option names.
inline constexpr Format kHeadFormats[] = {Format::bf16, Format::w8, Format::w4};
inline constexpr std::string_view kHeadNames[] = {"none", "w8", "w4"};

// Call once all options are parsed: chooses the mode unless it was requested, and the rotation.
void resolve_quant(RunOptions* options);

// Texts that calibrate the weights: kSelfCalibration, kNoCalibration, or a file's text beside the model's own.
inline constexpr std::string_view kSelfCalibration = "self", kNoCalibration = "none";
std::string_view calibration_source(const RunOptions& options);  // default: self for 4-bit modes, else none

std::string model_name(const RunOptions& run);  // ORG/NAME from the Hugging Face cache, or the path's last folder
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

// --- Opening

// Receives one line that informs the user and changes no result.
using Note = std::function<void(const std::string&)>;

// The plan for this machine: cores, threads, prefill chunk. A tune file that cannot be used becomes a note.
Error make_plan(const RunOptions& options, const Note& note, Plan* out);

// Resolves the names in `options`. `load`, with cache folder and callbacks, replaces options.load.
Error runtime_options(const RunOptions& options, const LoadOptions& load, const Note& note, RuntimeOptions* out);

// Opens the model folder or the synthetic model of the options, and calibrates it. With a tokenizer, add_end_ids()
// extends the end tokens of the model's files; null: the caller generates no text.
Error open_model(const RunOptions& options, const LoadOptions& load, const Note& note, const Tokenizer* tokenizer,
                 Runtime* out);

// Adds the tokenizer's end tokens and the tokens by which the folder's chat template ends turns. Ascending, each once.
void add_end_ids(const std::string& folder, const Tokenizer& tokenizer, std::vector<int32_t>* ids);

// The model's context length or, from 8192 tokens on, as much as half of the memory free beside the weights and
// `reserved_bytes` holds.
int64_t fitting_context(const Runtime& runtime, int64_t reserved_bytes = 0);

// Scheduler options for requests of known lengths, prompts included; `parallel` (0: eight) run at once.
SchedulerOptions batch_options(const Runtime& runtime, std::vector<int64_t> tokens, int64_t parallel);

// The record of a packed model without the layout of its matrices; null for another model.
nlohmann::ordered_json pack_json(PackRecord record);

std::string abbreviated_list(std::span<const std::string> names);  // one line: "a", "b" and 3 more
std::vector<std::string> file_notes(const Model& model);           // ignored fields of config.json, incomplete files
std::vector<std::string> model_notes(const Model& model);          // also if the file's weights are requantised

bool has_tokenizer(const std::string& folder);

// Fails when the vocabulary exceeds the model's embedding rows, see check_rows().
Error load_model_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out);

Error load_tokenizer_if_any(const std::string& model, std::shared_ptr<const Tokenizer>* out);  // or null

// Encodes a prompt. Stops early and fails when it exceeds the model's context.
Error encode_prompt(const std::string& model, const Tokenizer& tokenizer, const std::string& text,
                    std::vector<int32_t>* out);

struct TextIds {
  std::vector<int32_t> prefix;  // added by the tokenizer before any text: BOS or nothing
  std::vector<int32_t> ids;     // the text alone
};
Error encode_with_prefix(const Tokenizer& tokenizer, const std::string& text, TextIds* out);

// Sets load->calibration by --calibrate: the model's own text continues the beginnings in configs/beginnings.json.
// tokenizer: that of the folder; null: loaded here, if there is one.
Error read_calibration(const RunOptions& run, const Tokenizer* tokenizer, LoadOptions* load);

}  // namespace pinion
