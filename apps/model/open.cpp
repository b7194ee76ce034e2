#include "apps/model/open.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/forward/rope.h"
#include "engine/team/memory.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "tokenizer/templates/chat_template.h"

namespace pinion {

Error make_plan(const RunOptions& options, const Note& note, Plan* out) {
  Topology topology;
  if (Error e = read_topology(&topology)) return e;
  const Tuning tuning = read_tuning(topology);
  if (const std::string why = tuning_note(options, tuning); !why.empty()) note(why);
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

void add_end_ids(const std::string& folder, const Tokenizer& tokenizer, std::vector<int32_t>* ids) {
  std::ranges::copy(end_ids(tokenizer), std::back_inserter(*ids));
  std::shared_ptr<const ChatTemplate> chat_template;
  // A template that does not load is an error of the commands that use it.
  if (!load_chat_template(folder, &chat_template) && chat_template) {
    std::ranges::copy(turn_ends(*chat_template, tokenizer), std::back_inserter(*ids));
  }
  std::ranges::sort(*ids);
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

Error open_model(const RunOptions& run, const LoadOptions& load, const Note& note, const Tokenizer* tokenizer,
                 Runtime* out) {
  RuntimeOptions options;
  if (Error e = runtime_options(run, load, note, &options)) return e;
  if (Error e = read_calibration(run, tokenizer, &options.load)) return e;
  if (Error e = open_runtime(options, out)) return e;
  if (tokenizer) add_end_ids(run.model, *tokenizer, &out->model->eos_ids);
  return {};
}

int64_t fitting_context(const Runtime& runtime) {
  constexpr int64_t kMinContext = 8192;
  const ModelConfig& c = runtime.model->config;
  const int64_t block_bytes = kv_shape_of(c, runtime.kv, runtime.model->shares()).block_bytes();
  const int64_t free_bytes = available_memory_bytes() - mapped_bytes(*runtime.model);
  const int64_t limit = context_length(c);
  if (block_bytes == 0) return limit;
  return std::min(limit, std::max(kMinContext, free_bytes / 2 / block_bytes * kAttentionChunk));
}

SchedulerOptions batch_options(const Runtime& runtime, std::vector<int64_t> tokens, int64_t parallel) {
  constexpr int64_t kDefaultParallel = 8;
  const int64_t limit = context_length(runtime.model->config);
  for (int64_t& count : tokens) count = std::clamp<int64_t>(count, 1, limit);
  std::ranges::sort(tokens, std::greater{});
  SchedulerOptions options = scheduler_options(runtime);
  options.sequences = std::min(parallel > 0 ? parallel : kDefaultParallel, std::ssize(tokens));
  options.context = tokens.front();
  // The longest requests may all run together.
  for (int64_t i = 0; i < options.sequences; ++i) options.positions += round_up(tokens[i], kAttentionChunk);
  options.pass_rows = std::max(options.pass_rows, 2 * options.sequences);
  return options;
}

nlohmann::ordered_json pack_json(PackRecord record) {
  std::erase_if(record, [](const auto& entry) { return entry.first.starts_with(kPackedPrefix); });
  return record.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(record);
}

std::string abbreviated_list(std::span<const std::string> names) {
  constexpr size_t kMaxShown = 8;
  std::vector<std::string> shown;
  for (const std::string& name : names.first(std::min(kMaxShown, names.size()))) shown.push_back(brief(name));
  const size_t more = names.size() - shown.size();
  return joined(shown) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

std::vector<std::string> file_notes(const Model& model) {
  std::vector<std::string> notes;
  if (const std::vector<std::string>& ignored = model.config.ignored_fields; !ignored.empty()) {
    notes.push_back("fields of config.json are ignored, as transformers ignores them: " + abbreviated_list(ignored));
  }
  for (const MappedFile& file : model.checkpoint.files) {
    const char* path = mapped_file_at(file.pages.get());
    const int64_t unwritten = path ? unwritten_bytes(path) : 0;
    if (unwritten == 0) continue;
    notes.push_back(std::string(path) + ": " + std::to_string(unwritten) + " of its " +
                    std::to_string(file.contents().size()) + " bytes were never written and count as 0; " +
                    completion_hint(model.checkpoint.folder));
  }
  return notes;
}

namespace {

// Expects model.conversions not to be empty.
std::string conversions_note(const Model& model) {
  std::set<std::string> sources;
  std::set<Format> formats;
  for (const Conversion& conversion : model.conversions) {
    const int64_t others = conversion.modules - 1;
    const std::string modules = conversion.module + (others > 0 ? " and " + std::to_string(others) + " more" : "");
    const std::string& reason = conversion.requantised_because;
    sources.insert(conversion.from + (reason.empty() ? "" : " (" + modules + ": " + reason + ")"));
    formats.insert(conversion.to);
  }
  std::string from, to;
  const std::string kNames[] = {"4 bits", "int8", "bf16"};  // by bytes
  for (const std::string& source : sources) from += (from.empty() ? "" : " and ") + source;
  for (const Format format : formats) to += (to.empty() ? "" : " and ") + kNames[traits_of(format).bits / 8];
  return "weights that the file holds as " + from + " become " + to +
         (to == "bf16" ? "" : ", rounded a second time, and activations are Pinion's own");
}

}  // namespace

std::vector<std::string> model_notes(const Model& model) {
  std::vector<std::string> notes = file_notes(model);
  if (!model.conversions.empty()) notes.push_back(conversions_note(model));
  return notes;
}

bool has_tokenizer(const std::string& folder) { return !tokenizer_file(folder).empty(); }

Error load_model_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out) {
  ModelConfig config;
  if (Error e = read_model_config(model, &config)) return e;
  if (Error e = load_tokenizer(model, out)) return e;
  return check_rows(**out, config.vocab_size);
}

Error load_tokenizer_if_any(const std::string& model, std::shared_ptr<const Tokenizer>* out) {
  return has_tokenizer(model) ? load_model_tokenizer(model, out) : Error{};
}

Error encode_prompt(const std::string& model, const Tokenizer& tokenizer, const std::string& text,
                    std::vector<int32_t>* out) {
  ModelConfig config;
  if (Error e = read_model_config(model, &config)) return e;
  if (Error e = encode(tokenizer, text, {.max_tokens = context_length(config)}, out)) return e;
  return check_rows(tokenizer, config.vocab_size, *out);
}

Error encode_with_prefix(const Tokenizer& tokenizer, const std::string& text, TextIds* out) {
  if (Error e = encode(tokenizer, "", {}, &out->prefix)) return e;
  if (Error e = encode(tokenizer, text, {}, &out->ids)) return e;
  const auto [added, content] = std::ranges::mismatch(out->prefix, out->ids);
  out->prefix.erase(added, out->prefix.end());
  out->ids.erase(out->ids.begin(), content);
  return {};
}

}  // namespace pinion
