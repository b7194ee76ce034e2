// Any JSON as the metadata of a GGUF file: an error, or the texts of a tokenizer that is refused or usable.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "loader/gguf/gguf_folder.h"
#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/target.h"
#include "tokenizer/tokens/tokenizer_internal.h"

FUZZ_TARGET(gguf_tokenizer) {
  pinion::Json metadata;
  std::map<std::string, std::string> texts;
  if (pinion::parse_json({reinterpret_cast<const char*>(data), size}, "metadata", &metadata)) return 0;
  if (pinion::make_tokenizer_texts(metadata, "model.gguf", &texts) || texts.empty()) return 0;
  const auto tokenizer = std::make_shared<pinion::Tokenizer>();
  const std::string &json = texts["tokenizer.json"], &model = texts["tokenizer.model"];
  if (json.empty() ? pinion::load_sentencepiece(model, "tokenizer.model", {}, tokenizer.get())
                   : pinion::load_tokenizer_json(json, "tokenizer.json", tokenizer.get())) {
    return 0;
  }
  pinion::check_tokenizer(tokenizer);
  return 0;
}
