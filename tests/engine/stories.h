// The stories model, and token ids for it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/load.h"

namespace pinion {

inline const std::string kStories = PINION_TEST_DATA "/stories260k";

inline std::unique_ptr<Model> load_stories(Quant quant) {
  std::unique_ptr<Model> model;
  const Error e = load_model(kStories, {.quant = quant}, &model);
  EXPECT_FALSE(e) << e.message();
  return model;
}

inline std::vector<int32_t> some_tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * i * 7 + i * 13 + 3) % vocab));
  return ids;
}

}  // namespace pinion
