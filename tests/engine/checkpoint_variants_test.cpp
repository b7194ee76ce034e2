// Checkpoints as other tools write them: the weights are those of the plain form.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/runtime/load.h"
#include "tests/loader/checkpoint_edits.h"

namespace pinion {
namespace {

struct Loaded {
  std::unique_ptr<Model> model;
  std::string failure;
  std::vector<std::string> notes;
};

Loaded load_folder(const std::string& folder, Quant quant = Quant::none) {
  Loaded out;
  LoadOptions options;
  options.quant = quant;
  options.warn = [&](const Error& e) { out.notes.push_back(e.message()); };
  out.failure = load_model(folder, options, &out.model).message();
  return out;
}

// All weights of both, including norms, are the same.
void expect_same_weights(const Loaded& value, const Loaded& reference) {
  ASSERT_EQ(value.failure, "");
  ASSERT_EQ(reference.failure, "");
  EXPECT_TRUE(std::ranges::equal(value.model->packed(), reference.model->packed()));
  EXPECT_TRUE(std::ranges::equal(value.model->embedding.contents(), reference.model->embedding.contents()));
  const int64_t hidden = value.model->config.hidden_size;
  EXPECT_TRUE(std::equal(value.model->final_norm.weight, value.model->final_norm.weight + hidden,
                         reference.model->final_norm.weight));
}

void tie(Json& config) { config["tie_word_embeddings"] = true; }

TEST(TiedHead, AnotherHeadOfTheFileIsUsed) {
  const std::string plain = PINION_TEST_DATA "/families/llama";
  const EditableFolder folder("families/llama");
  folder.edit_config(tie);
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    const Loaded value = load_folder(folder.string(), quant);
    expect_same_weights(value, load_folder(plain, quant));
    EXPECT_FALSE(value.model->config.tied_head);
    EXPECT_EQ(value.notes,
              std::vector<std::string>{folder.string() +
                                       "/model.safetensors: lm_head: differs from the embedding that "
                                       "tie_word_embeddings ties it to; using this head, as transformers 5 does (set "
                                       "tie_word_embeddings to false in config.json to confirm it; delete the tensor "
                                       "to tie)"});
  }
}

TEST(TiedHead, RepeatedEmbeddingIsNoNote) {
  const Loaded plain = load_folder(PINION_TEST_DATA "/families/qwen2");
  ASSERT_TRUE(plain.model->config.tied_head);
  const EditableFolder folder("families/qwen2");
  folder.edit_tensors([](std::vector<Tensor>& tensors) {
    tensors.push_back(tensor_named(tensors, "model.embed_tokens.weight"));
    tensors.back().name = "lm_head.weight";
  });
  const Loaded value = load_folder(folder.string());
  expect_same_weights(value, plain);
  EXPECT_TRUE(value.model->config.tied_head);
  EXPECT_TRUE(value.notes.empty());
}

TEST(TiedHead, OneTensorUnderTheNameOfTheHead) {
  const EditableFolder folder("families/qwen2");
  folder.rename_tensors(
      [](const std::string& name) { return name == "model.embed_tokens.weight" ? "lm_head.weight" : name; });
  const Loaded value = load_folder(folder.string());
  expect_same_weights(value, load_folder(PINION_TEST_DATA "/families/qwen2"));
  EXPECT_TRUE(value.notes.empty());
}

TEST(TiedHead, QuantisedHeadIsUsed) {
  const EditableFolder tied("families/glm_gptq"), untied("families/glm_gptq");
  const auto code_head = [](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [](const Tensor& tensor) { return tensor.name == "lm_head.weight"; });
    const Tensor embedding = tensor_named(tensors, "model.embed_tokens.weight");
    const Json shape = Json::parse(embedding.shape);
    const int64_t rows = shape[0], width = shape[1];
    tensors.push_back({"lm_head.qweight", "I32", "[" + std::to_string(width / 8) + "," + std::to_string(rows) + "]",
                       std::string(static_cast<size_t>(width / 8 * rows * 4), '\x53')});
    tensors.push_back({"lm_head.scales", "F16", "[2," + std::to_string(rows) + "]",
                       std::string(static_cast<size_t>(2 * rows * 2), '\x20')});
    tensors.push_back({"lm_head.qzeros", "I32", "[2," + std::to_string(rows / 8) + "]",
                       std::string(static_cast<size_t>(2 * (rows / 8) * 4), '\x77')});
  };
  for (const EditableFolder* folder : {&tied, &untied}) {
    folder->edit_tensors(code_head);
  }
  tied.edit_config(tie);
  const Loaded value = load_folder(tied.string());
  expect_same_weights(value, load_folder(untied.string()));
  EXPECT_EQ(value.notes.size(), 1u);
}

}  // namespace
}  // namespace pinion
