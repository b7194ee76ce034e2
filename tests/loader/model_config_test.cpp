#include "loader/config/model_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "configs/families.h"
#include "loader/config/config_parts.h"
#include "loader/files/json.h"
#include "tests/loader/by_layer.h"
#include "tests/loader/make_files.h"

namespace pinion {
namespace {

// A small model of an architecture; `changes` overrides its fields.
Json small(const char* architecture, const char* changes = "{}") {
  Json json = Json::parse(R"({"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-05, "hidden_act": "silu", "transformers_version": "5.0.0", "torch_dtype": "bfloat16"})");
  json["architectures"] = Json::array({architecture});
  json.update(Json::parse(changes));
  return json;
}

ModelConfig read(const Json& json) {
  ModelConfig config;
  EXPECT_EQ(parse_model_config(json.dump(), "config.json", &config).message(), "");
  return config;
}

std::string message(const Json& json) {
  ModelConfig config;
  return parse_model_config(json.dump(), "config.json", &config).message();
}

std::string llama_message(const char* changes) { return message(small("LlamaForCausalLM", changes)); }

TEST(ModelConfig, AllFamiliesAreReadable) {
  std::vector<Family> families;
  ASSERT_EQ(read_families(family_texts(), &families).message(), "");
  ASSERT_GE(families.size(), 4u);
  for (const Family& family : families) {
    const Json& description = family.description;
    // Some families with recurrent layers have no default for layer_types.
    Json common = Json::object();
    const Json recurrence = description.value("recurrence", Json::object());
    const Json types = recurrence.value("layer_types", Json::array());
    const bool has_full = std::ranges::find(types, "full_attention") != types.end();
    if (!types.empty()) common["layer_types"] = Json::array_t(4, has_full ? Json("full_attention") : types.back());
    if (description.contains("latent_attention")) common["num_key_value_heads"] = 8, common["num_experts_per_tok"] = 2;
    if (description.contains("blocks")) common["attention_head_dim"] = 16;
    if (description.contains("rotary_dims")) common["rotary_dim"] = 8;  // the default is wider than these heads
    for (const Json& architecture : description["architectures"]) {
      Json json = small(architecture.get<std::string>().c_str(), common.dump().c_str());
      json["model_type"] = description["model_types"][0];
      const ModelConfig config = read(json);
      EXPECT_EQ(config.family, family.name);
      EXPECT_EQ(config.layer.size(), description.contains("blocks") ? 8u : 4u);
    }
    for (const Json& type : description["model_types"]) {
      Json json = small("", common.dump().c_str());
      json.erase("architectures");
      json["model_type"] = type;
      EXPECT_EQ(read(json).family, family.name);
    }
  }
}

// A description holds its differences from the family it extends: objects are merged, null removes a key, and lists
// about files are not inherited.
TEST(ModelConfig, FamiliesExtendOthers) {
  const FamilyText texts[] = {
      {"first", R"({"extends": "second", "architectures": ["A"], "modules": {"q": null, "k": "x"}, "rope": null})"},
      {"second", R"({"extends": "third", "modules": {"k": "y", "v": "z"}, "ignored": ["a"], "norm": "layer"})"},
      {"third", R"({"architectures": ["B"], "modules": {"q": "w"}, "rope": false, "skipped_tensors": ["b"]})"}};
  std::vector<Family> families;
  ASSERT_EQ(read_families(texts, &families).message(), "");
  EXPECT_EQ(families[0].description,
            Json::parse(R"({"architectures": ["A"], "modules": {"k": "x", "v": "z"}, "norm": "layer"})"));
  EXPECT_EQ(families[1].description,
            Json::parse(R"({"modules": {"q": "w", "k": "y", "v": "z"}, "ignored": ["a"], "norm": "layer",
                            "rope": false})"));
}

TEST(ModelConfig, RefusesFamiliesThatExtendNothing) {
  const struct {
    std::vector<FamilyText> texts;
    const char* message;
  } cases[] = {
      {{{"a", R"({"extends": "b"})"}}, "configs/models/a.json: extends: no such family: \"b\""},
      {{{"a", R"({"extends": "a"})"}}, "configs/models/a.json: extends: families extend each other: \"a\""},
      {{{"a", R"({"extends": "b"})"}, {"b", R"({"extends": "a"})"}},
       "configs/models/a.json: extends: families extend each other: \"b\""},
      {{{"a", R"({"extends": 1})"}}, "configs/models/a.json: extends: wrong type: want a string, have 1"},
  };
  for (const auto& c : cases) {
    std::vector<Family> families;
    EXPECT_EQ(read_families(c.texts, &families).message(), c.message);
  }
}

TEST(ModelConfig, ReadsLlama) {
  const ModelConfig config =
      read(small("LlamaForCausalLM", R"({"eos_token_id": [2, 7], "tie_word_embeddings": true})"));
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.layers, 4);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.layer[0].mlp_size, 176);
  EXPECT_EQ(config.layer[0].heads, 8);
  EXPECT_EQ(config.layer[0].kv_heads, 4);
  EXPECT_EQ(config.layer[0].head_dim, 8);
  EXPECT_EQ(config.vocab_size, 512);
  EXPECT_EQ(config.max_positions, 512);
  EXPECT_EQ(config.norm_eps, 1e-5f);
  EXPECT_TRUE(config.tied_head);
  EXPECT_FALSE(config.qkv_bias || config.o_bias || config.mlp_bias);
  EXPECT_EQ(config.qk_norm, QkNorm::none);
  EXPECT_EQ(config.activation, Activation::silu);
  EXPECT_EQ(config.score_scale, 1.0f / std::sqrt(8.0f));
  EXPECT_EQ(config.embedding_scale * config.branch_scale * config.logit_scale, 1.0f);
  EXPECT_EQ(config.score_cap + config.logit_cap + config.norm_offset, 0.0f);
  EXPECT_EQ(by_layer(config, &LayerConfig::window), (std::vector<int64_t>(4, 0)));
  EXPECT_EQ(by_layer(config, &LayerConfig::rope), (std::vector<int32_t>(4, 0)));
  EXPECT_EQ(config.ropes.size(), 1u);
  EXPECT_EQ(config.ropes[0].dims, 8);
  EXPECT_EQ(config.bos_id, 1);
  EXPECT_EQ(config.eos_ids, (std::vector<int64_t>{2, 7}));
  EXPECT_EQ(module_name(config.name("q"), 3), "model.layers.3.self_attn.q_proj");
  EXPECT_EQ(module_name(config.name("head"), 3), "lm_head");
}

