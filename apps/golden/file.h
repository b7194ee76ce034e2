// The golden file: settings, prompts and what a model answered to them, one prompt a line.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/common.h"
#include "engine/session/sampler.h"

namespace pinion {

struct GoldenPrompt {
  std::optional<std::string> text;  // none: ids were given
  std::vector<int32_t> ids;
  int64_t max_tokens = 0;
};

struct GoldenAnswer {
  std::vector<int32_t> ids;
  std::string text;
  std::string logits_hash;                 // over the bits of every logits vector that a token was drawn from
  std::vector<std::string> hashes_on_way;  // the same after every kTokensPerHash tokens; empty in files of before
};

constexpr int64_t kTokensPerHash = 8;
constexpr int64_t kMaxGoldenTokens = 1 << 30;

struct Golden {
  RunOptions run;           // what decides the numbers
  std::string weights;      // hash over the packed matrices; empty in files of before
  std::string calibration;  // a name of the text that they were quantised for; empty: none
  SamplerOptions sampler;
  std::vector<GoldenPrompt> prompts;
  std::vector<GoldenAnswer> answers;
};

// A JSON list of texts or {prompt | prompt_ids, max_tokens}; max_tokens for a prompt that does not say.
Error read_prompts(const std::string& path, int64_t max_tokens, std::vector<GoldenPrompt>* out);
Error parse_prompts(const nlohmann::json& list, const std::string& where, int64_t max_tokens,
                    std::vector<GoldenPrompt>* out);

Error read_golden(const std::string& path, Golden* out);
Error parse_golden(const nlohmann::json& file, const std::string& where, Golden* out);
Error write_golden(const Golden& golden, const std::string& path);

}  // namespace pinion
