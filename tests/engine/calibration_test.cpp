// Calibrated 4-bit weights: the same bytes for any number of threads and kind of model, and refused options.
#include "engine/runtime/calibration.h"
#include "engine/runtime/load.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/one_result.h"

namespace pinion {
namespace {

std::unique_ptr<Model> load(const std::string& folder, int32_t threads, std::vector<int32_t> calibration) {
  std::unique_ptr<Model> model;
  Team team(std::vector<int32_t>(threads, -1));
  LoadOptions options = {.quant = Quant::w4a8, .team = &team};
  options.calibration = std::move(calibration);
  EXPECT_EQ(load_model(folder, options, &model).message(), "");
  return model;
}

TEST(Calibration, SameBytesForAnyThreads) {
  for (const std::string family :
       {"llama_gqa", "qwen3_5", "qwen3_moe", "gemma3", "apertus", "qwen2_moe", "phi", "gpt_neox", "lfm2",
        "granite_hybrid", "falcon_h1", "nemotron_h", "deepseek_v2_groups", "gemma3n", "gemma4_e2b", "gemma4_moe"}) {
    const std::string folder = PINION_TEST_DATA "/families/" + family;
    const auto plain = load(folder, 2, {});
    const std::vector<int32_t> ids = some_tokens(300, plain->config.vocab_size);
    const auto one = load(folder, 1, ids), three = load(folder, 3, ids);
    EXPECT_TRUE(std::ranges::equal(one->packed(), three->packed())) << family;
    EXPECT_FALSE(std::ranges::equal(one->packed(), plain->packed())) << family;
    EXPECT_EQ(one->packed().size(), plain->packed().size());
    expect_one_result(*one, 20, KvType::q8);
  }
}

TEST(Calibration, WindowsBeginWithPrefix) {
  const std::vector<int32_t> prefix = {1}, text = some_tokens(1100, 500);
  const std::vector<int32_t> ids = calibration_windows(prefix, text);
  ASSERT_EQ(ids.size(), 1103u);
  for (const size_t at : {0, 512, 1024}) EXPECT_EQ(ids[at], 1);
  EXPECT_EQ(ids[1], text[0]);
  EXPECT_EQ(ids[513], text[511]);
  EXPECT_EQ(ids[1025], text[1022]);
  EXPECT_TRUE(calibration_windows(prefix, {}).empty());
  EXPECT_EQ(std::ssize(calibration_windows({}, some_tokens(20000, 500))), kMaxCalibrationTokens);
}

TEST(Calibration, Refusals) {
  ModelConfig config;
  config.vocab_size = 10;
  LoadOptions options = {.quant = Quant::w8a8};
  EXPECT_FALSE(check_calibration(options, config));
  options.calibration = {3};
  EXPECT_EQ(check_calibration(options, config).what, "only w4a8 has weights to calibrate");
  options.quant = Quant::w4a8;
  EXPECT_FALSE(check_calibration(options, config));
  options.calibration = {3, 10};
  EXPECT_EQ(check_calibration(options, config).actual, "10");
  EXPECT_NE(calibration_name(std::vector<int32_t>{1, 2}), calibration_name(std::vector<int32_t>{2, 1}));
  EXPECT_EQ(calibration_name({}), "");
}

}  // namespace
}  // namespace pinion
