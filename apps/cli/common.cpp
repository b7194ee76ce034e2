#include "apps/cli/common.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "engine/forward/rope.h"
#include "engine/runtime/calibration.h"
#include "engine/team/memory.h"
#include "loader/config/generation_config.h"
#include "loader/config/model_config.h"
#include "loader/config/user_folders.h"

namespace pinion {
namespace {

// What somebody expects of a folder whose name says 4 bits is that size and speed.
void settle_quant(RunOptions* options) {
  options->load.rotate = !options->no_rotate;
  if (!options->why_quant.empty()) return;
  options->load.quant = default_quant(options->model);
  options->why_quant = options->load.quant == Quant::w4a8 ? "the file has 4-bit codes" : "default";
}

}  // namespace

std::string_view quant_name(const RunOptions& options) { return kQuantNames[static_cast<size_t>(options.load.quant)]; }

std::string_view head_name(const RunOptions& options) {
  const auto row = std::ranges::find(kHeadFormats, options.load.head, &HeadFormat::format);
  return row == std::end(kHeadFormats) ? "" : row->name;
}

std::string_view kv_name(const RunOptions& options) { return kKvNames[static_cast<size_t>(kv_type(options))]; }

std::string mode_text(const RunOptions& options) {
  return std::string(quant_name(options)) + (options.load.head ? ", head " + std::string(head_name(options)) : "") +
         (!options.load.rotate && options.load.quant != Quant::none ? ", not rotated" : "") +
         (options.calibrate.empty() ? "" : ", calibrated");
}

Option add_model_option(Command app, RunOptions* options) {
  return app
      .add_option("-m,--model", options->model,
                  "Folder of the model, as Hugging Face lays it out, or its ORG/NAME in the Hugging Face cache")
      .type_name("DIR")
      .replace(find_model_folder);
}

void add_calibrate_option(Command app, RunOptions* options) {
  app.add_option("--calibrate", options->calibrate,
                 "Quantise the 4-bit weights for texts like this one; `pinion pack` does it once for all later starts")
      .path("F.txt");
}

void add_weight_options(Command app, RunOptions* options) {
  app.add_choice(
         "--quant", kQuantNames,
         [options](size_t chosen) {
           options->load.quant = static_cast<Quant>(chosen);
           options->why_quant = kQuantAsAsked;
         },
         "Weights and arithmetic: none (bf16 weights, fp32), w8a8 (int8) or w4a8 (4-bit weights, int8 head); "
         "default: w4a8 where the folder has 4-bit codes that may stay, else w8a8")
      .type_name("MODE");
  app.when_parsed([options] { settle_quant(options); });
  std::vector<std::string_view> heads;
  for (const HeadFormat& row : kHeadFormats) heads.push_back(row.name);
  app.add_choice(
         "--head", heads, [options](size_t chosen) { options->load.head = kHeadFormats[chosen].format; },
         "Weights of the head, where not the mode's: none (bf16), w8 or w4")
      .type_name("FORMAT");
  app.add_option("--keep", options->load.keep,
                 "Keep matrices at bf16 whose name holds PATTERN, e.g. lm_head; repeatable")
      .type_name("PATTERN")
      .check([](const std::string& text) { return text.empty() ? "an empty pattern would keep all matrices" : ""; })
      .list();
  app.add_flag("--no-rotate", options->no_rotate,
               "Quantise inputs as they are, not rotated: for comparison, it costs quality");
  add_calibrate_option(app, options);
}

void add_number_options(Command app, RunOptions* options) {
  add_weight_options(app, options);
  app.add_choice(
         "--kv", kKvNames, [options](size_t chosen) { options->kv = static_cast<KvType>(chosen); },
         "Numbers of the KV cache: f32 (default for none), bf16, or q8 (default else: int8, rotated, half the bytes)")
      .type_name("TYPE");
}

void add_threads_option(Command app, RunOptions* options) {
  app.add_option("-t,--threads", options->team.threads,
                 "Threads (default: as tuned, else one for each core that helps)")
      .range(1, kMaxThreads)
      .type_name("N");
}

void add_speed_options(Command app, RunOptions* options) {
  app.add_option("--cores", options->cores, "Cores: 0-3,8 or big, little, all")
      .type_name("LIST")
      .check([](const std::string& text) { return text.empty() ? "no cores" : ""; });
  app.add_option("--kernels", options->kernels_name, "Kernel table, as `pinion cpu` lists them").type_name("NAME");
  app.add_option("--prefill-chunk", options->team.prefill_chunk,
                 "Prompt tokens evaluated together; never changes the result (default: as tuned, else 256)")
      .range(1, 65536)
      .type_name("N");
}

void add_cache_option(Command app, RunOptions* options) {
  app.add_flag("--no-cache", options->no_cache, "Pack the weights anew, and keep nothing for the next start");
}

void add_run_options(Command app, RunOptions* options) {
  add_model_option(app, options).required();
  add_number_options(app, options);
  add_threads_option(app, options);
  add_speed_options(app, options);
  add_cache_option(app, options);
}

void add_sampling_options(Command app, SamplingFlags* flags) {
  for (size_t i = 0; i < std::size(kSamplerSettings); ++i) {
    const SamplerSetting& setting = kSamplerSettings[i];
    std::string name = "--" + std::string(setting.name);
    std::ranges::replace(name, '_', '-');
    if (name == "--temperature") name += ",--temp";  // as llama.cpp calls it
    Option option = app.add_option(name, flags->settings[i], setting.help);
    option.range(setting.least, setting.most).type_name(setting.letter);
    if (setting.count) option.whole();
  }
  app.add_option("--dry-sequence-breaker", flags->dry_breakers,
                 "DRY sees no repetition across TEXT; repeatable; none: across all (default: newline : \" *)")
      .type_name("TEXT")
      .repeatable();
  constexpr double kMostSeed = 9007199254740991;  // what readers of JSON keep exactly
  app.add_option("-s,--seed", flags->seed, "Same seed, same text (default: by chance, shown by --json)")
      .range(0, kMostSeed)
      .type_name("S");
}

void apply_flags(const SamplingFlags& flags, SamplerOptions* options) {
  for (size_t i = 0; i < std::size(kSamplerSettings); ++i) {
    if (flags.settings[i]) kSamplerSettings[i].set(options, *flags.settings[i]);
  }
  options->seed = flags.seed.value_or(options->seed);
}

OrderedJson sampler_json(const SamplerOptions& options) {
  OrderedJson json = OrderedJson::object();
  for (const SamplerSetting& setting : kSamplerSettings) {
    const std::string name(setting.name);
    if (setting.number) json[name] = decimal_of(options.*setting.number);
    if (setting.count) json[name] = options.*setting.count;
  }
  return json;
}

Error sampler_options(const std::string& folder, const SamplingFlags& flags, SamplerOptions* out) {
  GenerationDefaults defaults;
  if (Error e = read_generation_config(folder, &defaults)) return e;
  *out = defaults.sampler;
  out->seed = std::random_device{}();
  apply_flags(flags, out);
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
    // After a letter: at a beginning some tokenizers put a blank before it.
    std::vector<int32_t> ids;
    if (Error e = encode("a" + text, &ids)) return e;
    if (!ids.empty()) out->dry_breakers.push_back(ids.back());
  }
  return {};
}

