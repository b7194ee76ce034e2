// Opening a model's folder, and what there is to say about it meanwhile. Nothing here prints: whoever opens decides who
// reads it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "apps/model/run_options.h"
#include "engine/runtime/runtime.h"
#include "kernels/base/error.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/config/model_config.h"

namespace pinion {

// What is good to know and changes nothing.
using Note = std::function<void(const std::string&)>;

// The plan of the options for this machine.
Error make_plan(const RunOptions& options, const Note& note, Plan* out);

// All that the options say, looked up. `load`: all of options.load, with the cache's folder and who is told of progress
// and damage.
Error runtime_options(const RunOptions& options, const LoadOptions& load, const Note& note, RuntimeOptions* out);

// The folder, or the shape, that the options name, ready to run.
Error open_model(const RunOptions& options, const LoadOptions& load, const Note& note, Runtime* out);

// As many texts at once as are wanted, 0: eight, in as much memory as these can need, together or alone. needs: each
// text's tokens, the prompt's and those to come; at least one text.
SchedulerOptions batch_options(const Runtime& runtime, std::vector<int64_t> needs, int64_t parallel);

std::string some_of(std::span<const std::string> names);     // a stranger's, for one line: "a", "b" and 3 more
std::string ignored_fields_note(const ModelConfig& config);  // empty: there are none
std::vector<std::string> unwritten_notes(const Checkpoint& checkpoint);  // for each file that is not all there

// Both, and where the file's codes are not taken as they are.
std::vector<std::string> model_notes(const Model& model);

}  // namespace pinion