TEST(ModelConfig, SwitchesFollowFamilyAndConfig) {
  const char* biases = R"({"attention_bias": true, "mlp_bias": true})";
  const ModelConfig llama = read(small("LlamaForCausalLM", biases));
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const ModelConfig qwen2 = read(small("Qwen2ForCausalLM"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias || qwen2.mlp_bias);
  EXPECT_EQ(qwen2.qk_norm, QkNorm::none);
  const ModelConfig qwen3 = read(small("Qwen3ForCausalLM", R"({"head_dim": 32})"));
  EXPECT_EQ(qwen3.qk_norm, QkNorm::heads);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_EQ(qwen3.layer[0].head_dim, 32);
  EXPECT_EQ(qwen3.name("q_norm"), "model.layers.{}.self_attn.q_norm");
}

TEST(ModelConfig, AbsentFieldsUseFamilyDefaults) {
  Json json = small("MistralForCausalLM");
  json.erase("num_key_value_heads");
  EXPECT_EQ(read(json).layer[0].kv_heads, 8);
  json = small("LlamaForCausalLM");
  json.erase("num_key_value_heads");
  EXPECT_EQ(read(json).layer[0].kv_heads, 8) << "as many as heads";
  EXPECT_EQ(read(small("Qwen3ForCausalLM")).layer[0].head_dim, 128);
  EXPECT_EQ(read(small("Qwen3ForCausalLM", R"({"head_dim": null})")).layer[0].head_dim, 8);
  EXPECT_FALSE(read(small("Qwen2ForCausalLM")).bos_id.has_value());
}

TEST(ModelConfig, Windows) {
  using V = std::vector<int64_t>;
  EXPECT_EQ(by_layer(read(small("MistralForCausalLM", R"({"sliding_window": 16})")), &LayerConfig::window),
            (V{16, 16, 16, 16}));
  EXPECT_EQ(by_layer(read(small("MistralForCausalLM", R"({"sliding_window": null})")), &LayerConfig::window),
            (V{0, 0, 0, 0}));
  EXPECT_EQ(by_layer(read(small("MistralForCausalLM")), &LayerConfig::window), (V{4096, 4096, 4096, 4096}))
      << "transformers' default";
  for (const char* qwen : {"Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    const auto windows = [&](const char* changes) {
      return by_layer(read(small(qwen, changes)), &LayerConfig::window);
    };
    EXPECT_EQ(windows(R"({"sliding_window": 16, "max_window_layers": 2})"), (V{0, 0, 0, 0}));
    EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 3})"),
              (V{0, 0, 0, 16}));
    EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 0})"),
              (V{16, 16, 16, 16}));
    EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 16, "max_window_layers": 28})"),
              (V{0, 0, 0, 0}));
    EXPECT_EQ(windows(R"({"use_sliding_window": true, "sliding_window": 16, "layer_types":
        ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]})"),
              (V{16, 0, 16, 0}));
  }
  EXPECT_EQ(message(small("Qwen3ForCausalLM", R"({"layer_types": ["full_attention"]})")),
            "config.json: layer_types: wrong length: want 4, have 1");
  EXPECT_EQ(message(small("Qwen3ForCausalLM", R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})")),
            "config.json: layer_types: sliding layers without a window");
  EXPECT_EQ(message(small("Qwen3ForCausalLM", R"({"num_hidden_layers": 1, "layer_types": ["linear_attention"]})")),
            "config.json: layer_types: unknown layer type: \"linear_attention\"");
}

