#include "apps/model/open.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "configs/families.h"
#include "engine/forward/rope.h"
#include "engine/runtime/load.h"
#include "engine/team/memory.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "tokenizer/templates/chat_template.h"

namespace pinion {

// A file of 4 bits defaults to w4a8: users expect its size and speed.
void resolve_quant(RunOptions* options) {
  options->load.rotate = !options->no_rotate;
  if (!options->quant_reason.empty()) return;
  options->load.quant = default_quant(options->model);
  options->quant_reason = has_4_bits(options->load.quant) ? "the file has 4 bits" : "default";
}

std::string_view calibration_source(const RunOptions& options) {
  if (!options.synthetic.empty()) return kNoCalibration;
  if (!options.calibrate.empty()) return options.calibrate;
  return has_4_bits(options.load.quant) ? kSelfCalibration : kNoCalibration;
}

std::string model_name(const RunOptions& run) {
  const bool is_file = !run.synthetic.empty();
  if (const std::string name = repository_name(run.model); !is_file && !name.empty()) return name;
  const std::filesystem::path path = absolute_path(is_file ? run.synthetic : run.model);
  return (is_file ? path.parent_path() : path).filename();
}

std::string_view quant_name(const RunOptions& options) { return kQuantNames[static_cast<size_t>(options.load.quant)]; }

std::string_view head_name(const RunOptions& options) {
  const auto format = std::ranges::find(kHeadFormats, options.load.head);
  return format == std::end(kHeadFormats) ? "" : kHeadNames[format - std::begin(kHeadFormats)];
}

std::string_view kv_name(const RunOptions& options) { return kKvNames[static_cast<size_t>(kv_type(options))]; }

std::string mode_text(const RunOptions& options) {
  return std::string(quant_name(options)) + (options.load.head ? ", head " + std::string(head_name(options)) : "") +
         (!options.load.rotate && options.load.quant != Quant::none ? ", not rotated" : "") +
         (options.calibrate.empty() ? "" : ", --calibrate " + options.calibrate) +
         (options.load.lora.empty() ? "" : ", adapted");
}

Error make_plan(const RunOptions& options, const Topology& topology, const Tuning& tuning, Plan* out) {
  PlanOptions team = options.team;
  if (Error e = options.cores.empty() ? Error{} : parse_cores(options.cores, topology, &team.cpus)) return e;
  return make_plan(team, topology, tuning, out);
}

std::string tuning_note(const RunOptions& options, const Tuning& tuning) {
  const bool has_cores = !options.cores.empty() || options.team.threads > 0;
  if (!tuning.reason || (has_cores && options.team.prefill_chunk > 0)) return {};
  return tuning.reason.message() + "; going on without it (`pinion tune` renews it)";
}

void apply_sampling_flags(const SamplingFlags& flags, SamplerOptions* options) {
  for (size_t i = 0; i < std::size(kSamplerSettings); ++i) {
    if (flags.settings[i]) kSamplerSettings[i].set(options, *flags.settings[i]);
  }
  options->seed = flags.seed.value_or(options->seed);
}

Error sampler_options(const std::string& folder, const SamplingFlags& flags, SamplerOptions* out) {
  GenerationDefaults defaults;
  if (Error e = read_generation_config(folder, &defaults)) return e;
  *out = defaults.sampler;
  out->seed = std::random_device{}();
  apply_sampling_flags(flags, out);
  return {};
}

Error find_dry_breakers(const SamplingFlags& flags, const Tokenizer* tokenizer, SamplerOptions* out) {
  if (!tokenizer) return find_dry_breakers(flags, EncodeText(), out);
  const auto plain = [tokenizer](const std::string& text, std::vector<int32_t>* ids) {
    return encode(*tokenizer, text, {.add_special = false}, ids);
  };
  return find_dry_breakers(flags, plain, out);
}

Error find_dry_breakers(const SamplingFlags& flags, const EncodeText& encode, SamplerOptions* out) {
  if (!(out->dry_multiplier > 0)) return {};
  std::vector<std::string> texts = flags.dry_breakers;
  if (!encode && !texts.empty()) return error("needs a tokenizer", "--dry-sequence-breaker");
  if (!encode || texts == std::vector<std::string>{"none"}) return {};
  if (texts.empty()) texts.assign(std::begin(kDryBreakers), std::end(kDryBreakers));
  for (const std::string& text : texts) {
    // Some tokenizers add a blank at the beginning of a text, hence the letter.
    std::vector<int32_t> ids;
    if (Error e = encode("a" + text, &ids)) return e;
    if (!ids.empty()) out->dry_breakers.push_back(ids.back());
  }
  return {};
}

Error make_plan(const RunOptions& options, const Note& note, Plan* out) {
  Topology topology;
  if (Error e = read_topology(&topology)) return e;
  const Tuning tuning = read_tuning(topology);
  if (const std::string why = tuning_note(options, tuning); !why.empty()) note(why);
  return make_plan(options, topology, tuning, out);
}

Error runtime_options(const RunOptions& run, const LoadOptions& load, const Note& note, RuntimeOptions* out) {
  *out = run;
  if (Error e = run.synthetic.empty() ? check_model_folder(run.model) : Error{}) return e;
  if (Error e = select_kernels(run.kernels_name, &out->kernels)) return e;
  if (Error e = out->plan ? Error{} : make_plan(run, note, &out->plan.emplace())) return e;
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

int64_t fitting_context(const Runtime& runtime, int64_t reserved_bytes) {
  constexpr int64_t kMinContext = 8192;
  const ModelConfig& c = runtime.model->config;
  const int64_t block_bytes = kv_shape_of(c, runtime.kv, runtime.model->shares()).block_bytes();
  const int64_t free_bytes = available_memory_bytes() - mapped_bytes(*runtime.model) - reserved_bytes;
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
  return check_rows(**out, config.vocab_size + config.extra_rows);
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

// --- The texts that calibrate quantised weights

namespace {

constexpr int64_t kAddedTokens = 64;  // to each beginning
constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

// Texts of a model without a tokenizer begin with single ids, spread over the vocabulary.
Error add_single_ids(const std::string& folder, LoadOptions* load) {
  constexpr int64_t kTexts = 32;
  ModelConfig config;
  if (Error e = read_model_config(folder, &config)) return e;
  for (int64_t i = 0; i < kTexts; ++i) {
    load->calibration.push_back({{static_cast<int32_t>(i * config.vocab_size / kTexts)}, kAddedTokens});
  }
  return {};
}

Error add_windows(const Tokenizer& tokenizer, const std::string& text, LoadOptions* load) {
  TextIds ids;
  if (Error e = encode_with_prefix(tokenizer, text, &ids)) return e;
  for (CalibrationText& part : calibration_windows(ids.prefix, ids.ids)) load->calibration.push_back(std::move(part));
  return {};
}

// Messages by the folder's template, the last one with tools. A template that refuses them adds none.
void add_conversations(const std::string& folder, const Tokenizer& tokenizer, const nlohmann::ordered_json& beginnings,
                       LoadOptions* load) {
  std::shared_ptr<const ChatTemplate> chat_template;
  if (load_chat_template(folder, &chat_template) || !chat_template) return;
  const auto add = [&](const nlohmann::ordered_json& message, const nlohmann::ordered_json& tools) {
    Conversation conversation;
    conversation.messages.push_back({{"role", "user"}, {"content", message}});
    conversation.tools = tools;
    conversation.has_fixed_date = true;
    Prompt prompt;
    if (make_prompt(*chat_template, tokenizer, conversation, &prompt) || prompt.ids.empty()) return;
    load->calibration.push_back({std::move(prompt.ids), kAddedTokens});
  };
  for (const nlohmann::ordered_json& message : beginnings["messages"]) add(message, nullptr);
  add(beginnings["question"], beginnings["tools"]);
}

Error add_own_texts(const std::string& folder, const Tokenizer& tokenizer, LoadOptions* load) {
  nlohmann::ordered_json beginnings;
  if (Error e = parse_ordered_json(beginnings_text(), "configs/beginnings.json", &beginnings)) return e;
  for (const nlohmann::ordered_json& text : beginnings["texts"]) {
    TextIds ids;
    if (Error e = encode_with_prefix(tokenizer, text.get<std::string>(), &ids)) return e;
    ids.prefix.insert(ids.prefix.end(), ids.ids.begin(), ids.ids.end());
    if (!ids.prefix.empty()) load->calibration.push_back({std::move(ids.prefix), kAddedTokens});
  }
  add_conversations(folder, tokenizer, beginnings, load);
  for (const nlohmann::ordered_json& passage : beginnings["passages"]) {
    if (Error e = add_windows(tokenizer, passage.get<std::string>(), load)) return e;
  }
  return {};
}

}  // namespace

Error read_calibration(const RunOptions& run, const Tokenizer* tokenizer, LoadOptions* load) {
  const std::string_view source = calibration_source(run);
  std::shared_ptr<const Tokenizer> own;
  PackRecord record;
  if (Error e = read_pack_record(run.model, &record)) return e;
  if (!record.empty() && run.calibrate.empty()) return {};  // a packed model keeps its calibration
  if (source == kNoCalibration && !record["calibration"].empty()) {
    return error("packed otherwise; pack its source for this", run.model + ": --calibrate", record["calibration"],
                 "none");
  }
  if (source == kNoCalibration) return {};
  if (Error e = check_model_folder(run.model)) return e;
  if (!tokenizer) {
    if (Error e = load_tokenizer_if_any(run.model, &own); e && !run.calibrate.empty()) return e;
    tokenizer = own.get();
  }
  if (Error e = tokenizer ? add_own_texts(run.model, *tokenizer, load) : add_single_ids(run.model, load)) return e;
  if (source == kSelfCalibration) return {};
  std::string text;
  if (!tokenizer) return error("a calibration text needs a tokenizer", run.model);
  if (Error e = read_text_file(source, kMaxTextBytes, &text)) return e;
  const size_t texts = load->calibration.size();
  if (Error e = add_windows(*tokenizer, text, load)) return e;
  return load->calibration.size() == texts ? error("no text to calibrate with", std::string(source)) : Error{};
}

}  // namespace pinion
