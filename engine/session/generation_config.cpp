#include "engine/session/generation_config.h"

#include <nlohmann/json.hpp>

#include "loader/config/model_config.h"
#include "loader/files/json.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {

void read_sampler_settings(JsonFields& fields, SamplerOptions* out) {
  for (const SamplerSetting& setting : kSamplerSettings) {
    if (setting.number) {
      float& value = out->*setting.number;
      value = static_cast<float>(fields.number(setting.name, value, setting.min, setting.max));
    } else {
      int32_t& value = out->*setting.count;
      value = static_cast<int32_t>(
          fields.integer(setting.name, value, static_cast<int64_t>(setting.min), static_cast<int64_t>(setting.max)));
    }
  }
}

Error parse_generation_config(std::string_view text, const std::string& where, GenerationDefaults* out) {
  Json json;
  if (Error e = parse_json(text, where, &json)) return e;
  JsonFields file{json, where};
  GenerationDefaults g;
  for (const SamplerSetting& setting : kSamplerSettings) setting.set(&g.sampler, setting.absent);
  read_sampler_settings(file, &g.sampler);
  if (!file.boolean("do_sample", false)) g.sampler.temperature = 0;
  if (file.has("bos_token_id")) g.bos_id = file.integer("bos_token_id", {}, 0, kMaxVocabulary);
  g.eos_ids = file.integers("eos_token_id", 0, kMaxVocabulary);
  if (file.error) return file.error;
  *out = std::move(g);
  return {};
}

Error read_generation_config(const std::filesystem::path& folder, GenerationDefaults* out) {
  constexpr const char* kName = "generation_config.json";
  std::string text = "{}";
  if (has_model_text(folder, kName)) {
    if (Error e = read_model_text(folder, kName, kMaxJsonBytes, &text)) return e;
  }
  return parse_generation_config(text, (folder / kName).string(), out);
}

}  // namespace pinion
