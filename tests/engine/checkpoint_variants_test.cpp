// Checkpoints as other tools write them: the weights are those of the plain form.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
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

// The config does not declare that the copy is in floats.
TEST(TiedHead, RepeatedEmbeddingInAFileOfCodes) {
  const EditableFolder folder("families/qwen3_packed");
  folder.edit_config([](Json& config) { config["quantization_config"]["ignore"] = Json::array(); });
  folder.edit_tensors([](std::vector<Tensor>& tensors) {
    tensors.push_back(tensor_named(tensors, "model.embed_tokens.weight"));
    tensors.back().name = "lm_head.weight";
  });
  const Loaded value = load_folder(folder.string());
  expect_same_weights(value, load_folder(PINION_TEST_DATA "/families/qwen3_packed"));
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

// The checkpoint with renamed tensors has the weights of the original.
void expect_same_renamed(const std::string& family, const std::function<std::string(const std::string& name)>& renamed,
                         size_t notes = 0) {
  const EditableFolder folder("families/" + family);
  folder.rename_tensors(renamed);
  const Loaded value = load_folder(folder.string());
  expect_same_weights(value, load_folder(PINION_TEST_DATA "/families/" + family));
  EXPECT_EQ(value.notes.size(), notes) << family;
}

std::string without(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

TEST(TensorNames, OtherPrefixes) {
  for (const char* family : {"llama", "qwen2", "qwen3_moe", "phi3", "deepseek_v2", "llama_gptq", "qwen3_packed"}) {
    expect_same_renamed(family, [](const std::string& name) { return without("model.", name); });
    expect_same_renamed(family, [](const std::string& name) {
      return name.starts_with("model.") ? "model.language_model." + without("model.", name) : name;
    });
    for (const char* prefix : {"language_model.", "module.", "base_model.model.", "_orig_mod.", "thinker."}) {
      expect_same_renamed(family, [&](const std::string& name) { return prefix + name; });
    }
  }
  expect_same_renamed("gpt_neox", [](const std::string& name) { return without("gpt_neox.", name); });
  expect_same_renamed("llama", [](const std::string& name) {
    return name.starts_with("model.") ? "transformer." + without("model.", name) : name;
  });
  expect_same_renamed("llama",
                      [](const std::string& name) { return name.starts_with("lm_head.") ? "model." + name : name; });
}

TEST(TensorNames, SeveralModelsAreAnError) {
  const EditableFolder folder("families/llama");
  folder.edit_tensors([](std::vector<Tensor>& tensors) {
    const std::vector<Tensor> model = tensors;
    for (Tensor& tensor : tensors) tensor.name = "target." + tensor.name;
    for (Tensor tensor : model) {
      tensor.name = "draft." + tensor.name;
      tensors.push_back(tensor);
    }
  });
  EXPECT_EQ(load_folder(folder.string()).failure,
            folder.string() +
                ": several modules could be the language model: want model.embed_tokens.weight, have "
                "draft.model., target.model.");
}

TEST(TensorNames, BaseModelWithoutItsHead) {
  const EditableFolder folder("families/llama");
  folder.edit_tensors([](std::vector<Tensor>& tensors) {
    std::erase_if(tensors, [](const Tensor& tensor) { return tensor.name == "lm_head.weight"; });
    for (Tensor& tensor : tensors) tensor.name = without("model.", tensor.name);
  });
  EXPECT_EQ(load_folder(folder.string()).failure,
            folder.string() +
                "/model.safetensors: lm_head.weight: no head: the file was saved from the base model: want "
                "a checkpoint of the whole model, or tie_word_embeddings true if the head is the embedding");
}

std::string failure_with(const std::string& name, std::vector<std::string>* notes) {
  const EditableFolder folder("families/llama");
  folder.edit_tensors(
      [&](std::vector<Tensor>& tensors) { tensors.push_back({name, "F32", "[1]", std::string(4, 0)}); });
  const Loaded value = load_folder(folder.string());
  *notes = value.notes;
  if (value.failure.empty()) expect_same_weights(value, load_folder(PINION_TEST_DATA "/families/llama"));
  return value.failure;
}

TEST(OtherModules, AreNoted) {
  std::vector<std::string> notes;
  for (const char* name :
       {"v_head.summary.weight", "score.weight", "vision_tower.patch.weight", "model.vision_tower.layers.0.weight",
        "multi_modal_projector.linear_1.weight", "model.mm_projector.0.weight", "mtp.fc.weight", "model.image_newline",
        "audio_tower.conv.weight", "medusa_head.0.weight"}) {
    EXPECT_EQ(failure_with(name, &notes), "") << name;
    ASSERT_EQ(notes.size(), 1u) << name;
    EXPECT_TRUE(notes[0].ends_with("/model.safetensors: " + std::string(name) +
                                   ": ignored: tensors of modules that a "
                                   "llama model does not have"))
        << notes[0];
  }
  for (const char* name : {"model.layers.0.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq",
                           "model.rotary_emb.inv_freq", "model.layers.1.self_attn.masked_bias",
                           "model.layers.0.self_attn.k_scale", "model.layers.0.mlp.up_proj._extra_state"}) {
    EXPECT_EQ(failure_with(name, &notes), "") << name;
    EXPECT_TRUE(notes.empty()) << name;
  }
}

TEST(OtherModules, PartsOfTheModelAreErrors) {
  std::vector<std::string> notes;
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.q_norm.weight",
        "model.layers.2.mlp.up_proj.weight", "lm_head.bias", "model.norm.bias", "model.embed_positions.weight",
        "model.embed_layernorm.weight", "model.layers.0.self_attn.q_proj.lora_A.weight", "base_model.lora_A.weight"}) {
    EXPECT_NE(failure_with(name, &notes).find(std::string(name) + ": tensor that a llama model of this config.json"),
              std::string::npos)
        << name;
  }
}

