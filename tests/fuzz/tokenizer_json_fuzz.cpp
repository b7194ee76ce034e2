// Any bytes as tokenizer.json: an error, or a usable tokenizer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/check_tokenizer.h"
#include "tests/fuzz/target.h"
#include "tokenizer/tokens/tokenizer_internal.h"

FUZZ_TARGET(tokenizer_json) {
  const auto tokenizer = std::make_shared<pinion::Tokenizer>();
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  if (pinion::load_tokenizer_json(json, "tokenizer.json", tokenizer.get())) return 0;
  pinion::check_tokenizer(tokenizer);
  return 0;
}