TEST(ModelConfig, RopeInBothSpellings) {
  const char* spellings[] = {
      R"({"rope_theta": 500000.0, "rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 128}})",
      R"({"rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 128}})",
      R"({"rope_theta": 1.0e4, "rope_scaling": {}, "original_max_position_embeddings": 128, "rope_parameters":
          {"rope_theta": 500000, "type": "linear", "rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
          "high_freq_factor": 4}})"};
  for (const char* spelling : spellings) {
    const Rope rope = read(small("LlamaForCausalLM", spelling)).ropes[0];
    EXPECT_EQ(rope.kind, RopeKind::llama3);
    EXPECT_EQ(rope.theta, 500000.0);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.low_freq_factor, 1.0);
    EXPECT_EQ(rope.high_freq_factor, 4.0);
    EXPECT_EQ(rope.original_max_positions, 128);
  }
  const Rope plain = read(small("LlamaForCausalLM", R"({"rope_scaling": null})")).ropes[0];
  EXPECT_EQ(plain.kind, RopeKind::none);
  EXPECT_EQ(plain.theta, 10000.0);
  EXPECT_EQ(read(small("LlamaForCausalLM", R"({"rope_scaling": {"type": "default"}})")).ropes[0].kind, RopeKind::none);
}

TEST(ModelConfig, RopeKindsAndTheirParameters) {
  const auto rope = [](const char* scaling) {
    Json json = small("Qwen2ForCausalLM");
    json["rope_scaling"] = Json::parse(scaling);
    return read(json).ropes[0];
  };
  EXPECT_EQ(rope(R"({"type": "linear", "factor": 2.5})").factor, 2.5);
  EXPECT_EQ(rope(R"({"type": "linear", "factor": 2.5})").kind, RopeKind::linear);
  EXPECT_EQ(rope(R"({"rope_type": "dynamic", "factor": 2})").kind, RopeKind::dynamic);
  const Rope plain = rope(R"({"rope_type": "yarn", "factor": null, "original_max_position_embeddings": 128})");
  EXPECT_EQ(plain.kind, RopeKind::yarn);
  EXPECT_EQ(plain.factor, 4.0) << "512 / 128";
  EXPECT_EQ(plain.beta_fast, 32.0);
  EXPECT_EQ(plain.beta_slow, 1.0);
  EXPECT_TRUE(plain.truncate);
  EXPECT_FALSE(plain.attention_factor.has_value());
  const Rope full =
      rope(R"({"rope_type": "yarn", "factor": 3.0, "attention_factor": 1.5, "beta_fast": 16, "beta_slow": 2,
                             "mscale": 0.7, "mscale_all_dim": 0.8, "truncate": false})");
  EXPECT_EQ(full.factor, 3.0);
  EXPECT_EQ(full.original_max_positions, 512) << "max_position_embeddings";
  EXPECT_EQ(full.attention_factor, 1.5);
  EXPECT_EQ(full.beta_fast, 16.0);
  EXPECT_EQ(full.beta_slow, 2.0);
  EXPECT_EQ(full.mscale, 0.7);
  EXPECT_EQ(full.mscale_all_dim, 0.8);
  EXPECT_FALSE(full.truncate);
}

