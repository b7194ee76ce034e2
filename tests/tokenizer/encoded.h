// Encodes a text and expects no error.
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

inline std::vector<int32_t> encoded(const Tokenizer& tokenizer, std::string_view text,
                                    const EncodeOptions& options = {}) {
  std::vector<int32_t> ids;
  const Error e = encode(tokenizer, text, options, &ids);
  EXPECT_FALSE(e) << e.message();
  return ids;
}

}  // namespace pinion
