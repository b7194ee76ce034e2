// generation_config.json: how a model's authors want it sampled, and which tokens end its answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/error.h"

namespace pinion {

// The defaults are transformers' own for absent fields.
struct GenerationDefaults {
  bool do_sample = false;  // false: greedy, whatever the rest says
  float temperature = 1.0f;
  int64_t top_k = 50;  // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;  // may differ from config.json's: both end a text
};

Error parse_generation_config(std::string_view text, const std::string& where, GenerationDefaults* out);

// A folder without the file has the defaults above.
Error read_generation_config(const std::filesystem::path& folder, GenerationDefaults* out);

}  // namespace pinion
