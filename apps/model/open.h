// Opens a model folder: weights, tokenizer, notes about both. Prints nothing; the caller decides where notes go.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "apps/model/run_options.h"
#include "engine/model/load_options.h"
#include "engine/runtime/runtime.h"
#include "kernels/base/error.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/config/model_config.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// Receives one line that informs the user and changes no result.
using Note = std::function<void(const std::string&)>;

// The plan for this machine: cores, threads, prefill chunk. A tune file that cannot be used becomes a note.
Error make_plan(const RunOptions& options, const Note& note, Plan* out);

// Resolves the names in `options`. `load` replaces options.load: it also has the cache folder and the callbacks for
// progress and damage.
Error runtime_options(const RunOptions& options, const LoadOptions& load, const Note& note, RuntimeOptions* out);

// Opens the model folder or the synthetic model that the options name, calibrated as they say. With a tokenizer, its
// end tokens and those of the chat template end texts, in addition to those of the model's files; null: the caller
// generates no text.
Error open_model(const RunOptions& options, const LoadOptions& load, const Note& note, const Tokenizer* tokenizer,
                 Runtime* out);

// Adds the tokenizer's end tokens and the tokens by which the folder's chat template ends turns. Ascending, each once.
void add_end_ids(const std::string& folder, const Tokenizer& tokenizer, std::vector<int32_t>* ids);

// The model's context length, or the largest one whose KV cache takes half of the memory that is free beside the
// weights; at least 8192 tokens, unless the model has fewer.
int64_t fitting_context(const Runtime& runtime);

// Scheduler options for a batch of known lengths. `tokens`: prompt and new tokens of each request, not empty.
// `parallel`: requests that run at once; 0: eight.
SchedulerOptions batch_options(const Runtime& runtime, std::vector<int64_t> tokens, int64_t parallel);

// The record of a packed model without the layout of its matrices; null for another model.
nlohmann::ordered_json pack_json(PackRecord record);

std::string abbreviated_list(std::span<const std::string> names);  // one line: "a", "b" and 3 more
std::vector<std::string> file_notes(const Model& model);           // ignored fields of config.json, incomplete files
std::vector<std::string> model_notes(const Model& model);          // also if the file's weights are requantised

bool has_tokenizer(const std::string& folder);

// Fails when the vocabulary exceeds the model's embedding rows, see check_rows().
Error load_model_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out);

Error load_tokenizer_if_any(const std::string& model,
                            std::shared_ptr<const Tokenizer>* out);  // null: the folder has none

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