// A file beside the shards, named by the index, corrects a tensor that a shard has too.
TEST(Index, DecidesWhereATensorLies) {
  const EditableFolder folder("families/llama");
  const std::vector<Tensor> tensors = tensors_in(folder / "model.safetensors");
  std::vector<Tensor> shards[2], overlay;
  Json map = Json::object();
  for (size_t i = 0; i < tensors.size(); ++i) {
    shards[i % 2].push_back(tensors[i]);
    map[tensors[i].name] = i % 2 ? "model-2.safetensors" : "model-1.safetensors";
    for (const char* name : {"model.norm.weight", "model.layers.0.mlp.up_proj.weight"}) {
      if (tensors[i].name != name) continue;
      overlay.push_back(tensors[i]);
      map[name] = "model-overlay.safetensors";
      std::ranges::fill(shards[i % 2].back().data, '\x11');
    }
  }
  std::filesystem::remove(folder / "model.safetensors");
  folder.write("model-1.safetensors", file_of(shards[0]));
  folder.write("model-2.safetensors", file_of(shards[1]));
  folder.write("model-overlay.safetensors", file_of(overlay));
  const auto write_index = [&] {
    folder.replace_file("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
  };
  write_index();
  const Loaded value = load_folder(folder.string());
  expect_same_weights(value, load_folder(PINION_TEST_DATA "/families/llama"));
  EXPECT_EQ(value.notes,
            std::vector<std::string>{folder.string() +
                                     ": tensors in several shards; the index decides: "
                                     "model.layers.0.mlp.up_proj.weight in model-overlay.safetensors, and 1 more"});
  // The same files with another index are other weights, also for the cache.
  LoadOptions options{.quant = Quant::none};
  options.cache_folder = folder.path / "cache";
  PackCache first, second;
  (void)find_in_cache(folder.string(), options, &first);
  for (const int i : {0, 1}) {
    if (std::ranges::find(shards[i], "model.layers.0.mlp.up_proj.weight", &Tensor::name) == shards[i].end()) continue;
    map["model.layers.0.mlp.up_proj.weight"] = i ? "model-2.safetensors" : "model-1.safetensors";
  }
  write_index();
  (void)find_in_cache(folder.string(), options, &second);
  EXPECT_FALSE(first.path.empty());
  EXPECT_NE(first.path, second.path);
}

TEST(QuantisationConfig, AutoRoundNamesGptqAndAwq) {
  for (const auto& [family, format] :
       {std::pair{"llama_gptq", "auto_round:auto_gptq"}, {"phi3_awq", "auto_round:auto_awq"}}) {
    const EditableFolder folder(std::string("families/") + family);
    folder.edit_config([&](Json& config) {
      const Json old = config["quantization_config"];
      config["quantization_config"] = {{"quant_method", "auto-round"},
                                       {"packing_format", format},
                                       {"bits", old["bits"]},
                                       {"group_size", old["group_size"]},
                                       {"sym", false},
                                       {"data_type", "int"},
                                       {"iters", 200},
                                       {"nsamples", 512},
                                       {"seqlen", 2048},
                                       {"autoround_version", "0.6.0"},
                                       {"backend", "auto"},
                                       {"low_gpu_mem_usage", true},
                                       {"extra_config", {{"lm_head", {{"bits", 16}, {"data_type", "float"}}}}}};
    });
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      expect_same_weights(load_folder(folder.string(), quant),
                          load_folder(PINION_TEST_DATA "/families/" + std::string(family), quant));
    }
  }
}

TEST(QuantisationConfig, OldNamesOfAwq) {
  const EditableFolder folder("families/phi3_awq");
  folder.edit_config([](Json& config) {
    Json& fields = config["quantization_config"];
    fields["w_bit"] = fields["bits"];
    fields["q_group_size"] = fields["group_size"];
    fields.erase("bits");
    fields.erase("group_size");
  });
  expect_same_weights(load_folder(folder.string()), load_folder(PINION_TEST_DATA "/families/phi3_awq"));
}

}  // namespace
}  // namespace pinion
