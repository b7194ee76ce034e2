// The golden file: settings, prompts and what a model answered to them, one prompt a line.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/common.h"
#include "engine/session/continuation.h"

namespace pinion {

struct JsonFields;  // loader/files/json.h

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

// Which program recorded.
struct Recorder {
  std::string version, commit, compiler, cpu;
};
Recorder this_program();

struct Golden {
  Recorder recorder;
  RunOptions run;           // what decides the numbers
  std::string weights;      // hash over the packed matrices; empty in files of before
  std::string calibration;  // a name of the text that they were quantised for; empty: none
  SamplerOptions sampler;
  std::vector<GoldenPrompt> prompts;
  std::vector<GoldenAnswer> answers;
};

// {"quant", "kv", "head", "keep", "rotate", "calibration"}
OrderedJson run_settings_json(const Golden& golden);

// What a file says before its prompts: {"recorded_by", "weights_hash", "settings"}, where sampling may be missing.
OrderedJson golden_head_json(const Golden& golden);
Error parse_golden_head(JsonFields& fields, Golden* out);

// Ids by a name of their own, "text", "logits_hash" and "logits_hash_by_8".
Error read_answer(JsonFields& fields, const char* ids_name, GoldenAnswer* out);
OrderedJson logits_hash_json(const GoldenAnswer& answer);  // the last two
GoldenAnswer golden_answer(const GenerateResult& result, std::string text);

// A JSON list of texts or {prompt | prompt_ids, max_tokens}; max_tokens for a prompt that does not say.
Error read_prompts(const std::string& path, int64_t max_tokens, std::vector<GoldenPrompt>* out);
Error parse_prompts(const nlohmann::json& list, const std::string& where, int64_t max_tokens,
                    std::vector<GoldenPrompt>* out);

Error read_golden(const std::string& path, Golden* out);
Error parse_golden(const nlohmann::json& file, const std::string& where, Golden* out);
Error write_golden(const Golden& golden, const std::string& path);

}  // namespace pinion
