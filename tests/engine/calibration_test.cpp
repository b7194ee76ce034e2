// Calibrated 4-bit weights: the same bytes for any number of threads and kind of model, and refused options.
#include "engine/runtime/load.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/one_result.h"
#include "tests/loader/checkpoint_edits.h"

namespace pinion {
namespace {

std::unique_ptr<Model> load(const std::string& folder, int32_t threads, std::vector<CalibrationText> calibration,
                            Quant quant = Quant::w4a8) {
  std::unique_ptr<Model> model;
  Team team(std::vector<int32_t>(threads, -1));
  LoadOptions options = {.quant = quant, .team = &team};
  options.calibration = std::move(calibration);
  EXPECT_EQ(load_model(folder, options, &model).message(), "");
  return model;
}

TEST(Calibration, SameBytesForAnyThreads) {
  for (const std::string family :
       {"llama_gqa",  "qwen3_5",    "qwen3_moe",      "gemma3",     "apertus",    "qwen2_moe",          "phi",
        "gpt_neox",   "lfm2",       "granite_hybrid", "falcon_h1",  "nemotron_h", "deepseek_v2_groups", "gemma3n",
        "gemma4_e2b", "gemma4_moe", "qwen3_vl_moe",   "falcon_new", "afmoe",      "kimi_linear",        "zamba2"}) {
    const std::string folder = PINION_TEST_DATA "/families/" + family;
    const auto plain = load(folder, 2, {});
    const std::vector<CalibrationText> texts = {{some_tokens(300, plain->config.vocab_size), 0},
                                                {some_tokens(3, plain->config.vocab_size), 40}};
    const auto one = load(folder, 1, texts), three = load(folder, 3, texts);
    EXPECT_TRUE(std::ranges::equal(one->packed(), three->packed())) << family;
    EXPECT_FALSE(std::ranges::equal(one->packed(), plain->packed())) << family;
    EXPECT_EQ(one->packed().size(), plain->packed().size());
    expect_one_result(*one, 20, KvType::q8);
    const auto w8 = load(folder, 2, texts, Quant::w8a8);
    EXPECT_FALSE(std::ranges::equal(w8->packed(), load(folder, 2, {}, Quant::w8a8)->packed())) << family;
    EXPECT_NE(w8->calibration, "");
  }
}

// Gate and up of all experts are calibrated by all tokens, each down by the tokens that reach its expert, unless these
// are too few.
TEST(Calibration, ExpertsAreCalibratedByTheirTokens) {
  using enum MatrixRole;
  for (const std::string family : {"qwen3_moe", "qwen2_moe", "gemma4_moe", "mixtral"}) {
    SCOPED_TRACE(family);
    const std::string folder = PINION_TEST_DATA "/families/" + family;
    const auto plain = load(folder, 2, {});
    const std::vector<int32_t> ids = some_tokens(600, plain->config.vocab_size);
    const auto many = load(folder, 2, {{ids, 0}}), few = load(folder, 2, {{{ids.begin(), ids.begin() + 3}, 0}});
    const auto changed = [&](const Model& model, MatrixRole role) {
      size_t count = 0;
      for (size_t e = 0; e < plain->layers.back().experts.size(); ++e) {
        const Matrix &before = plain->layers.back().experts[e][role].weight,
                     &after = model.layers.back().experts[e][role].weight;
        count += !std::equal(panel_of(before, 0), panel_of(before, 0) + panel_bytes(before.format, before.k),
                             panel_of(after, 0));
      }
      return count;
    };
    const size_t experts = plain->layers.back().experts.size();
    EXPECT_EQ(changed(*many, gate), experts);
    EXPECT_EQ(changed(*many, up), experts);
    EXPECT_GT(changed(*many, down), experts / 2);
    EXPECT_EQ(changed(*few, up), experts);
    EXPECT_EQ(changed(*few, down), 0u);
  }
}

TEST(Calibration, WindowsBeginWithPrefix) {
  const std::vector<int32_t> prefix = {1}, text = some_tokens(1100, 500);
  const std::vector<CalibrationText> windows = calibration_windows(prefix, text);
  ASSERT_EQ(windows.size(), 3u);
  for (size_t i = 0; i < windows.size(); ++i) {
    EXPECT_EQ(windows[i].ids.size(), i < 2 ? 512u : 79u);
    EXPECT_EQ(windows[i].ids[0], 1);
    EXPECT_EQ(windows[i].ids[1], text[511 * i]);
    EXPECT_EQ(windows[i].added_tokens, 0);
  }
  EXPECT_TRUE(calibration_windows(prefix, {}).empty());
  EXPECT_EQ(std::ssize(calibration_windows({}, some_tokens(20000, 500))), kMaxCalibrationTokens / kCalibrationWindow);
}

TEST(Calibration, Refusals) {
  ModelConfig config;
  config.vocab_size = 10;
  LoadOptions options = {.quant = Quant::none};
  EXPECT_FALSE(check_calibration(options, config));
  options.calibration = {{{3}, 0}};
  EXPECT_EQ(check_calibration(options, config).what, "mode none has no weights to calibrate");
  options.quant = Quant::w4a8;
  EXPECT_FALSE(check_calibration(options, config));
  options.calibration = {{{3}, 0}, {{10}, 0}};
  EXPECT_EQ(check_calibration(options, config).actual, "10");
}

// Codes of the file are kept, so the texts would change nothing.
TEST(Calibration, CodesOfFilesAreNotCalibrated) {
  EXPECT_EQ(load(PINION_TEST_DATA "/families/llama_gptq", 1, {{{3}, 5}})->calibration, "");
}

// An adapter changes one matrix of an interleaved pair, the other keeps the file's codes. One run for each layer packs
// the same bytes as one for all.
TEST(Calibration, LayersApartGiveTheSameBytes) {
  for (const std::string changed : {"gate_proj", "up_proj", "down_proj"}) {
    const TempFolder adapter;
    std::vector<Tensor> tensors;
    const bool is_down = changed == "down_proj";
    const int k = is_down ? 88 : 48, n = is_down ? 48 : 88;
    for (const std::string layer : {"0", "1"}) {
      const std::string name = "base_model.model.model.layers." + layer + ".mlp." + changed + ".lora_";
      tensors.push_back(floats(name + "A.weight", "[1, " + std::to_string(k) + "]", std::vector<float>(k, 0.1f)));
      tensors.push_back(floats(name + "B.weight", "[" + std::to_string(n) + ", 1]", std::vector<float>(n, 0.2f)));
    }
    adapter.write("adapter_model.safetensors", file_of(tensors));
    adapter.write("adapter_config.json", R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1})");
    std::vector<std::unique_ptr<Model>> models(2);
    for (const int64_t layers : {1, 2}) {
      Team team({-1, -1});
      LoadOptions options = {.quant = Quant::w4a8_plus, .lora = {adapter.string()}, .rotate = false, .team = &team};
      options.calibration = {{some_tokens(200, 60), 0}, {some_tokens(3, 60), 20}};
      options.calibrated_layers = layers;
      ASSERT_EQ(load_model(PINION_TEST_DATA "/families/llama_gptq", options, &models[layers - 1]).message(), "");
      EXPECT_NE(models[layers - 1]->calibration, "");
    }
    EXPECT_TRUE(std::ranges::equal(models[0]->packed(), models[1]->packed())) << changed;
    expect_one_result(*models[0], 20, KvType::q8);
  }
}

TEST(Calibration, NameDependsOnAllTexts) {
  const std::vector<CalibrationText> own = {{{1}, 5}, {{2}, 5}};
  for (const std::vector<CalibrationText>& other : std::vector<std::vector<CalibrationText>>{
           {{{1}, 5}}, {{{2}, 5}, {{1}, 5}}, {{{1}, 5}, {{2}, 6}}, {{{1, 2}, 5}, {{}, 5}}, {{{1}, 5}, {{2}, 0}}}) {
    EXPECT_NE(calibration_name(own, false), calibration_name(other, false));
  }
  EXPECT_EQ(calibration_name({}, true), "");
  EXPECT_NE(calibration_name(own, true), calibration_name(own, false));
}

}  // namespace
}  // namespace pinion
