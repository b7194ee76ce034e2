// Checks a loaded tokenizer: it encodes, and incremental decoding equals decoding at once.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tests/fuzz/check.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

inline void check_tokenizer(const std::shared_ptr<const Tokenizer>& tokenizer) {
  constexpr std::string_view kText = " Hello  wörld\n\n123 <s>ab</s> \xFF e\u0301 \u2581\U0001F600'll";
  std::vector<int32_t> ids;
  if (failed(encode(*tokenizer, kText, {}, &ids))) return;
  const std::string text = decode(*tokenizer, ids, false);
  IncrementalDecoder decoder(tokenizer, false);
  std::string incremental;
  for (const int32_t id : ids) incremental += decoder.put(id);
  incremental += decoder.finish();
  require(incremental == text);
}

}  // namespace pinion
