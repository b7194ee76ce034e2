#include "apps/model/open.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/forward/rope.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"

namespace pinion {

Error make_plan(const RunOptions& options, const Note& note, Plan* out) {
  Topology topology;
  if (Error e = read_topology(&topology)) return e;
  const Tuning tuning = read_tuning(topology);
  if (const std::string why = why_not_tuned(options, tuning); !why.empty()) note(why);
  return make_plan(options, topology, tuning, out);
}

Error runtime_options(const RunOptions& run, const LoadOptions& load, const Note& note, RuntimeOptions* out) {
  *out = run;
  if (run.synthetic.empty()) {
    if (Error e = check_model_folder(run.model)) return e;
  }
  if (Error e = select_kernels(run.kernels_name, &out->kernels)) return e;
  if (!out->plan) {
    if (Error e = make_plan(run, note, &out->plan.emplace())) return e;
  }
  out->load = load;
  return {};
}

Error open_model(const RunOptions& run, const LoadOptions& load, const Note& note, Runtime* out) {
  RuntimeOptions options;
  if (Error e = runtime_options(run, load, note, &options)) return e;
  return open_runtime(options, out);
}

SchedulerOptions batch_options(const Runtime& runtime, std::vector<int64_t> needs, int64_t parallel) {
  constexpr int64_t kParallel = 8;
  const int64_t limit = context_length(runtime.model->config);
  for (int64_t& need : needs) need = std::clamp<int64_t>(need, 1, limit);
  std::ranges::sort(needs, std::greater{});
  SchedulerOptions options = scheduler_options(runtime);
  options.sequences = std::min(parallel > 0 ? parallel : kParallel, std::ssize(needs));
  options.context = needs.front();
  for (int64_t i = 0; i < options.sequences; ++i) {
    options.positions += round_up(needs[static_cast<size_t>(i)], kAttentionChunk);
  }
  options.pass_rows = std::max(options.pass_rows, 2 * options.sequences);
  return options;
}

std::string some_of(std::span<const std::string> names) {
  constexpr size_t kMost = 8;
  std::vector<std::string> shown;
  for (const std::string& name : names.first(std::min(kMost, names.size()))) shown.push_back(brief(name));
  const size_t more = names.size() - shown.size();
  return joined(shown) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

std::string ignored_fields_note(const ModelConfig& config) {
  if (config.ignored_fields.empty()) return {};
  return "fields of config.json are ignored, as transformers ignores them: " + some_of(config.ignored_fields);
}

std::vector<std::string> unwritten_notes(const Checkpoint& checkpoint) {
  std::vector<std::string> notes;
  for (const MappedFile& file : checkpoint.files) {
    const char* path = mapped_file_at(file.pages.get());
    const int64_t unwritten = path ? unwritten_bytes(path) : 0;
    if (unwritten == 0) continue;
    notes.push_back(std::string(path) + ": " + std::to_string(unwritten) + " of its " +
                    std::to_string(file.contents().size()) + " bytes were never written and count as 0; " +
                    how_to_complete(checkpoint.folder));
  }
  return notes;
}

namespace {

// model.conversions is not empty.
std::string conversions_note(const Model& model) {
  std::set<std::string> sources;
  std::set<Format> formats;
  for (const Conversion& one : model.conversions) {
    const std::string others = one.modules > 1 ? " and " + std::to_string(one.modules - 1) + " more" : "";
    sources.insert(one.from + (one.requantised_because.empty()
                                   ? ""
                                   : " (" + one.module + others + ": " + one.requantised_because + ")"));
    formats.insert(one.to);
  }
  std::string from, to;
  const std::string kNames[] = {"4 bits", "int8", "bf16"};  // by bytes
  for (const std::string& one : sources) from += (from.empty() ? "" : " and ") + one;
  for (const Format one : formats) {
    to += (to.empty() ? "" : " and ") + kNames[traits_of(one).bits / 8];
  }
  return "weights that the file holds as " + from + " become " + to +
         (to == "bf16" ? "" : ", rounded a second time, and activations are Pinion's own");
}

}  // namespace

std::vector<std::string> model_notes(const Model& model) {
  std::vector<std::string> notes = unwritten_notes(model.checkpoint);
  if (std::string fields = ignored_fields_note(model.config); !fields.empty())
    notes.insert(notes.begin(), std::move(fields));
  if (!model.conversions.empty()) notes.push_back(conversions_note(model));
  return notes;
}

}  // namespace pinion