TEST(ModelConfig, InvalidRopesAreErrors) {
  EXPECT_EQ(llama_message(R"({"rope_scaling": {"type": "ntk"}})"),
            "config.json: rope_scaling: rope_type: unknown kind: want default, linear, dynamic, yarn, llama3, "
            "longrope or proportional, have \"ntk\"");
  EXPECT_EQ(
      llama_message(R"({"rope_scaling": {"type": "longrope", "long_factor": [1, 2, 3, 4], "short_factor": [1]}})"),
      "config.json: rope_scaling: short_factor, long_factor: wrong length: want 4, have 1 and 4");
  EXPECT_EQ(llama_message(R"({"rope_scaling": {"type": "longrope", "long_factor": [1, 2, 3, 0]}})"),
            "config.json: rope_scaling: long_factor: out of range: want a number from 0.001 to 1000000, have 0");
  EXPECT_EQ(llama_message(R"({"partial_rotary_factor": 0.5})"),
            "config.json: rope_parameters: partial_rotary_factor: not supported: want 1");
  EXPECT_EQ(llama_message(R"({"rope_scaling": {"type": "linear"}})"),
            "config.json: rope_scaling: factor: missing field");
  EXPECT_EQ(llama_message(R"({"rope_parameters": {"rope_type": "llama3", "factor": 8}})"),
            "config.json: rope_parameters: low_freq_factor: missing field");
  EXPECT_EQ(llama_message(R"({"rope_scaling": {"type": "dynamic", "factor": 2, "alpha": 1000}})"),
            "config.json: rope_scaling: \"alpha\": unknown field");
  EXPECT_EQ(llama_message(R"({"rope_scaling": "linear"})"),
            "config.json: rope_scaling: wrong type: want an object, have \"linear\"");
  EXPECT_EQ(llama_message(R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})"),
            "config.json: rope_parameters: partial_rotary_factor: not supported: want 1");
  EXPECT_NE(llama_message(R"({"rope_theta": -1})"), "");
  EXPECT_NE(llama_message(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
      "high_freq_factor": 4}})"),
            "");
}

