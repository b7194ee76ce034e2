#include "apps/model/run_options.h"

#include <algorithm>
#include <iterator>
#include <random>

namespace pinion {

// A checkpoint with 4-bit codes defaults to w4a8: users expect the size and speed of 4 bits from it.
void resolve_quant(RunOptions* options) {
  options->load.rotate = !options->no_rotate;
  if (!options->quant_reason.empty()) return;
  options->load.quant = default_quant(options->model);
  options->quant_reason = options->load.quant == Quant::w4a8 ? "the file has 4-bit codes" : "default";
}

std::string_view calibration_source(const RunOptions& options) {
  if (!options.synthetic.empty()) return kNoCalibration;
  if (!options.calibrate.empty()) return options.calibrate;
  return options.load.quant == Quant::w4a8 ? kSelfCalibration : kNoCalibration;
}

std::string_view quant_name(const RunOptions& options) { return kQuantNames[static_cast<size_t>(options.load.quant)]; }

std::string_view head_name(const RunOptions& options) {
  const auto row = std::ranges::find(kHeadFormats, options.load.head, &HeadFormat::format);
  return row == std::end(kHeadFormats) ? "" : row->name;
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
  if (!options.cores.empty()) {
    if (Error e = parse_cores(options.cores, topology, &team.cpus)) return e;
  }
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

}  // namespace pinion
