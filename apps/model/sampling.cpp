#include "apps/model/sampling.h"

#include <random>

namespace pinion {

void apply_flags(const SamplingFlags& flags, SamplerOptions* options) {
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

}  // namespace pinion
