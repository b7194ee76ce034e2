#include "apps/model/texts.h"

#include <algorithm>

#include "engine/forward/rope.h"
#include "engine/runtime/calibration.h"
#include "loader/config/model_config.h"

namespace pinion {

bool has_tokenizer(const std::string& folder) { return !tokenizer_file(folder).empty(); }

Error load_own_tokenizer(const std::string& model, std::shared_ptr<const Tokenizer>* out) {
  ModelConfig config;
  if (Error e = read_model_config(model, &config)) return e;
  if (Error e = load_tokenizer(model, out)) return e;
  return check_rows(**out, config.vocab_size);
}

Error encode_prompt(const std::string& model, const Tokenizer& tokenizer, const std::string& text,
                    std::vector<int32_t>* out) {
  ModelConfig config;
  if (Error e = read_model_config(model, &config)) return e;
  return encode(tokenizer, text, {.most_tokens = context_length(config)}, out);
}

Error text_ids(const Tokenizer& tokenizer, const std::string& text, TextIds* out) {
  if (Error e = encode(tokenizer, "", {}, &out->prefix)) return e;
  if (Error e = encode(tokenizer, text, {}, &out->ids)) return e;
  const auto [added, content] = std::ranges::mismatch(out->prefix, out->ids);
  out->prefix.erase(added, out->prefix.end());
  out->ids.erase(out->ids.begin(), content);
  return {};
}

Error use_calibration(const TextIds& text, const std::string& where, LoadOptions* out) {
  if (text.ids.empty()) return error("no text to calibrate by", where);
  out->calibration = calibration_windows(text.prefix, text.ids);
  return {};
}

}  // namespace pinion
