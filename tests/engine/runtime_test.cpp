// open_runtime() and its sessions: meaning and defaults of options.
#include "engine/runtime/runtime.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "engine/forward/rope.h"
#include "tests/engine/one_result.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

const std::string kFamilies = PINION_TEST_DATA "/families/";

Plan plan_of(int32_t decode, int32_t prefill, int64_t chunk) {
  Plan plan;
  plan.decode.cpus.assign(decode, -1);
  plan.prefill.cpus.assign(prefill, -1);
  plan.prefill_chunk = chunk;
  return plan;
}

TEST(Runtime, SameBitsAsLoadModelAndSession) {
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    RuntimeOptions options;
    options.model = kStories;
    options.load.quant = quant;
    options.plan = plan_of(1, 2, 5);
    Runtime runtime;
    ASSERT_EQ(open_runtime(options, &runtime).message(), "");
    EXPECT_EQ(runtime.team->size(), 1);
    EXPECT_EQ(runtime.prefill_team->size(), 2);
    EXPECT_EQ(runtime.kv, quant == Quant::none ? KvType::f32 : KvType::q8);
    std::unique_ptr<Session> session;
    ASSERT_EQ(open_session(runtime, {.context = 40}, &session).message(), "");
    EXPECT_EQ(session->options.pass_rows, 5);
    EXPECT_EQ(session->pool.shape.type(), runtime.kv);

    const std::vector<int32_t> ids = some_tokens(12, runtime.model->config.vocab_size);
    std::vector<float> logits(ids.size() * runtime.model->config.vocab_size);
    ASSERT_FALSE(evaluate(*session, ids, true, logits.data()));
    const std::unique_ptr<Model> model = load_stories(quant);
    EXPECT_TRUE(same_bits(logits, all_logits(*model, ids, 1, {1, {.kv = runtime.kv}})));
  }
}

// A file may repeat ids any number of times.
TEST(Runtime, RepeatedEosIdsAreDeduplicated) {
  const TempFolder folder;
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(std::filesystem::path(kStories) / name, folder / name);
  }
  std::string ids;
  for (int id = 300'000; id > 0; --id) ids += (ids.empty() ? "" : ",") + std::to_string(id % 200'000);
  folder.write("generation_config.json", "{\"eos_token_id\": [" + ids + "]}");
  RuntimeOptions options;
  options.model = folder.string();
  Runtime runtime;
  ASSERT_EQ(open_runtime(options, &runtime).message(), "");
  const std::vector<int32_t>& ends = runtime.model->eos_ids;
  EXPECT_EQ(ends.size(), 200'000u);
  EXPECT_TRUE(std::ranges::is_sorted(ends));
}

TEST(Runtime, OptionsApply) {
  RuntimeOptions options;
  options.model = kStories;
  options.kv = KvType::f32;
  options.kernels = &scalar_kernels();
  Runtime runtime;
  ASSERT_EQ(open_runtime(options, &runtime).message(), "");
  EXPECT_EQ(runtime.kv, KvType::f32);
  EXPECT_EQ(runtime.kernels, &scalar_kernels());
  EXPECT_GE(runtime.team->size(), 1) << "the default plan of this machine";
  std::unique_ptr<Session> session;
  ASSERT_EQ(open_session(runtime, {.context = 1 << 30}, &session).message(), "");
  EXPECT_EQ(session->sequence.cache.capacity, context_length(runtime.model->config))
      << "no more than the model's context";
}

TEST(Runtime, SyntheticWeights) {
  RuntimeOptions options;
  options.synthetic = kFamilies + "qwen3/config.json";
  options.plan = plan_of(2, 2, 64);
  Runtime runtime;
  ASSERT_EQ(open_runtime(options, &runtime).message(), "");
  EXPECT_EQ(runtime.model->config.family, "qwen3");
  EXPECT_FALSE(runtime.cache_keeper.joinable()) << "nothing to cache";
}

TEST(Runtime, CachesPackedWeights) {
  const TempFolder cache;
  RuntimeOptions options;
  options.model = kStories;
  options.load.cache_folder = cache.path;
  options.plan = plan_of(1, 1, 64);
  {
    Runtime first;
    ASSERT_EQ(open_runtime(options, &first).message(), "");
    EXPECT_FALSE(first.model->from_cache());
  }  // the destructor waits for the writer
  Runtime second;
  ASSERT_EQ(open_runtime(options, &second).message(), "");
  EXPECT_TRUE(second.model->from_cache());
}

TEST(Runtime, DefaultQuantOfFolders) {
  EXPECT_EQ(default_quant(kFamilies + "llama_gptq"), Quant::w4a8) << "codes of 4 bits that stay";
  EXPECT_EQ(default_quant(kFamilies + "qwen3_codes"), Quant::w8a8);
  EXPECT_EQ(default_quant(kFamilies + "qwen3"), Quant::w8a8);
  EXPECT_EQ(default_quant("/no/such/folder"), Quant::w8a8) << "loading reports the error";
}

TEST(Runtime, ErrorsOfItsParts) {
  RuntimeOptions options;
  options.model = "/no/such/folder";
  options.plan = plan_of(1, 1, 64);
  Runtime runtime;
  EXPECT_NE(open_runtime(options, &runtime).message().find("/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace pinion
