// AltUp, per-layer embeddings and shared keys and values, beyond the cases of the recorded reference models.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/forward/pass.h"
#include "engine/runtime/load.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "tests/engine/one_result.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

const std::string kFolder = PINION_TEST_DATA "/families/gemma3n";

std::vector<float> logits_of(const Model& model, const std::vector<int32_t>& ids) {
  return all_logits(model, ids, std::ssize(ids), {1, {.kv = KvType::f32}});
}

// Rounding makes the order of a sum visible.
TEST(RowSum, FoldsPartialSumsInHalves) {
  std::vector<float> x(33);
  x[0] = 1e8f, x[16] = 1, x[32] = -1e8f, x[1] = 0.25f;
  EXPECT_EQ(row_sum(33, [&](int64_t i) { return x[static_cast<size_t>(i)]; }), 0.25f)
      << "element 16 is added to the partial sum of 0";
  x.assign(33, 0);
  x[0] = 1e8f, x[8] = -1e8f, x[4] = 1, x[31] = 2;
  EXPECT_EQ(row_sum(33, [&](int64_t i) { return x[static_cast<size_t>(i)]; }), 3)
      << "partial sum 8 is added to 0 before 4";
  EXPECT_EQ(row_sum(5, [&](int64_t i) { return static_cast<float>(i); }), 10);
  EXPECT_EQ(mean_square(std::vector<float>{1, 2, 3, 4}.data(), 4), 7.5f);
}

TEST(Altup, SharedLayersReadAnEarlierCache) {
  std::unique_ptr<Model> model;
  ASSERT_EQ(load_model(kFolder, {}, &model).message(), "");
  const std::vector<Layer>& layers = model->layers;
  for (const auto& [layer, owner] : {std::pair{3, 2}, std::pair{4, 1}}) {
    const Layer &own = layers[static_cast<size_t>(owner)], &shared = layers[static_cast<size_t>(layer)];
    EXPECT_FALSE(shared.owns_kv());
    EXPECT_EQ(shared.slot, own.slot);
    EXPECT_EQ(shared.window, own.window);
    EXPECT_EQ(shared[MatrixRole::k].weight.n + shared[MatrixRole::v].weight.n, 0);
    EXPECT_EQ(shared.query_balance, own.query_balance) << "the shared keys are balanced by the owner's factors";
    EXPECT_TRUE(shared.key_balance.empty());
  }
  EXPECT_EQ(layers[2].slot, 2);
  EXPECT_EQ(count_parameters(model->config).all - active_parameters(model->config), 120 * 5 * 12);
}

// Ids of images and audio have an embedding, but no per-layer embeddings.
TEST(Altup, TokensBeyondLayerEmbeddingsUseTokenZero) {
  std::unique_ptr<Model> model, other;
  ASSERT_EQ(load_model(kFolder, {.quant = Quant::none}, &model).message(), "");
  ASSERT_EQ(load_model(kFolder, {.quant = Quant::none}, &other).message(), "");
  const std::vector<int32_t> ids = {7, 110, 9};
  const std::vector<float> whole = logits_of(*model, ids);
  model->config.layer_input.vocab_size = 110;
  EXPECT_FALSE(same_bits(logits_of(*model, ids), whole));
  TensorView& rows = other->layer_inputs.embedding;
  std::vector<std::byte> copy(rows.data, rows.data + rows.bytes);
  const auto of_token = static_cast<size_t>(rows.bytes / 120);
  std::copy_n(copy.begin(), of_token, copy.begin() + static_cast<std::ptrdiff_t>(110 * of_token));
  rows.data = copy.data();
  EXPECT_TRUE(same_bits(logits_of(*model, ids), logits_of(*other, ids)));
}

// A published folder: fields and tensors of the text model beside those of the vision and audio models.
TEST(Altup, LoadsFromAMultimodalCheckpoint) {
  const TempFolder folder;
  std::string file, text;
  ASSERT_EQ(read_text_file(kFolder + "/model.safetensors", int64_t{1} << 30, &file).message(), "");
  ASSERT_EQ(read_text_file(kFolder + "/config.json", int64_t{1} << 30, &text).message(), "");
  uint64_t length;
  std::memcpy(&length, file.data(), sizeof length);
  const Json old_header = Json::parse(file.substr(sizeof length, length));
  Json header = Json::object();
  for (const auto& [name, value] : old_header.items()) {
    const bool is_of_model = name.starts_with("model.");
    header[is_of_model ? "model.language_model." + name.substr(6) : name] = value;
  }
  const std::string data = file.substr(sizeof length + length);
  const auto end = static_cast<int64_t>(data.size());
  for (int i = 0; const char* name : {"model.vision_tower.a", "model.audio_tower.b", "model.embed_vision.c.weight",
                                      "model.embed_audio.d.weight"}) {
    header[name] = {{"dtype", "BF16"}, {"shape", {1}}, {"data_offsets", {end + 2 * i, end + 2 * i + 2}}};
    ++i;
  }
  Json config = Json::parse(text), inner = config;
  inner.erase("architectures");
  config = {{"architectures", {"Gemma3nForConditionalGeneration"}}, {"model_type", "gemma3n"}, {"text_config", inner}};
  folder.write("config.json", config.dump());
  folder.write("model.safetensors", safetensors_text(header.dump(), data + std::string(8, '\0')));
  std::unique_ptr<Model> alone, beside;
  ASSERT_EQ(load_model(kFolder, {}, &alone).message(), "");
  ASSERT_EQ(load_model(folder.path.string(), {}, &beside).message(), "");
  const std::vector<int32_t> ids = {5, 6, 7};
  EXPECT_TRUE(same_bits(logits_of(*alone, ids), logits_of(*beside, ids)));
}

}  // namespace
}  // namespace pinion
