// LoRA adapters (loader/quant/stored_weights.h) against peft's results in tests/data/lora, and adapters that do not
// fit.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/runtime/load.h"
#include "engine/session/session.h"
#include "loader/files/json.h"
#include "tests/loader/checkpoint_edits.h"

namespace pinion {
namespace {

const std::filesystem::path kData = PINION_TEST_DATA;

std::string base(const std::string& name) { return kData / "families" / name; }
std::string adapter(const std::string& name) { return kData / "lora" / name; }

// The logits after the last token.
void logits_of(const std::string& folder, const LoadOptions& options, const std::vector<int32_t>& ids,
               std::vector<float>* out) {
  std::unique_ptr<Model> model;
  ASSERT_EQ(load_model(folder, options, &model).message(), "");
  Team team{{}};
  std::unique_ptr<Session> session;
  ASSERT_EQ(open_session(*model, team, {.kv = KvType::f32}, &session).message(), "");
  out->resize(model->config.vocab_size);
  ASSERT_EQ(evaluate(*session, ids, false, out->data()).message(), "");
}

double distance(const std::vector<float>& values, const std::vector<float>& reference) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    difference += std::pow(double{values.at(i)} - double{reference[i]}, 2);
    norm += std::pow(double{reference[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

std::string load_error(const std::string& folder, const std::vector<std::string>& lora) {
  std::unique_ptr<Model> model;
  return load_model(folder, {.quant = Quant::none, .lora = lora}, &model).message();
}

TEST(Adapters, MatchTheReference) {
  size_t cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kData / "lora")) {
    SCOPED_TRACE(entry.path());
    Json expected;
    ASSERT_EQ(read_json_file(entry.path() / "expected.json", &expected).message(), "");
    LoadOptions options = {.quant = Quant::none};
    for (const auto& [name, factor] : expected["adapters"].items()) {
      options.lora.push_back(adapter(name) + (factor == 1.0 ? "" : "=" + factor.dump()));
    }
    const std::string folder = base(expected["base"]);
    const auto ids = expected["ids"].get<std::vector<int32_t>>();
    const auto reference = expected["logits"].get<std::vector<float>>();
    std::vector<float> merged, plain, quantised;
    logits_of(folder, options, ids, &merged);
    logits_of(folder, {.quant = Quant::none}, ids, &plain);
    EXPECT_LT(distance(merged, reference), 2e-4);
    EXPECT_GT(distance(plain, reference), 0.05);
    options.quant = Quant::w8a8;
    logits_of(folder, options, ids, &quantised);
    EXPECT_LT(distance(quantised, reference), std::min(0.15, distance(plain, reference) / 2));
    EXPECT_GT(distance(quantised, reference), 1e-4);
    ++cases;
  }
  EXPECT_GE(cases, 6u);
}

// Codes are read as floats, changed, and quantised again.
TEST(Adapters, ChangeStoredCodes) {
  const std::vector<int32_t> ids = {3, 17, 5, 60, 42, 9};
  const struct {
    const char *base, *adapter;
  } cases[] = {{"qwen3_codes", "qwen3"},
               {"qwen3_fp8_channels", "qwen3"},
               {"qwen3_packed", "qwen3"},
               {"qwen3_packed_order", "qwen3"},
               {"phi3_awq", "phi3"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.base);
    std::vector<float> floats, plain;
    logits_of(base(c.base), {.quant = Quant::none, .lora = {adapter(c.adapter)}}, ids, &floats);
    logits_of(base(c.base), {.quant = Quant::none}, ids, &plain);
    EXPECT_GT(distance(plain, floats), 0.05);
    for (const Quant quant : {Quant::w8a8, Quant::w4a8}) {
      std::vector<float> codes;
      logits_of(base(c.base), {.quant = quant, .lora = {adapter(c.adapter)}}, ids, &codes);
      EXPECT_LT(distance(codes, floats), quant == Quant::w8a8 ? 0.15 : 1.0) << "4 bits move random weights far";
    }
  }
}

TEST(Adapters, ArePartOfTheCacheKey) {
  const TempFolder cache, copy;
  std::filesystem::copy(adapter("llama"), copy, std::filesystem::copy_options::recursive);
  const auto path = [&](const std::vector<std::string>& lora) {
    Model model;
    std::vector<PackJob> jobs;
    const LoadOptions options = {.lora = lora, .cache_folder = cache.string()};
    EXPECT_EQ(bind_model(base("llama"), options, &model, &jobs).message(), "");
    return model.cache.path;
  };
  const std::string first = adapter("llama"), second = adapter("llama_second");
  EXPECT_EQ(path({first}), path({first + "=1"}));
  EXPECT_EQ(path({first}), path({first + "=1.0"}));
  EXPECT_NE(path({first}), path({}));
  EXPECT_NE(path({first}), path({first + "=0.5"}));
  EXPECT_NE(path({first}), path({first + "=-1"}));
  EXPECT_NE(path({first}), path({second}));
  EXPECT_NE(path({first}), path({first, second}));
  const std::string converted = kData / "gguf/lora/llama_second.gguf";
  EXPECT_NE(path({converted}), path({}));
  EXPECT_NE(path({converted}), path({second}));
  EXPECT_EQ(path({converted}), path({converted + "=1"}));
  EXPECT_NE(path({converted}), path({converted + "=2"}));
  const std::string equals = copy.string() + "/r=16";  // no factor, since the folder exists
  std::filesystem::copy(adapter("llama"), equals);
  EXPECT_EQ(path({equals}), path({equals + "=1"}));
  const auto before = path({copy.string()});
  const std::string weights = read_bytes(copy / "adapter_model.safetensors");
  copy.write("adapter_model.safetensors", weights.substr(0, weights.size() - 2) + "zz");
  EXPECT_NE(path({copy.string()}), before);
}

struct BadAdapter {
  const char* changes;  // of adapter_config.json
  const char* message;  // after the folder
};

TEST(Adapters, SettingsThatAreNotSupported) {
  const BadAdapter cases[] = {
      {R"({"use_dora": true})", "use_dora: not supported: true"},
      {R"({"fan_in_fan_out": true})", "fan_in_fan_out: not supported: true"},
      {R"({"lora_bias": true})", "lora_bias: not supported: true"},
      {R"({"bias": "all"})", "bias: not supported: \"all\""},
      {R"({"peft_type": "IA3"})", "peft_type: not supported: \"IA3\""},
      {R"({"init_lora_weights": "pissa"})", "init_lora_weights: not supported: \"pissa\""},
      {R"({"init_lora_weights": "loftq"})", "init_lora_weights: not supported: \"loftq\""},
      {R"({"layer_replication": [[0, 2]]})", "layer_replication: not supported: an array of 1"},
      {R"({"target_parameters": ["mlp.experts.gate_up_proj"]})", "target_parameters: not supported: an array of 1"},
      {R"({"trainable_token_indices": [1]})", "trainable_token_indices: not supported: an array of 1"},
      {R"({"something_new": 1})", "something_new: not supported: 1"},
      {R"({"lora_alpha": null})", "lora_alpha: null, but the field is required"},
      {R"({"lora_alpha": "x"})", "lora_alpha: wrong type: want a number from 0 to 1000000, have \"x\""},
      {R"({"alpha_pattern": {"(": 1}})", "alpha_pattern: not a regular expression: \"re:(.*\\\\.)?(()$\""},
  };
  const std::string config = read_bytes(adapter("llama") + "/adapter_config.json");
  for (const BadAdapter& c : cases) {
    const EditableFolder folder("lora/llama");
    Json json = Json::parse(config);
    json.update(Json::parse(c.changes));
    folder.replace_file("adapter_config.json", json.dump());
    EXPECT_EQ(load_error(base("llama"), {folder.string()}), folder.string() + "/adapter_config.json: " + c.message);
  }
}

TEST(Adapters, TensorsThatDoNotFit) {
  const auto message = [](const std::function<void(std::vector<Tensor> & tensors)>& change) {
    const EditableFolder folder("lora/llama");
    std::vector<Tensor> tensors = tensors_in(folder / "adapter_model.safetensors");
    change(tensors);
    folder.replace_file("adapter_model.safetensors", file_of(tensors));
    std::string text = load_error(base("llama"), {folder.string()});
    if (const size_t at = text.find(folder.string()); at != std::string::npos)
      text.erase(at, folder.string().size() + 1);
    return text;
  };
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  const auto renamed = [&](const std::string& from, const std::string& to) {
    return message([&](std::vector<Tensor>& tensors) { tensor_named(tensors, from).name = to; });
  };
  EXPECT_EQ(message([](std::vector<Tensor>&) {}), "");
  EXPECT_EQ(renamed(q + "A.weight", "layers.0.q.lora_A.weight"),
            "adapter_model.safetensors: layers.0.q.lora_A.weight: not a tensor of a LoRA adapter: want "
            "base_model.model.NAME.weight");
  EXPECT_EQ(renamed(q + "A.weight", "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"),
            "adapter_model.safetensors: base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector: not a "
            "tensor of a LoRA adapter: want base_model.model.NAME.weight");
  EXPECT_EQ(renamed(q + "B.weight", "base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight"),
            base("llama") + ": model.layers.0.self_attn.q_proj.lora_B.0: no such tensor");
  // A module that the model does not have.
  EXPECT_EQ(
      message([](std::vector<Tensor>& tensors) {
        for (Tensor& tensor : tensors) {
          if (const size_t at = tensor.name.find("layers.1"); at != std::string::npos) tensor.name[at + 7] = '9';
        }
      }),
      "adapter_model.safetensors: model.layers.9.mlp.down_proj.lora_A.0, and 5 more: tensor that a llama model of "
      "this config.json does not have");
  // Adapters of other models.
  EXPECT_NE(load_error(base("phi3"), {adapter("llama")}).find("model.layers.0.mlp.down_proj.lora_A.0: shape differs"),
            std::string::npos);
  EXPECT_NE(load_error(base("llama"), {adapter("phi3")}).find("o_proj.lora_A.0: shape differs"), std::string::npos);
  EXPECT_NE(load_error(base("llama"), {"/nowhere"}).find("/nowhere/adapter_config.json"), std::string::npos);
  EXPECT_EQ(load_error(base("llama"), {adapter("llama") + "=nan"}),
            adapter("llama") + ": adapter's factor out of range: want a number up to a million, have nan");
  EXPECT_EQ(load_error(base("llama"), {adapter("llama") + "=1e999"}),
            adapter("llama") + ": adapter's factor out of range: want a number up to a million, have 1e999");
}

// The embedding of tests/data/families/smollm2 is also its head, which an adapter of the embedding does not change.
TEST(Adapters, ReplaceNoTiedEmbedding) {
  const EditableFolder folder("lora/smollm2_head");
  const std::string name = "model.embed_tokens.weight";
  Tensor embedding;
  for (Tensor& tensor : tensors_in(base("smollm2") + "/model.safetensors")) {
    if (tensor.name == name) embedding = tensor;
  }
  embedding.name = "base_model.model." + name;
  folder.replace_file("adapter_model.safetensors", file_of(std::vector<Tensor>{embedding}));
  EXPECT_EQ(load_error(base("smollm2"), {folder.string()}),
            folder.string() + "/adapter_model.safetensors: " + name +
                ": an adapter may not replace the embedding of a model whose head is tied to it");
}

}  // namespace
}  // namespace pinion
