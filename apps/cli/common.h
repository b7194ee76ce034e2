// What the sub-commands share: the options that choose a model, how it runs and how it is sampled, and opening it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command_line.h"
#include "apps/cli/console.h"
#include "engine/runtime/runtime.h"
#include "engine/session/session.h"
#include "kernels/error.h"
#include "loader/checkpoint/model_folder.h"
#include "tokenizer/tokenizer.h"

namespace pinion {

inline constexpr const char* kQuantAsAsked = "as asked";

// What the command line says about a run: options as they are, and names that are looked up when the run begins.
struct RunOptions : RuntimeOptions {
  std::string why_quant;     // kQuantAsAsked, or why else; the mode is settled once the command line is parsed
  bool no_rotate = false;    // inputs of quantised matrices stay as they are
  std::string calibrate;     // a text file by which w4 is quantised; empty: by the weights alone
  std::string cores;         // "0-3,8", "big"; empty: as planned
  PlanOptions team;          // threads and chunk
  std::string kernels_name;  // empty: the best the CPU has
  bool no_cache = false;
  bool only_drafts = false;  // no text depends on this model
};

// A sub-command declares its options and gives what runs once they are parsed; that returns the exit status.
struct Run {
  std::function<int()> run;
  // Options of models that several boards can share, of which one at most is given; none: the first runs it alone.
  std::vector<RunOptions*> shared = {};
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

std::string_view quant_name(const RunOptions& options);
std::string_view head_name(const RunOptions& options);  // empty: what the mode gives it
std::string_view kv_name(const RunOptions& options);
std::string mode_text(const RunOptions& options);  // "w4a8, head w4"

Option add_model_option(Command app, RunOptions* options);
void add_weight_options(
    Command app,
    RunOptions* options);  // those that decide the packed weights: --quant --head --keep --no-rotate --calibrate
void add_calibrate_option(Command app, RunOptions* options);
void add_number_options(Command app,
                        RunOptions* options);  // those that decide the numbers: the same and --kv
void add_threads_option(Command app, RunOptions* options);
void add_speed_options(Command app,
                       RunOptions* options);              // --cores --kernels --prefill-chunk: speed and nothing else
void add_cache_option(Command app, RunOptions* options);  // --no-cache
void add_run_options(Command app, RunOptions* options);   // all of them

// What a user said about sampling.
struct SamplingFlags {
  std::array<std::optional<double>, std::size(kSamplerSettings)> settings;
  std::vector<std::string> dry_breakers;  // texts; empty: kDryBreakers
  std::optional<uint64_t> seed;
};

// At which DRY's author has repetitions end; "none" alone is none.
inline constexpr std::string_view kDryBreakers[] = {"\n", ":", "\"", "*"};

void add_sampling_options(Command app, SamplingFlags* flags);
void apply_flags(const SamplingFlags& flags, SamplerOptions* options);
OrderedJson sampler_json(const SamplerOptions& options);  // by the table of settings

// The flags over what generation_config.json says over greedy; a seed of chance where none is given.
Error sampler_options(const std::string& folder, const SamplingFlags& flags, SamplerOptions* out);

// A text's ids, without what a tokenizer puts before it.
using EncodeText = std::function<Error(const std::string& text, std::vector<int32_t>* ids)>;

// The breakers as ids, where DRY is on: a text's last token, as its author has it. Without a tokenizer there are none.
Error find_dry_breakers(const SamplingFlags& flags, const Tokenizer* tokenizer, SamplerOptions* out);
Error find_dry_breakers(const SamplingFlags& flags, const EncodeText& encode, SamplerOptions* out);  // null: none

Option add_stop_option(Command app, std::vector<std::string>* stops);
void add_quiet_option(Command app, bool* quiet);

// Tells the user that the model's context is shorter than --context asked for.
void note_smaller_context(int64_t asked, int64_t context);

// Keys of a server, one a line. Who may read this process's arguments must not read keys, so they come from a file.
Error read_keys(const std::string& file, std::vector<std::string>* out);

// "1,2,3", "1 2 3" or "[1, 2, 3]"
Error parse_ids(std::string_view text, std::vector<int32_t>* out);
std::string join_ids(std::span<const int32_t> ids);  // "1,2,3"

bool has_tokenizer(const std::string& folder);

// What to read when measuring the memory: far beyond the caches, yet within what is free.
int64_t roof_buffer_bytes();

LoadOptions load_options(const RunOptions& options);  // with the cache's folder; --calibrate is still to be read

// A text as a model's tokens.
struct TextIds {
  std::vector<int32_t> prefix;  // what the tokenizer puts before a text: BOS, or nothing
  std::vector<int32_t> ids;     // without it
};

// The tokenizer of a model folder. Fails where check_rows() does: the model lacks some of its tokens.
Error load_own_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out);

// A prompt's tokens. One that does not fit into the model's context is refused before all of it is encoded.
Error encode_prompt(const std::string& model, const Tokenizer& tokenizer, const std::string& text,
                    std::vector<int32_t>* out);

Error read_text_ids(const std::string& model, const std::string& file, TextIds* out);
Error read_calibration(const RunOptions& options, LoadOptions* out);  // what --calibrate names, if it does

std::string some_of(std::span<const std::string> names);  // a stranger's, for one line: "a", "b" and 3 more
void tell_of_ignored_fields(const ModelConfig& config);   // a note where there are any
void tell_of_unwritten(const Checkpoint& checkpoint);     // a note for each file that is not all there
void tell_of_model(const Model& model);  // both, and a note where the file's codes are not taken as they are

// The plan of the options. Where the tune file does not help and the options leave something to it, a line says why.
Error make_plan(const RunOptions& options, const Topology& topology, const Tuning& tuning, Plan* out);
void note_unused(const RunOptions& options, const Tuning& tuning);
Error make_plan(const RunOptions& options, Plan* out);  // all of that, for this machine

// All that options say, looked up.
Error runtime_options(const RunOptions& options, RuntimeOptions* out);

// open_runtime with a progress bar, and with what there is to say about the model.
Error open_with_progress(const RunOptions& options, Runtime* out);

}  // namespace pinion
