#include "apps/cli/common.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/team/memory.h"
#include "kernels/base/text.h"

namespace pinion {

Option add_model_option(Command app, RunOptions* options) {
  return app.add_option("-m,--model DIR", options->model).replace(find_model_folder);
}

void add_model_or_synthetic_options(Command app, RunOptions* options) {
  Option model = add_model_option(app, options);
  app.add_path("--synthetic CONFIG.json", options->synthetic).excludes(model);
  app.add_flag("--ternary", options->load.synthetic_ternary).excludes(model);
}

void add_calibrate_option(Command app, RunOptions* options) {
  app.add_path("--calibrate self|none|F.txt", options->calibrate);
}

void add_lora_option(Command app, RunOptions* options) { app.add_option("--lora PATH[=FACTOR]", options->load.lora); }

void add_weight_options(Command app, RunOptions* options) {
  add_lora_option(app, options);
  const auto choose_quant = [options](size_t chosen) {
    options->load.quant = static_cast<Quant>(chosen);
    options->quant_reason = kQuantRequested;
  };
  app.add_choice("--quant MODE", kQuantNames, choose_quant);
  app.when_parsed([options] { resolve_quant(options); });
  app.add_choice("--head FORMAT", kHeadNames, [options](size_t i) { options->load.head = kHeadFormats[i]; });
  app.add_option("--keep PATTERN", options->load.keep).not_empty("an empty pattern would keep all matrices").list();
  app.add_flag("--no-rotate", options->no_rotate);
  add_calibrate_option(app, options);
}

void add_number_options(Command app, RunOptions* options) {
  add_weight_options(app, options);
  app.add_choice("--kv TYPE", kKvNames, [options](size_t i) { options->kv = static_cast<KvType>(i); });
}

void add_threads_option(Command app, RunOptions* options) {
  app.add_number("-t,--threads N", options->team.threads, 1, kMaxThreads);
}

void add_speed_options(Command app, RunOptions* options) {
  app.add_option("--cores LIST", options->cores).not_empty("no cores");
  app.add_option("--kernels NAME", options->kernels_name);
  app.add_number("--prefill-chunk N", options->team.prefill_chunk, 1, 65536);
  app.add_number("--timeout S", options->board_timeout_seconds, 0.1, 86400);
}

void add_run_options(Command app, RunOptions* options) {
  add_model_option(app, options).required();
  add_number_options(app, options);
  add_threads_option(app, options);
  add_speed_options(app, options);
  app.add_flag("--no-cache", options->no_cache);
}

void add_sampling_options(Command app, SamplingFlags* flags) {
  for (size_t i = 0; i < std::size(kSamplerSettings); ++i) {
    const SamplerSetting& row = kSamplerSettings[i];
    std::string name = "--" + std::string(row.name);
    std::ranges::replace(name, '_', '-');
    if (name == "--temperature") name += ",--temp";  // llama.cpp's name
    Option option = app.add_number(name + " " + row.letter, flags->settings[i], row.min, row.max).describe(row.help);
    if (row.count) option.whole();
  }
  app.add_option("--dry-sequence-breaker TEXT", flags->dry_breakers);
  constexpr double kMaxSeed = 9007199254740991;  // 2^53 - 1: exact in every JSON reader
  app.add_number("-s,--seed S", flags->seed, 0, kMaxSeed);
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

Option add_stop_option(Command app, std::vector<std::string>* stops) {
  return app.add_option("--stop TEXT", *stops).not_empty("want a text, have none");
}

void add_prompt_cache_option(Command app, std::string* flag) {
  const auto complain = [](const std::string& text) {
    return prompt_cache_options(text).limit_bytes > 0 ? "" : "want DIR or DIR,SIZE with a SIZE like 500M or 8G";
  };
  app.add_option("--prompt-cache DIR[,SIZE]", *flag).check(complain);
}

PromptCacheOptions prompt_cache_options(const std::string& flag) {
  PromptCacheOptions options{
      .folder = flag, .on_failure = [](const Error& e) { warn(e.message() + "; the prompt cache keeps no more"); }};
  const size_t comma = flag.rfind(',');
  if (comma == std::string::npos) return options;
  constexpr std::string_view kUnits = "KMGT";  // powers of 1024
  double size = 0;
  const char* const end = flag.data() + flag.size();
  const auto [unit, code] = std::from_chars(flag.data() + comma + 1, end, size);
  const int power = unit == end ? 0 : static_cast<int>(kUnits.find(*unit)) + 1;  // 0: also for an unknown unit
  const bool has_valid_unit = unit == end || (unit + 1 == end && power > 0);
  const bool is_size = code == std::errc() && has_valid_unit && size > 0 && comma > 0;
  options.folder = flag.substr(0, comma);
  options.limit_bytes = is_size ? static_cast<int64_t>(std::min(std::ldexp(size, 10 * power), 1e18)) : 0;
  return options;
}

void note_smaller_context(int64_t asked, int64_t context) {
  note("--context " + std::to_string(asked) + " is more than this model's: the context is " + std::to_string(context) +
       " tokens");
}

Error read_keys(const std::string& file, std::vector<std::string>* out) {
  if (file.empty()) return {};
  std::string text;
  if (Error e = read_input(file, 1 << 20, &text)) return e;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  for (const std::string_view line : split(text, '\n')) {
    if (const std::string_view key = trimmed(line); !key.empty()) out->emplace_back(key);
  }
  return out->empty() ? error("no keys", input_name(file), "one a line") : Error{};
}

std::vector<int32_t> read_token_ids(JsonFields& fields, std::string_view name, int64_t max) {
  const std::vector<int64_t> ids = fields.integers(name, 0, max);
  return {ids.begin(), ids.end()};
}

Error parse_ids(std::string_view text, std::vector<int32_t>* out) {
  out->clear();
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto skip_blanks = [&] { text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size())); };
  for (bool after_comma = false;;) {
    skip_blanks();
    if (text.empty() && !after_comma) return {};
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
    after_comma = text.starts_with(',');
    if (after_comma) text.remove_prefix(1);
  }
}

std::string join_ids(std::span<const int32_t> ids) {
  std::string text;
  for (const int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

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
  if (!options.is_draft_model) {
    load.doubt = [](const Error& e) { warn_of_wrong_output(e.message() + "; the output of this run may be wrong"); };
  }
  return load;
}

Error make_plan(const RunOptions& options, Plan* out) { return make_plan(options, note, out); }

Error open_with_progress(const RunOptions& run, const Tokenizer* tokenizer, Runtime* out) {
  {
    ProgressBar bar("loading");
    LoadOptions load = load_options(run);
    load.progress = [&](int64_t done, int64_t total) {
      bar.show(done, total);
      if (run.load.progress) run.load.progress(done, total);
    };
    if (Error e = open_model(run, load, note, tokenizer, out)) return e;
  }
  for (const std::string& text : model_notes(*out->model)) note(text);
  return {};
}

}  // namespace pinion
