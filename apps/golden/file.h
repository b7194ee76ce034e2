// The golden file: settings, prompts and a model's answers, one prompt per line.
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
  std::optional<std::string> text;  // none: the prompt was given as ids
  std::vector<int32_t> ids;
  int64_t max_tokens = 0;
};

struct GoldenAnswer {
  std::vector<int32_t> ids;
  std::string text;
  std::string logits_hash;                  // over the bits of every logits vector that a token was drawn from
  std::vector<std::string> partial_hashes;  // the hash after every kTokensPerHash tokens; empty in old files
};

constexpr int64_t kTokensPerHash = 8;
constexpr int64_t kMaxGoldenTokens = 1 << 30;

// The program and CPU that recorded the file.
struct Recorder {
  std::string version, commit, compiler, cpu;
};
Recorder this_program();

struct Golden {
  Recorder recorder;
  RunOptions run;           // settings that change the results
  std::string weights;      // hash over the packed matrices; empty in old files
  std::string calibration;  // name of the calibration texts; empty: none
  SamplerOptions sampler;
  std::vector<GoldenPrompt> prompts;
  std::vector<GoldenAnswer> answers;
};

// {"quant", "kv", "head", "keep", "rotate", "calibration"}
OrderedJson run_settings_json(const Golden& golden);

// The fields of a file before its prompts: {"recorded_by", "weights_hash", "settings"}; sampling settings are optional.
OrderedJson golden_head_json(const Golden& golden);
Error parse_golden_head(JsonFields& fields, Golden* out);

// Reads the ids from the field `ids_name`, and "text", "logits_hash" and "logits_hash_by_8".
Error read_answer(JsonFields& fields, const char* ids_name, GoldenAnswer* out);
OrderedJson logits_hash_json(const GoldenAnswer& answer);  // the last two fields
GoldenAnswer golden_answer(const GenerateResult& result, std::string text);

// A JSON list of texts or {prompt | prompt_ids, max_tokens}. `max_tokens` is the default.
Error read_prompts(const std::string& path, int64_t max_tokens, std::vector<GoldenPrompt>* out);
Error parse_prompts(const nlohmann::json& list, const std::string& where, int64_t max_tokens,
                    std::vector<GoldenPrompt>* out);

Error read_golden(const std::string& path, Golden* out);
Error parse_golden(const nlohmann::json& file, const std::string& where, Golden* out);
Error write_golden(const Golden& golden, const std::string& path);

}  // namespace pinion
