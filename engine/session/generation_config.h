// generation_config.json: how a model's authors want it sampled, and which tokens end its answers.
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
  float temperature = 0;         // 0 = greedy
  int32_t top_k = 0;             // keep the k most likely; 0 = all
  float top_p = 1;               // keep the fewest whose probabilities reach p
  float min_p = 0;               // drop those less likely than min_p times the most likely
  float repetition_penalty = 1;  // > 1 makes ids seen before less likely (Keskar et al. 2019, CTRL)
  // Subtracted from the logit of an id that was generated before, once and for each time (OpenAI's API reference).
  float presence_penalty = 0, frequency_penalty = 0;
  // DRY (p-e-w 2024, github.com/oobabooga/text-generation-webui/pull/5677): an id that would prolong a repetition of
  // `length` ids loses multiplier * base^(length - allowed_length); shorter repetitions cost nothing. 0: off.
  float dry_multiplier = 0;
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  std::vector<int32_t> dry_breakers{};  // ids that no repetition goes across
  // Added to logits before everything else (OpenAI's API reference), ascending by id. Minus infinity bans.
  std::vector<LogitBias> logit_bias{};
  uint64_t seed = 0;
};

// All of these but breakers, bias and seed: generation_config.json, golden files and the command line go by this table.
struct SamplerSetting {
  std::string_view name;  // in files; --top-k on the command line
  double least, most;
  double absent;  // what transformers takes where generation_config.json is silent
  float SamplerOptions::* number;
  int32_t SamplerOptions::* count;  // one of the two
  const char* letter;               // of the value in --help
  const char* help;

  void set(SamplerOptions* options, double value) const {
    if (number) options->*number = static_cast<float>(value);
    if (count) options->*count = static_cast<int32_t>(value);
  }
};

inline constexpr SamplerSetting kSamplerSettings[] = {
    {"temperature", 0, 100, 1, &SamplerOptions::temperature, nullptr, "T",
     "0 is greedy (default: generation_config.json)"},
    {"top_k", 0, 1 << 30, 50, nullptr, &SamplerOptions::top_k, "K", "Keep the K most likely tokens; 0 is all"},
    {"top_p", 0, 1, 1, &SamplerOptions::top_p, nullptr, "P", "Keep the fewest tokens whose probabilities reach P"},
    {"min_p", 0, 1, 0, &SamplerOptions::min_p, nullptr, "P", "Drop tokens less likely than P times the most likely"},
    {"repetition_penalty", 0.01, 100, 1, &SamplerOptions::repetition_penalty, nullptr, "R",
     "Above 1 makes tokens seen before less likely"},
    {"presence_penalty", -100, 100, 0, &SamplerOptions::presence_penalty, nullptr, "R",
     "Taken once from the logits of tokens that were generated before"},
    {"frequency_penalty", -100, 100, 0, &SamplerOptions::frequency_penalty, nullptr, "R",
     "Taken from them for each time they were generated"},
    {"dry_multiplier", 0, 100, 0, &SamplerOptions::dry_multiplier, nullptr, "M",
     "Above 0 keeps sequences from being repeated (DRY): M * B^(length - N) is taken from a token that prolongs one"},
    {"dry_base", 1, 100, 1.75, &SamplerOptions::dry_base, nullptr, "B", "DRY's B"},
    {"dry_allowed_length", 1, 1 << 30, 2, nullptr, &SamplerOptions::dry_allowed_length, "N",
     "DRY's N: shorter repetitions cost nothing"},
};

struct JsonFields;  // json.h

// The settings of an object. A setting that it lacks has the value that `out` has.
void read_sampler_settings(JsonFields& fields, SamplerOptions* out);

struct GenerationDefaults {
  SamplerOptions sampler;  // greedy without do_sample, whatever the rest says
  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;  // may differ from config.json's: both end a text
};

Error parse_generation_config(std::string_view text, const std::string& where, GenerationDefaults* out);

// A folder without the file is one whose file is silent.
Error read_generation_config(const std::filesystem::path& folder, GenerationDefaults* out);

}  // namespace pinion
