// Shared by the sub-commands: the options that choose a model, how it runs and how it samples, and opening the model.
#pragma once

#include "apps/cli/command_line.h"
#include "apps/cli/console.h"
#include "apps/model/open.h"
#include "engine/session/prompt_cache.h"
#include "loader/checkpoint/model_folder.h"

namespace pinion {

Option add_model_option(Command app, RunOptions* options);
void add_model_or_synthetic_options(Command app, RunOptions* options);  // --model, or --synthetic --ternary

// The packed weights depend on --quant --head --keep --no-rotate --calibrate, the results on --kv as well. Threads,
// --cores, --kernels and --prefill-chunk change the speed only.
void add_weight_options(Command app, RunOptions* options);
void add_calibrate_option(Command app, RunOptions* options);
void add_lora_option(Command app, RunOptions* options);
void add_number_options(Command app, RunOptions* options);  // the weight options and --kv
void add_threads_option(Command app, RunOptions* options);
void add_speed_options(Command app, RunOptions* options);  // --cores --kernels --prefill-chunk --timeout
void add_run_options(Command app, RunOptions* options);    // --model, --no-cache and all of the above

PromptCacheOptions prompt_cache_options(const std::string& flag);

void add_sampling_options(Command app, SamplingFlags* flags);
OrderedJson sampler_json(const SamplerOptions& options);  // one field for each row of kSamplerSettings

Option add_stop_option(Command app, std::vector<std::string>* stops);

// --prompt-cache DIR[,SIZE]. Off by default, because the files hold what users and the model said.
void add_prompt_cache_option(Command app, std::string* flag);
// `runner`: a Session or Scheduler; state: of one of its sequences. An empty flag opens nothing.
template <class Runner>
Error open_prompt_cache(const std::string& flag, Runner& runner, const RecurrentState& state) {
  if (flag.empty()) return {};
  return PromptCache::open(prompt_cache_options(flag), *runner.model, runner.pool, state, &runner.prompt_cache);
}

// API keys, one per line; `file` empty: none. Keys are never arguments, which other users of the machine can read.
Error read_keys(const std::string& file, std::vector<std::string>* out);

struct JsonFields;  // loader/files/json.h
std::vector<int32_t> read_token_ids(JsonFields& fields, std::string_view name, int64_t max = INT32_MAX);
Error parse_ids(std::string_view text, std::vector<int32_t>* out);  // "1,2,3", "1 2 3" or "[1, 2, 3]"
std::string join_ids(std::span<const int32_t> ids);                 // "1,2,3"

// Size of a buffer for measuring memory bandwidth: far beyond the caches, within the free memory.
int64_t roof_buffer_bytes();

LoadOptions load_options(const RunOptions& options);  // with the cache folder

// Notes for the user.
void note_smaller_context(int64_t asked, int64_t context);  // --context exceeds the model's context

Error make_plan(const RunOptions& options, Plan* out);  // for this machine, with that note

// open_model() with a progress bar and the notes about the model.
Error open_with_progress(const RunOptions& options, const Tokenizer* tokenizer, Runtime* out);

}  // namespace pinion
