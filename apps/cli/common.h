// What the sub-commands share: the options that choose a model, how it runs and how it is sampled, and opening it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command_line.h"
#include "apps/cli/console.h"
#include "apps/model/open.h"
#include "apps/model/run_options.h"
#include "apps/model/sampling.h"
#include "apps/model/texts.h"
#include "kernels/base/error.h"
#include "loader/checkpoint/model_folder.h"

namespace pinion {

// A sub-command declares its options and gives what runs once they are parsed; that returns the exit status.
struct Run {
  std::function<int()> run;
  // Options of models that several boards can share, of which one at most is given; none: the first runs it alone.
  std::vector<RunOptions*> shared = {};
  // What each of several boards does instead; none: the first runs it.
  std::function<int(Exchange&)> on_all = {};
  // Another board is about to follow: makes what it takes of the shared options from the others.
  std::function<void()> settle_follower = {};
};

Option add_model_option(Command app, RunOptions* options);
void add_model_or_synthetic_options(Command app, RunOptions* options);  // --model, or --synthetic --ternary
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

void add_sampling_options(Command app, SamplingFlags* flags);
OrderedJson sampler_json(const SamplerOptions& options);  // by the table of settings

Option add_stop_option(Command app, std::vector<std::string>* stops);
void add_quiet_option(Command app, bool* quiet);

// Tells the user that the model's context is shorter than --context asked for.
void note_smaller_context(int64_t asked, int64_t context);

// Keys of a server, one a line. Who may read this process's arguments must not read keys, so they come from a file.
Error read_keys(const std::string& file, std::vector<std::string>* out);

// "1,2,3", "1 2 3" or "[1, 2, 3]"
Error parse_ids(std::string_view text, std::vector<int32_t>* out);
std::string join_ids(std::span<const int32_t> ids);  // "1,2,3"

// What to read when measuring the memory: far beyond the caches, yet within what is free.
int64_t roof_buffer_bytes();

LoadOptions load_options(const RunOptions& options);  // with the cache's folder; --calibrate is still to be read

Error read_text_ids(const std::string& model, const std::string& file, TextIds* out);
Error read_calibration(const RunOptions& options, LoadOptions* out);  // what --calibrate names, if it does

void tell_of_ignored_fields(const ModelConfig& config);  // a note where there are any
void tell_of_unwritten(const Checkpoint& checkpoint);    // a note for each file that is not all there
void tell_of_model(const Model& model);  // both, and a note where the file's codes are not taken as they are

// Where the tune file does not help and the options leave something to it, a line says why.
void note_unused(const RunOptions& options, const Tuning& tuning);
Error make_plan(const RunOptions& options, Plan* out);  // the plan for this machine, and that

// open_runtime with a progress bar, and with what there is to say about the model.
Error open_with_progress(const RunOptions& options, Runtime* out);

}  // namespace pinion
