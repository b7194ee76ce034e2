#include "loader/config/generation_config.h"

#include <nlohmann/json.hpp>

#include "loader/checkpoint/mapped_file.h"
#include "loader/config/json.h"
#include "loader/config/model_config.h"

namespace pinion {

Error parse_generation_config(std::string_view text, const std::string& where, GenerationDefaults* out) {
  Json json;
  if (Error e = parse_json(text, where, &json)) return e;
  JsonFields file{json, where};
  GenerationDefaults g;
  g.do_sample = file.boolean("do_sample", g.do_sample);
  g.temperature = static_cast<float>(file.number("temperature", g.temperature, 0.0, 1e6));
  g.top_k = file.integer("top_k", g.top_k, 0, kMaxVocabulary);
  g.top_p = static_cast<float>(file.number("top_p", g.top_p, 0.0, 1.0));
  g.min_p = static_cast<float>(file.number("min_p", g.min_p, 0.0, 1.0));
  g.repetition_penalty = static_cast<float>(file.number("repetition_penalty", g.repetition_penalty, 1e-3, 1e3));
  if (file.has("bos_token_id")) g.bos_id = file.integer("bos_token_id", {}, 0, kMaxVocabulary);
  g.eos_ids = file.integers("eos_token_id", 0, kMaxVocabulary);
  if (file.error) return file.error;
  *out = std::move(g);
  return {};
}

Error read_generation_config(const std::filesystem::path& folder, GenerationDefaults* out) {
  const std::filesystem::path path = folder / "generation_config.json";
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    *out = {};
    return {};
  }
  std::string text;
  if (Error e = read_text_file(path, kMaxJsonBytes, &text)) return e;
  return parse_generation_config(text, path.string(), out);
}

}  // namespace pinion
