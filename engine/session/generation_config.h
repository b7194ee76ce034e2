// Options of the sampler, and their defaults from generation_config.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

struct LogitBias {
  int32_t id;
  float bias;
};

struct SamplerOptions {
  float temperature = 0;         // 0: greedy
  int32_t top_k = 0;             // keep the k most likely tokens; 0: all
  float top_p = 1;               // keep the fewest tokens whose probabilities reach p
  float min_p = 0;               // drop tokens less likely than min_p times the most likely
  float repetition_penalty = 1;  // above 1: makes ids of the history less likely (Keskar et al. 2019, CTRL)
  // Subtracted from the logits of generated ids: once, and once per occurrence (OpenAI API reference).
  float presence_penalty = 0, frequency_penalty = 0;
  // DRY (p-e-w 2024, github.com/oobabooga/text-generation-webui/pull/5677): subtracts
  // multiplier * base^(length - allowed_length) from the logit of an id that would prolong a repetition of `length`
  // ids, if length >= allowed_length. multiplier 0: off.
  float dry_multiplier = 0;
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  std::vector<int32_t> dry_breakers{};  // ids that end a repetition
  // Added to logits before all other adjustments (OpenAI API reference); ascending by id. Minus infinity bans an id.
  std::vector<LogitBias> logit_bias{};
  uint64_t seed = 0;
};

// One of the SamplerOptions, all of which except dry_breakers, logit_bias and seed are in the table below. Used for
// generation_config.json, golden files and the command line.
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
    {"top_k", 0, 1 << 30, 50, nullptr, &SamplerOptions::top_k, "K", "Keep the K most likely tokens; 0 is all"},
    {"top_p", 0, 1, 1, &SamplerOptions::top_p, nullptr, "P", "Keep the fewest tokens whose probabilities reach P"},
    {"min_p", 0, 1, 0, &SamplerOptions::min_p, nullptr, "P", "Drop tokens less likely than P times the most likely"},
    {"repetition_penalty", 0.01, 100, 1, &SamplerOptions::repetition_penalty, nullptr, "R",
     "Above 1 makes tokens seen before less likely"},
    {"presence_penalty", -100, 100, 0, &SamplerOptions::presence_penalty, nullptr, "R",
     "Subtracted once from the logits of tokens generated before"},
    {"frequency_penalty", -100, 100, 0, &SamplerOptions::frequency_penalty, nullptr, "R",
     "Subtracted from a logit for each time its token was generated before"},
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