Option add_stop_option(Command app, std::vector<std::string>* stops) {
  return app
      .add_option("--stop", *stops, "End the text before TEXT, which is not shown, as $'\\n' or \"User:\"; repeatable")
      .type_name("TEXT")
      .check([](const std::string& text) { return text.empty() ? "want a text, have none" : ""; })
      .repeatable();
}

void add_quiet_option(Command app, bool* quiet) {
  app.add_flag("--quiet", *quiet, "On standard error only failures: no notes, no progress, no figures");
}

void note_smaller_context(int64_t asked, int64_t context) {
  note("--context " + std::to_string(asked) + " is more than this model's: the context is " + std::to_string(context) +
       " tokens");
}

Error read_keys(const std::string& file, std::vector<std::string>* out) {
  if (file.empty()) return {};
  std::string text;
  if (Error e = read_input(file, 1 << 20, &text)) return e;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF", kBlanks = " \t\r";
  for (size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const size_t first = std::min(text.find_first_not_of(kBlanks, begin), end);
    if (first < end) out->push_back(text.substr(first, text.find_last_not_of(kBlanks, end - 1) + 1 - first));
    begin = end + 1;
  }
  return out->empty() ? error("no keys", input_name(file), "one a line") : Error{};
}

Error parse_ids(std::string_view text, std::vector<int32_t>* out) {
  out->clear();
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto skip_blanks = [&] { text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size())); };
  for (bool goes_on = false;;) {  // behind a comma
    skip_blanks();
    if (text.empty() && !goes_on) return {};
    const std::string_view word = text.substr(0, text.find_first_of(", \t\r\n"));
    int32_t id = 0;
    const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (code != std::errc() || end != word.data() + word.size() || id < 0) {
      const std::string_view wrong = word.empty() ? text : word;
      return error("not a list of token ids", "", "numbers like 1,2,3", "\"" + std::string(wrong.substr(0, 40)) + "\"");
    }
    out->push_back(id);
    text.remove_prefix(word.size());
    skip_blanks();
    goes_on = text.starts_with(',');
    if (goes_on) text.remove_prefix(1);
  }
}

std::string join_ids(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

bool has_tokenizer(const std::string& folder) { return !tokenizer_file(folder).empty(); }

int64_t roof_buffer_bytes() {
  Topology topology;
  const bool is_known = !read_topology(&topology);
  const int64_t wanted = std::max(int64_t{256} << 20, is_known ? 4 * topology.last_level_cache_bytes : 0);
  return std::min(wanted, available_memory_bytes() / 4);
}

LoadOptions load_options(const RunOptions& options) {
  LoadOptions load = options.load;
  if (!options.no_cache) load.cache_folder = default_cache_folder();
  load.warn = [](const Error& failure) { note(failure.message()); };
  if (!options.only_drafts) {
    load.doubt = [](const Error& failure) { doubt(failure.message() + "; what this run says may be wrong"); };
  }
  return load;
}

Error load_own_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out) {
  ModelConfig config;
  if (Error e = read_model_config(model, &config)) return e;
  if (Error e = load_tokenizer(model, out)) return e;
  return check_rows(**out, config.vocab_size);
}

