// Any bytes as tokenizer.json: refused with an error, or a tokenizer that encodes and decodes without harm.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "tokenizer/parts.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tokenizer = std::make_shared<pinion::Tokenizer>();
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  if (pinion::load_tokenizer_json(json, "tokenizer.json", tokenizer.get())) return 0;
  constexpr std::string_view kText = " Hello  wörld\n\n123 <s>ab</s> \xFF e\u0301 \u2581\U0001F600'll";
  const auto ids = pinion::encode(*tokenizer, kText);
  const std::string text = pinion::decode(*tokenizer, ids, false);
  pinion::StreamDecoder decoder(tokenizer, false);
  std::string streamed;
  for (const int32_t id : ids) streamed += decoder.put(id);
  streamed += decoder.finish();
  if (streamed != text) std::abort();  // what libFuzzer reports
  return 0;
}
