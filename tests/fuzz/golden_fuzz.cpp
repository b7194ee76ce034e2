// Arbitrary bytes as a golden file and as a list of prompts: refused, or every number is in its range.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/golden/golden.h"
#include "loader/files/json.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"

using namespace pinion;

static void check_prompt(const GoldenPrompt& prompt) {
  require(prompt.max_tokens >= 0 && prompt.max_tokens <= kMaxGoldenTokens);
  for (const int32_t id : prompt.ids) require(id >= 0);
}

FUZZ_TARGET(golden) {
  Json json;
  if (failed(parse_json({reinterpret_cast<const char*>(data), size}, "file", &json))) return 0;
  std::vector<GoldenPrompt> prompts;
  if (!failed(parse_prompts(json, "file", 64, &prompts))) {
    require(prompts.size() == json.size());
    for (const GoldenPrompt& prompt : prompts) {
      check_prompt(prompt);
      require(prompt.text || !prompt.ids.empty());
    }
  }
  Golden golden;
  if (failed(parse_golden(json, "file", &golden))) return 0;
  require(golden.prompts.size() == golden.answers.size());
  require(golden.run.load.quant <= Quant::w4a8_plus && *golden.run.kv <= KvType::q8);
  for (const GoldenPrompt& prompt : golden.prompts) check_prompt(prompt);
  for (const GoldenAnswer& answer : golden.answers) {
    for (const int32_t id : answer.ids) require(id >= 0);
  }
  return 0;
}