Error encode_prompt(const std::string& model, const Tokenizer& tokenizer, const std::string& text,
                    std::vector<int32_t>* out) {
  ModelConfig config;
  if (Error e = read_model_config(model, &config)) return e;
  return encode(tokenizer, text, {.most_tokens = context_length(config)}, out);
}

Error read_text_ids(const std::string& model, const std::string& file, TextIds* out) {
  std::shared_ptr<const Tokenizer> tokenizer;
  if (Error e = load_own_tokenizer(model, &tokenizer)) return e;
  std::string text;
  if (Error e = read_input(file, kMaxTextBytes, &text)) return e;
  if (Error e = encode(*tokenizer, "", {}, &out->prefix)) return e;
  if (Error e = encode(*tokenizer, text, {}, &out->ids)) return e;
  const auto [added, content] = std::ranges::mismatch(out->prefix, out->ids);
  out->prefix.erase(added, out->prefix.end());
  out->ids.erase(out->ids.begin(), content);
  return {};
}

Error read_calibration(const RunOptions& options, LoadOptions* out) {
  if (options.calibrate.empty()) return {};
  TextIds text;
  if (Error e = read_text_ids(options.model, options.calibrate, &text)) return e;
  if (text.ids.empty()) return error("no text to calibrate by", options.calibrate);
  out->calibration = calibration_windows(text.prefix, text.ids);
  return {};
}

std::string some_of(std::span<const std::string> names) {
  constexpr size_t kMost = 8;
  std::vector<std::string> shown;
  for (const std::string& name : names.first(std::min(kMost, names.size()))) shown.push_back(brief(name));
  const size_t more = names.size() - shown.size();
  return joined(shown) + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

void tell_of_ignored_fields(const ModelConfig& config) {
  if (config.ignored_fields.empty()) return;
  note("fields of config.json are ignored, as transformers ignores them: " + some_of(config.ignored_fields));
}

void tell_of_unwritten(const Checkpoint& checkpoint) {
  for (const MappedFile& file : checkpoint.files) {
    const char* path = mapped_file_at(file.pages.get());
    const int64_t unwritten = path ? unwritten_bytes(path) : 0;
    if (unwritten == 0) continue;
    note(std::string(path) + ": " + std::to_string(unwritten) + " of its " + std::to_string(file.contents().size()) +
         " bytes were never written and count as 0; " + how_to_complete(checkpoint.folder));
  }
}

void tell_of_model(const Model& model) {
  tell_of_ignored_fields(model.config);
  tell_of_unwritten(model.checkpoint);
  if (model.conversions.empty()) return;
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
  note("weights that the file holds as " + from + " become " + to +
       (to == "bf16" ? "" : ", rounded a second time, and activations are Pinion's own"));
}

Error make_plan(const RunOptions& options, const Topology& topology, const Tuning& tuning, Plan* out) {
  PlanOptions team = options.team;
  if (!options.cores.empty()) {
    if (Error e = parse_cores(options.cores, topology, &team.cpus)) return e;
  }
  return make_plan(team, topology, tuning, out);
}

void note_unused(const RunOptions& options, const Tuning& tuning) {
  const bool is_asked = options.cores.empty() && options.team.threads == 0;
  if (!tuning.reason || (!is_asked && options.team.prefill_chunk > 0)) return;
  note(tuning.reason.message() + "; going on without it (`pinion tune` renews it)");
}

Error make_plan(const RunOptions& options, Plan* out) {
  Topology topology;
  if (Error e = read_topology(&topology)) return e;
  const Tuning tuning = read_tuning(topology);
  note_unused(options, tuning);
  return make_plan(options, topology, tuning, out);
}

Error runtime_options(const RunOptions& run, RuntimeOptions* out) {
  *out = run;
  if (run.synthetic.empty()) {
    if (Error e = check_model_folder(run.model)) return e;
  }
  if (Error e = select_kernels(run.kernels_name, &out->kernels)) return e;
  if (!out->plan) {
    if (Error e = make_plan(run, &out->plan.emplace())) return e;
  }
  out->load = load_options(run);
  return read_calibration(run, &out->load);
}

Error open_with_progress(const RunOptions& run, Runtime* out) {
  RuntimeOptions options;
  if (Error e = runtime_options(run, &options)) return e;
  {
    ProgressBar bar("loading");
    options.load.progress = [&bar](int64_t done_bytes, int64_t total_bytes) {
      bar.show(static_cast<double>(done_bytes) / static_cast<double>(total_bytes));
    };
    if (Error e = open_runtime(options, out)) return e;
  }
  tell_of_model(*out->model);
  return {};
}

}  // namespace pinion
