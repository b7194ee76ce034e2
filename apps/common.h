// What the sub-commands share: the options that choose a model, how it runs and how it is sampled, and opening it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/command_line.h"
#include "apps/console.h"
#include "apps/plan.h"
#include "engine/load.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/team.h"
#include "kernels/error.h"
#include "kernels/kernels.h"

namespace pinion {

// A sub-command declares its options and gives what runs once they are parsed; that returns the exit status.
using Run = std::function<int()>;

struct RunOptions {
  std::string model;              // folder
  std::string quant;              // what the command line or the folder says: settled once that is parsed
  std::string why_quant;          // "as asked"
  std::string kv;                 // empty: f32 for none, else bf16
  std::string head;               // none, w8 or w4; empty: what the mode gives it
  std::vector<std::string> keep;  // parts of the names of tensors that stay bf16
  bool no_rotate = false;         // inputs of quantised matrices stay as they are
  std::string calibrate;          // a text file by which w4 is quantised; empty: by the weights alone
  int32_t threads = 0;            // 0: as planned (apps/plan.h)
  std::string cores;              // empty: as planned
  std::string kernels;            // empty: the best the CPU has
  int64_t prefill_chunk = 0;      // 0: as planned
  bool no_cache = false;
};

constexpr int kMaxThreads = 256;
inline const std::vector<std::string> kQuantNames = {"none", "w8a8", "w4a8"};
inline const std::vector<std::string> kHeadNames = {"none", "w8", "w4"};

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
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
};

void add_sampling_options(Command app, SamplingFlags* flags);
void apply_flags(const SamplingFlags& flags, SamplerOptions* options);

// The flags over what generation_config.json says over greedy; a seed of chance where none is given.
Error sampler_options(const std::string& folder, const SamplingFlags& flags, SamplerOptions* out);

// "1,2,3", "1 2 3" or "[1, 2, 3]"
Error parse_ids(std::string_view text, std::vector<int32_t>* out);
std::string join_ids(std::span<const int32_t> ids);  // "1,2,3"

Error check_folder(const std::string& folder);
bool has_tokenizer(const std::string& folder);

// What to read when measuring the memory: far beyond the caches, yet within what is free.
int64_t roof_buffer_bytes();

bool kv_is_float(const RunOptions& options);
std::string_view kv_name(const RunOptions& options);
LoadOptions load_options(const RunOptions& options, int32_t threads, ProgressBar* bar);

// A text as a model's tokens.
struct TextIds {
  std::vector<int32_t> prefix;  // what the tokenizer puts before a text: BOS, or nothing
  std::vector<int32_t> ids;     // without it
};

Error read_text_ids(const std::string& model, const std::string& file, TextIds* out);
Error read_calibration(const RunOptions& options, LoadOptions* out);  // what --calibrate names, if it does

// A model ready to run. Sessions of it must not outlive it.
struct Runtime {
  const Kernels* kernels = nullptr;
  std::unique_ptr<Team> team;  // decodes
  std::unique_ptr<Team> prefill_team;
  int64_t prefill_chunk = kDefaultPrefillChunk;
  std::unique_ptr<Model> model;
  std::jthread cache_writer;  // behind what it reads: it ends first
};

void tell_of_ignored_fields(const ModelConfig& config);  // a note where there are any
void tell_of_model(const Model& model);  // that, and a note where the file's codes are not taken as they are

void use_plan(const Plan& plan, Runtime* out);  // its teams and chunk

// Also keeps freshly packed weights for the next start, in the background.
Error open_runtime(const RunOptions& options, Runtime* out);
Error open_session(const Runtime& runtime, const RunOptions& options, int64_t capacity, std::unique_ptr<Session>* out,
                   const Session* beside = nullptr);

}  // namespace pinion
