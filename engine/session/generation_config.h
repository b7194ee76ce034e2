// Options of the sampler, and their defaults from generation_config.json.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

struct LogitBias {
  int32_t id;
  float bias;
};

struct SamplerOptions {
  float temperature = 0;  // 0: greedy
  int32_t top_k = 0;      // keep the k most likely tokens; 0: all
  float top_p = 1;        // keep the fewest tokens whose probabilities reach p
  float min_p = 0;        // drop tokens less likely than min_p times the most likely
  // Locally typical sampling (Meister et al. 2022): keep tokens of usual surprise until their mass is p. 1: off.
  float typical_p = 1;
  // XTC (p-e-w 2024, github.com/oobabooga/text-generation-webui/pull/6335): with this probability, drop all tokens of
  // at least the threshold's probability except the least likely of them. 0: off. Draws one more random number.
  float xtc_probability = 0, xtc_threshold = 0.1f;
  // Drop tokens whose logit is more than n standard deviations below the largest (Tang et al. 2024). 0: off.
  float top_n_sigma = 0;
  float repetition_penalty = 1;  // above 1: makes ids of the history less likely (Keskar et al. 2019, CTRL)
  // Subtracted from the logits of generated ids: once, and once per occurrence (OpenAI API reference).
  float presence_penalty = 0, frequency_penalty = 0;
  int32_t repeat_last_n = -1;  // the three penalties count so many last ids of the history; -1: all
  // DRY (p-e-w 2024, github.com/oobabooga/text-generation-webui/pull/5677): subtracts
  // multiplier * base^(length - allowed_length) from the logit of an id that would prolong a repetition of `length`
  // ids, if length >= allowed_length. multiplier 0: off.
  float dry_multiplier = 0;
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  std::vector<int32_t> dry_breakers{};  // ids that end a repetition
  // Added to logits before all other adjustments (OpenAI API reference); ascending by id. Minus infinity bans an id.
  std::vector<LogitBias> logit_bias{};
  std::vector<int32_t> allowed_ids{};          // ascending; only these may be drawn; empty: all
  std::vector<std::vector<int32_t>> banned{};  // sequences whose last id is not drawn after the others
  uint64_t seed = 0;
};

// One of the SamplerOptions, all of which except the lists and the seed are in the table below. Used for
// generation_config.json, golden files, requests and the command line.
struct SamplerSetting {
  std::string_view name;  // in files; --top-k on the command line
  double min, max;
  double absent;  // default of Hugging Face's transformers if generation_config.json lacks the field
  float SamplerOptions::* number;
  int32_t SamplerOptions::* count;  // one of the two is null
  const char* letter;               // placeholder in --help
  const char* help;

  void set(SamplerOptions* options, double value) const {
    if (number) options->*number = static_cast<float>(value);
    if (count) options->*count = static_cast<int32_t>(value);
  }
};

inline constexpr SamplerSetting kSamplerSettings[] = {
    {"temperature", 0, 100, 1, &SamplerOptions::temperature, nullptr, "T",
     "Temperature; 0 is greedy (default: generation_config.json)"},
    {"top_k", -1, 1 << 30, 50, nullptr, &SamplerOptions::top_k, "K", "Keep the K most likely tokens; 0 or -1 is all"},
    {"top_p", 0, 1, 1, &SamplerOptions::top_p, nullptr, "P", "Keep the fewest tokens whose probabilities reach P"},
    {"min_p", 0, 1, 0, &SamplerOptions::min_p, nullptr, "P", "Drop tokens less likely than P times the most likely"},
    {"typical_p", 0, 1, 1, &SamplerOptions::typical_p, nullptr, "P",
     "Keep the fewest tokens of typical surprise whose probabilities reach P"},
    {"xtc_probability", 0, 1, 0, &SamplerOptions::xtc_probability, nullptr, "P",
     "Probability of dropping all tokens above --xtc-threshold except the least likely of them (XTC)"},
    {"xtc_threshold", 0, 1, 0.1, &SamplerOptions::xtc_threshold, nullptr, "P", "XTC's threshold"},
    {"top_n_sigma", -1, 100, 0, &SamplerOptions::top_n_sigma, nullptr, "N",
     "Drop tokens whose logit is more than N standard deviations below the largest; 0 or -1 is off"},
    {"repetition_penalty", 0.01, 100, 1, &SamplerOptions::repetition_penalty, nullptr, "R",
     "Above 1 makes tokens seen before less likely"},
    {"presence_penalty", -100, 100, 0, &SamplerOptions::presence_penalty, nullptr, "R",
     "Subtracted once from the logits of tokens generated before"},
    {"frequency_penalty", -100, 100, 0, &SamplerOptions::frequency_penalty, nullptr, "R",
     "Subtracted from a logit for each time its token was generated before"},
    {"repeat_last_n", -1, 1 << 30, -1, nullptr, &SamplerOptions::repeat_last_n, "N",
     "The three penalties count the last N tokens; -1 is all"},
    {"dry_multiplier", 0, 100, 0, &SamplerOptions::dry_multiplier, nullptr, "M",
     "Above 0 prevents repeated sequences (DRY): subtracts M * B^(length - N) from a token that extends one"},
    {"dry_base", 1, 100, 1.75, &SamplerOptions::dry_base, nullptr, "B", "DRY's B"},
    {"dry_allowed_length", 1, 1 << 30, 2, nullptr, &SamplerOptions::dry_allowed_length, "N",
     "DRY's N: shorter repetitions cost nothing"},
};

struct JsonFields;  // json.h

// Reads the settings of an object; missing ones keep the value in `out`.
void read_sampler_settings(JsonFields& fields, SamplerOptions* out);

struct GenerationDefaults {
  SamplerOptions sampler;  // greedy without do_sample, regardless of other fields
  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;  // in addition to those of config.json
};

Error parse_generation_config(std::string_view text, const std::string& where, GenerationDefaults* out);

// A missing file counts as one without fields.
Error read_generation_config(const std::filesystem::path& folder, GenerationDefaults* out);

}  // namespace pinion
