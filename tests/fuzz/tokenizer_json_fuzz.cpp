// Any bytes as tokenizer.json: an error, or a usable tokenizer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/check_tokenizer.h"
#include "tokenizer/tokens/tokenizer_internal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tokenizer = std::make_shared<pinion::Tokenizer>();
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  if (pinion::load_tokenizer_json(json, "tokenizer.json", tokenizer.get())) return 0;
  pinion::check_tokenizer(tokenizer);
  return 0;
}
