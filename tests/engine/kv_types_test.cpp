// Caches of bf16 and q8 against one of f32, for every family: with all operations between keys, values and the output
// (norms, windows, sinks, caps, gates).
#include <algorithm>
#include <cmath>

#include "engine/runtime/load.h"
#include "tests/engine/families.h"
#include "tests/engine/one_result.h"

namespace pinion {
namespace {

double relative_error(const std::vector<float>& x, const std::vector<float>& reference) {
  double difference = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += std::pow(x[i] - reference[i], 2);
    all += std::pow(reference[i], 2);
  }
  return std::sqrt(difference / all);
}

// More than one chunk of attention. 8-bit codes are as fine as bf16 for the largest number of a head and coarser for
// the others; a token that switches to another expert differs more.
TEST(KvTypes, AllFamiliesAreCloseToF32) {
  for (const std::string& family : family_names(FamilyTest::kv_types)) {
    SCOPED_TRACE(family);
    std::unique_ptr<Model> model;
    ASSERT_EQ(load_model(kFamilyFolders / family, {.quant = Quant::none}, &model).message(), "");
    if (attention_layers(model->config) == 0) continue;
    const int64_t tokens = std::min<int64_t>(270, model->config.max_positions);
    const std::vector<int32_t> ids = some_tokens(tokens, model->config.vocab_size);
    const auto run = [&](KvType kv) { return all_logits(*model, ids, tokens, {2, {.kv = kv, .pass_rows = 64}}); };
    const std::vector<float> floats = run(KvType::f32);
    const double bf16 = relative_error(run(KvType::bf16), floats), q8 = relative_error(run(KvType::q8), floats);
    const double max_ratio = model->config.experts.count > 0 ? 10 : 5;
    EXPECT_LT(q8, max_ratio * bf16) << "bf16 " << bf16;
    EXPECT_GT(q8, 0);
  }
}

// Keys with a norm per head are balanced by the norm's weights; other keys are not.
TEST(KvTypes, NormedKeysAreBalanced) {
  const auto balance = [](const char* family) {
    std::unique_ptr<Model> model;
    EXPECT_FALSE(load_model(std::string(PINION_TEST_DATA "/families/") + family, {.quant = Quant::none}, &model));
    return model ? model->layers.back().key_balance.size() : 0;
  };
  EXPECT_GT(balance("qwen3"), 0u);
  EXPECT_EQ(balance("mixtral"), 0u);
}

}  // namespace
}  // namespace pinion