TEST(ModelConfig, DegenerateRopesAreErrors) {
  EXPECT_EQ(llama_message(R"({"original_max_position_embeddings": 1, "rope_scaling":
                {"type": "longrope", "long_factor": [1, 1, 1, 1], "short_factor": [1, 1, 1, 1]}})"),
            "config.json: rope_scaling: original_max_position_embeddings: out of range for longrope: want at least 2, "
            "have 1");
  EXPECT_EQ(llama_message(R"({"rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2}})"),
            "config.json: rope_scaling: rope_theta: out of range for yarn: want more than 1, have 1");
  EXPECT_EQ(
      llama_message(R"({"head_dim": 2, "rope_scaling": {"type": "dynamic", "factor": 2}})"),
      "config.json: rope_scaling: rope_type: head too narrow for dynamic: want at least 4 rotated elements, have 2");
}

TEST(ModelConfig, InvalidSizesAreErrors) {
  EXPECT_EQ(llama_message(R"({"head_dim": 4611686018427387904})"),
            "config.json: head_dim: out of range: want an even number from 2 to 1024, have 4611686018427387904");
  EXPECT_EQ(llama_message(R"({"hidden_size": 0})"),
            "config.json: hidden_size: out of range: want an integer from 1 to 131072, have 0");
  EXPECT_EQ(llama_message(R"({"num_hidden_layers": "4"})"),
            "config.json: num_hidden_layers: wrong type: want an integer from 1 to 1024, have \"4\"");
  EXPECT_EQ(llama_message(R"({"num_key_value_heads": 3})"),
            "config.json: num_key_value_heads: does not divide num_attention_heads: 3 and 8");
  EXPECT_EQ(llama_message(R"({"num_attention_heads": 12})"),
            "config.json: num_attention_heads: does not divide hidden_size: 12 and 64");
  EXPECT_EQ(llama_message(R"({"head_dim": 7})"),
            "config.json: head_dim: out of range: want an even number from 2 to 1024, have 7");
  EXPECT_EQ(llama_message(R"({"num_attention_heads": 131072, "head_dim": 1024})"),
            "config.json: head_dim: attention too wide: want at most 131072 for all heads, have 134217728");
  EXPECT_NE(llama_message(R"({"vocab_size": 1000000000000})"), "");
  EXPECT_NE(llama_message(R"({"rms_norm_eps": -1e-5})"), "");
  EXPECT_NE(llama_message(R"({"eos_token_id": "2"})"), "");
}

// Several families have this architecture, by the model's type.
TEST(ModelConfig, LlamaWithoutATypeIsALlama) {
  EXPECT_EQ(read(small("LlamaForCausalLM")).family, "llama");
  EXPECT_EQ(read(small("LlamaForCausalLM", R"({"model_type": "internlm3"})")).family, "internlm3");
  EXPECT_EQ(read(small("DeepseekV3ForCausalLM", R"({"num_key_value_heads": 8})")).family, "deepseek_v3");
  EXPECT_EQ(read(small("SmolVLMForConditionalGeneration")).family, "llama") << "no family lists it first";
}

TEST(ModelConfig, UnknownValuesAreErrors) {
  EXPECT_EQ(llama_message(R"({"model_type": "granite"})"),
            "config.json: model_type: does not fit LlamaForCausalLM: want exaone, internlm3, "
            "iquestcoder, llama, have \"granite\"");
  EXPECT_NE(llama_message(R"({"text_config": {"rope_theta": 500}})").find("text_config"), std::string::npos);
  ModelConfig nested;
  EXPECT_EQ(parse_model_config(R"({"architectures": ["Gemma3ForConditionalGeneration"], "tie_word_embeddings": false,
                                   "text_config": {"tie_word_embeddings": true}})",
                               "config.json", &nested)
                .message(),
            "config.json: tie_word_embeddings: differs from text_config's: want true, have false");
  EXPECT_EQ(
      llama_message(R"({"hidden_act": "quick_gelu"})"),
      "config.json: hidden_act: not supported: want one of silu, gelu, gelu_pytorch_tanh, relu, relu2, xielu, have "
      "\"quick_gelu\"");
  EXPECT_EQ(llama_message(R"({"quantization_config": {"quant_method": "gptq", "bits": 2}})"),
            "config.json: quantization_config: bits: not supported: want 4 or 8, have 2");
  for (const char* text : {"[]", "null", "", "{", "7"}) {
    ModelConfig config;
    EXPECT_TRUE(parse_model_config(text, "config.json", &config)) << text;
  }
}

TEST(ModelConfig, UnknownArchitectureSuggestsSimilarNames) {
  const auto perhaps = [](const char* name) {
    const std::string text = message(small(name));
    const std::string begin = "config.json: architectures: unknown architecture: want one listed in README.md",
                      end = std::string(", have \"") + name + "\"";
    EXPECT_TRUE(text.starts_with(begin) && text.ends_with(end)) << text;
    return text.size() < begin.size() + end.size() ? text
                                                   : text.substr(begin.size(), text.size() - begin.size() - end.size());
  };
  EXPECT_EQ(perhaps("LlamaForCasualLM"),
            ", perhaps LlamaForCausalLM, Llama4ForCausalLM, Llama4ForConditionalGeneration");
  EXPECT_EQ(perhaps("Mistrl3ForCausalLM"),
            ", perhaps Mistral3ForConditionalGeneration, Mistral4ForCausalLM, MistralForCausalLM");
  EXPECT_EQ(perhaps("Qwen3OmniForCausalLM"), ", perhaps Qwen3ForCausalLM, Qwen3MoeForCausalLM, Qwen3NextForCausalLM");
  EXPECT_EQ(perhaps("RwkvForCausalLM"), "");
  EXPECT_EQ(perhaps("ForCausalLM"), "");
  EXPECT_EQ(perhaps("Abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm"), "") << "65 characters";
  Json json = small("");
  json.erase("architectures");
  json["model_type"] = "qwen3moe";
  EXPECT_EQ(
      message(json),
      "config.json: model_type: unknown architecture: want one listed in README.md, perhaps qwen3_moe, qwen2_moe, "
      "qwen3, have \"qwen3moe\"");
  json.erase("model_type");
  EXPECT_EQ(message(json), "config.json: model_type: unknown architecture: want one listed in README.md, have \"\"");
}

TEST(ModelConfig, UnreadFieldsOfTransformersAreErrors) {
  EXPECT_EQ(llama_message(R"({"per_layer_config": {"1": {"head_dim": 16}}, "axolotl_config": "a"})"),
            "config.json: fields not supported for family llama: \"per_layer_config\"");
  EXPECT_EQ(message(small("Gemma2ForCausalLM", R"({"use_bidirectional_attention": true, "text_encoder": "x"})")),
            "config.json: fields not supported for family gemma2: \"text_encoder\", \"use_bidirectional_attention\"");
  const ModelConfig config = read(small("LlamaForCausalLM", R"({"axolotl_config": {"base_model": "x", "lora_r": 8},
      "_author's note": "trained on\nstories", "attention_chunk_size": 8192, "qkv_bias": false, "new_thing": null,
      "pruned_heads": {}, "use_cache": true})"));
  EXPECT_EQ(config.ignored_fields,
            (std::vector<std::string>{"_author's note", "attention_chunk_size", "axolotl_config"}));
  EXPECT_TRUE(read(small("LlamaForCausalLM")).ignored_fields.empty());
}

TEST(ModelConfig, NamesAMissingFolderOrFile) {
  const TempFolder folder;
  ModelConfig config;
  EXPECT_EQ(read_model_config(folder.path / "absent", &config).message(),
            folder.path.string() + "/absent: no such folder");
  EXPECT_EQ(read_model_config(folder.path, &config).message(),
            folder.path.string() + "/config.json: cannot open: No such file or directory");
  folder.write("config.json", small("LlamaForCausalLM").dump());
  EXPECT_EQ(read_model_config(folder.path, &config).message(), "");
}

}  // namespace
}  // namespace pinion
