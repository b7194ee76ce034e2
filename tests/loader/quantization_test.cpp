// quantization_config: accepted settings, matched modules and required tensors.
#include "loader/quant/quantization.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "loader/quant/stored_weights.h"

#include "tests/loader/make_files.h"

namespace pinion {
namespace {

constexpr const char* kConfig = R"({
  "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
  "global_compression_ratio": 1.46, "version": "0.9.0", "kv_cache_scheme": null, "ignore": ["lm_head"],
  "sparsity_config": {"format": "dense", "global_sparsity": 0.1, "ignore": [], "targets": []},
  "config_groups": {"group_0": {
    "targets": ["Linear"], "output_activations": null,
    "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "dynamic": false,
                "group_size": null, "actorder": null, "block_structure": null, "observer": "mse",
                "observer_kwargs": {"norm": 2.4}},
    "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true,
                          "observer": null}}}})";

std::string message(const Json& json, Quantization* out = nullptr) {
  Quantization quantization;
  JsonFields fields{json, "config.json"};
  return read_quantization(fields, out ? out : &quantization).message();
}

// The message for kConfig with another value at a JSON pointer; null removes the value.
std::string changed(const char* place, const char* value) {
  Json json = Json::parse(kConfig);
  json[Json::json_pointer(place)] = Json::parse(value);
  return message(json);
}

Quantization patterns(const Json& targets, const Json& ignore) {
  Json json = Json::parse(kConfig);
  json["ignore"] = ignore;
  json["config_groups"]["group_0"]["targets"] = targets;
  Quantization quantization;
  EXPECT_EQ(message(json, &quantization), "");
  return quantization;
}

bool means(const Quantization& quantization, const std::string& module) {
  const CodeScheme* scheme = nullptr;
  EXPECT_EQ(find_scheme(quantization, module, &scheme).message(), "");
  return scheme != nullptr;
}

TEST(Quantization, ConfigsAsWrittenByTools) {
  EXPECT_EQ(message(Json::parse(kConfig)), "");
  EXPECT_EQ(changed("/quantization_status", "\"frozen\""), "");
  EXPECT_EQ(changed("/sparsity_config", "{}"), "");
  EXPECT_EQ(changed("/config_groups/group_0/weights/group_size", "-1"), "");
  EXPECT_EQ(changed("/config_groups/group_0/weights/actorder", "\"static\""), "");
  EXPECT_EQ(changed("/config_groups/group_0/weights/scale_dtype", "\"torch.bfloat16\""), "");
  EXPECT_EQ(changed("/config_groups/group_0/format", "\"int-quantized\""), "");
  Json inside = Json::parse(kConfig);
  inside["config_groups"]["group_0"]["format"] = "int-quantized";
  inside.erase("format");
  EXPECT_EQ(message(inside), "");
}

TEST(Quantization, OtherFormatsAreErrors) {
  const std::string group = "/config_groups/group_0";
  const std::string kFormats = R"("int-quantized" or "float-quantized" or "pack-quantized" or "nvfp4-pack-quantized")";
  const std::tuple<std::string, const char*, std::string> cases[] = {
      {"/quant_method", "\"bitsandbytes\"",
       R"(quant_method: not supported: want "compressed-tensors" or "fp8" or "gptq" or "awq" or "auto-round" or "bitnet", have "bitsandbytes")"},
      {"/quant_method", "null",
       R"(quant_method: missing field: want "compressed-tensors" or "fp8" or "gptq" or "awq" or "auto-round" or "bitnet")"},
      {"/format", "\"mxfp4-pack-quantized\"",
       "format: not supported: want " + kFormats + R"(, have "mxfp4-pack-quantized")"},
      {"/format", "null", "config_groups: group_0: format: missing field: want " + kFormats},
      {"/quantization_status", "\"calibration\"",
       R"(quantization_status: not supported: want "compressed" or "frozen", have "calibration")"},
      {"/kv_cache_scheme", R"({"num_bits": 8})", "kv_cache_scheme: not supported: want null, have an object"},
      {"/sparsity_config", R"({"format": "sparse-24-bitmask"})",
       R"(sparsity_config: format: not supported: want "dense", have "sparse-24-bitmask")"},
      {"/transform_config", R"({"config_groups": {}})", "transform_config: not supported: want null, have an object"},
      {"/config_groups", "{}", "config_groups: missing field"},
      {group + "/format", "\"float-quantized\"",
       R"(config_groups: group_0: format: not supported: want "int-quantized", have "float-quantized")"},
      {group + "/targets", "null", "config_groups: group_0: targets: missing field"},
      {group + "/weights", "null", "config_groups: group_0: weights: not supported: want 8-bit weights, have none"},
      {group + "/weights/num_bits", "3",
       "config_groups: group_0: weights: num_bits: not supported: want 4 or 8, have 3"},
      {group + "/weights/type", "\"float\"",
       R"(config_groups: group_0: weights: type: not supported: want "int", have "float")"},
      {group + "/weights/strategy", "\"group\"",
       "config_groups: group_0: weights: group_size: null, but the field is required"},
      {group + "/weights/strategy", "\"tensor\"",
       R"(config_groups: group_0: weights: strategy: not supported: want "channel" or "group", have "tensor")"},
      {group + "/weights/strategy", "null",
       R"(config_groups: group_0: weights: strategy: missing field: want "channel" or "group")"},
      {group + "/weights/actorder", "\"group\"",
       R"(config_groups: group_0: weights: actorder: not supported: want "weight" or "static" or false, have "group")"},
      {group + "/weights/block_structure", "\"2x4\"",
       R"(config_groups: group_0: weights: block_structure: not supported: want null, have "2x4")"},
      {group + "/input_activations", "null",
       "config_groups: group_0: input_activations: not supported: want 8-bit dynamic activations, have none"},
      {group + "/input_activations/dynamic", "false",
       "config_groups: group_0: input_activations: dynamic: not supported: want true, have false"},
      {group + "/input_activations/strategy", "\"tensor\"",
       R"(config_groups: group_0: input_activations: strategy: not supported: want "token", have "tensor")"},
      {group + "/output_activations", R"({"num_bits": 8})",
       "config_groups: group_0: output_activations: not supported: want null, have an object"},
      {"/ignore", "[1]", "ignore: wrong type: want strings, have 1"},
      {"/ignore", "[\"re:(\"]", "ignore: not a regular expression: \"re:(\""},
      {"/ignore", "[\"re:(*ACCEPT)\"]", "ignore: not a regular expression: \"re:(*ACCEPT)\""},
      {"/config_groups", "7", "config_groups: wrong type: want an object, have 7"},
      {group, "7", "config_groups: group_0: wrong type: want an object, have 7"},
  };
  for (const auto& [place, value, what] : cases) {
    EXPECT_EQ(changed(place.c_str(), value), "config.json: " + what) << place;
  }
}

TEST(Quantization, TargetsMatchNamesClassesAndRegexes) {
  const char* kDown = "model.layers.11.mlp.down_proj";
  const Quantization plain = patterns({"Linear"}, {"lm_head", "model.layers.1.mlp.down_proj"});
  EXPECT_TRUE(means(plain, kDown));
  EXPECT_FALSE(means(plain, "lm_head"));
  EXPECT_FALSE(means(plain, "model.layers.1.mlp.down_proj"));
  // Expressions are anchored at the beginning, not at the end.
  EXPECT_FALSE(means(patterns({"Linear"}, {"re:.*down"}), kDown));
  EXPECT_TRUE(means(patterns({"Linear"}, {"re:down_proj"}), kDown));
  EXPECT_TRUE(means(patterns({"Linear"}, {R"(re:model\.visual\..*)"}), kDown));
  EXPECT_TRUE(means(patterns({R"(re:.*\.(?P<kind>gate|up|down)_proj$)"}, Json::array()), kDown));
  EXPECT_FALSE(means(patterns({R"(re:visual|lm_head)"}, Json::array()), kDown));
  EXPECT_FALSE(means(patterns({"re:.*self_attn.*", "Embedding"}, nullptr), kDown));
  EXPECT_FALSE(means(patterns({"Linear"}, {"Linear"}), kDown));
}

TEST(Quantization, PatternsMatchNamesBeforeRenaming) {
  Quantization both =
      patterns({"Linear"}, {"model.language_model.layers.0.mlp.up_proj", R"(re:language_model\.lm_.*)"});
  EXPECT_TRUE(means(both, "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(means(both, "lm_head"));
  both.renamed = {{"language_model.lm_head.", "lm_head."}, {"model.language_model.", "model."}};
  EXPECT_FALSE(means(both, "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(means(both, "lm_head"));
  EXPECT_TRUE(means(both, "model.layers.1.mlp.up_proj"));
}

// The message for kConfig with another format, weights and activations.
std::string format_message(const char* format, const char* weights, const char* activations = "null",
                           CodeScheme* out = nullptr) {
  Json json = Json::parse(kConfig);
  Json& group = json["config_groups"]["group_0"];
  json["format"] = format;
  group["weights"] = Json::parse(weights);
  group["input_activations"] = Json::parse(activations);
  Quantization quantization;
  const std::string text = message(json, &quantization);
  if (out && text.empty()) *out = quantization.groups.at(0).scheme;
  const std::string_view where = "config.json: config_groups: group_0: ";
  return text.starts_with(where) ? text.substr(where.size()) : text;
}

TEST(Quantization, ReadsFloatAndPackedFormats) {
  CodeScheme scheme;
  const char* kTokens = R"({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": true, "symmetric": true})";
  EXPECT_EQ(
      format_message("float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "channel"})", kTokens, &scheme),
      "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::fp8}));
  EXPECT_EQ(format_message("float-quantized",
                           R"({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 64]})",
                           kTokens, &scheme),
            "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::fp8, .group_size = 64, .rows_per_scale = 128}));
  EXPECT_EQ(format_message("nvfp4-pack-quantized",
                           R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})", kTokens,
                           &scheme),
            "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::nvfp4, .group_size = kNvGroup}));
  EXPECT_EQ(format_message("nvfp4-pack-quantized",
                           R"({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 32})", kTokens,
                           &scheme),
            "weights: group_size: not supported: want 16, have 32");
  EXPECT_EQ(
      format_message("pack-quantized",
                     R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": false})",
                     "null", &scheme),
      "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::packed, .bits = 4, .group_size = 128, .symmetric = false}));
}

// Settings of llm-compressor's W4A8 and similar schemes.
TEST(Quantization, ReadsIntegersInBytes) {
  const char* kTokens = R"({"num_bits": 8, "type": "int", "strategy": "token", "dynamic": true, "symmetric": true})";
  CodeScheme scheme;
  const auto read = [&](const char* weights, const char* activations) {
    return format_message("int-quantized", weights, activations, &scheme);
  };
  EXPECT_EQ(read(R"({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": true,
                     "dynamic": false, "observer": "memoryless_minmax"})",
                 kTokens),
            "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::bytes, .bits = 4, .group_size = 128}));
  EXPECT_EQ(read(R"({"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": false,
                     "zp_dtype": "torch.int8", "actorder": "group"})",
                 R"({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 64, "dynamic": true})"),
            "");
  EXPECT_EQ(
      scheme,
      (CodeScheme{.stored_as = StoredAs::bytes, .bits = 4, .group_size = 32, .symmetric = false, .has_order = true}));
  Quantization all;
  all.groups.emplace_back().scheme = scheme;
  EXPECT_FALSE(keeps_w4_codes(all));
  EXPECT_EQ(read(R"({"num_bits": 4, "strategy": "channel"})", "null"), "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::bytes, .bits = 4}));
  EXPECT_EQ(read(R"({"strategy": "channel", "symmetric": false})", kTokens), "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::bytes, .symmetric = false}));
  EXPECT_EQ(read(R"({"strategy": "group", "group_size": 64})", kTokens), "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::bytes, .group_size = 64}));
  EXPECT_EQ(read(R"({"strategy": "channel"})", kTokens), "");
  EXPECT_EQ(scheme, (CodeScheme{.stored_as = StoredAs::int8}));
  EXPECT_EQ(read(R"({"num_bits": 4, "strategy": "channel"})", R"({"num_bits": 4, "strategy": "token"})"),
            "input_activations: num_bits: not supported: want 8, have 4");
  EXPECT_EQ(read(R"({"num_bits": 4, "type": "float", "strategy": "channel"})", kTokens),
            R"(weights: type: not supported: want "int", have "float")");
}

TEST(Quantization, InvalidSettingsAreErrors) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"pack-quantized", R"({"num_bits": 3, "strategy": "group", "group_size": 128})",
       "weights: num_bits: not supported: want 4 or 8, have 3"},
      {"pack-quantized", R"({"strategy": "channel"})", "weights: num_bits: missing field: want 4 or 8"},
      {"pack-quantized", R"({"num_bits": 4, "strategy": "group"})", "weights: group_size: missing field"},
      {"pack-quantized", R"({"num_bits": 4, "strategy": "group", "group_size": 0})",
       "weights: group_size: out of range: want -1 or at least 1, have 0"},
      {"pack-quantized", R"({"num_bits": 4, "strategy": "tensor"})",
       R"(weights: strategy: not supported: want "channel" or "group", have "tensor")"},
      {"pack-quantized", R"({"num_bits": 4, "strategy": "channel", "type": "float"})",
       R"(weights: type: not supported: want "int", have "float")"},
      {"float-quantized", R"({"num_bits": 4, "type": "float", "strategy": "channel"})",
       "weights: num_bits: not supported: want 8, have 4"},
      {"float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [0, 128]})",
       "weights: block_structure: out of range: want an integer from 1 to 131072, have 0"},
      {"float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "block"})",
       "weights: block_structure: wrong length: want [rows, columns] of a block, have 0"},
      {"float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "tensor", "secret": 1})",
       "weights: secret: not supported: want null, have 1"},
  };
  for (const auto& [format, weights, what] : cases) EXPECT_EQ(format_message(format, weights), what) << weights;
  EXPECT_EQ(format_message("float-quantized", R"({"num_bits": 8, "type": "float", "strategy": "tensor"})",
                           R"({"num_bits": 4, "type": "float"})"),
            "input_activations: num_bits: not supported: want 8, have 4");
}

TEST(Quantization, OtherMethods) {
  const auto message_of = [](const char* text) { return message(Json::parse(text)); };
  const std::pair<const char*, const char*> cases[] = {
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": true, "lm_head": false})", ""},
      {R"({"quant_method": "gptq", "bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2", "format": "gptq_v2"})",
       ""},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:lm_head": {}}})", ""},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:down": {"bits": 8}}})",
       R"(dynamic: not supported: want modules left out ("-:"), have "+:down")"},
      {R"({"quant_method": "gptq", "group_size": 128})", "bits: missing field: want 4 or 8"},
      {R"({"quant_method": "gptq", "bits": 3, "group_size": 128})", "bits: not supported: want 4 or 8, have 3"},
      {R"({"quant_method": "gptq", "bits": 4})", "group_size: missing field"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 0})",
       "group_size: out of range: want -1 or at least 1, have 0"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 1000000})",
       "group_size: out of range: want an integer from -1 to 131072, have 1000000"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq", "format": "gptq_v2"})",
       R"(format: contradicts another layout field: want gptq, have gptq_v2)"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"})",
       R"(checkpoint_format: not supported: want "gptq" or "gptq_v2", have "marlin")"},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "secret": 1})",
       "secret: not supported: want null, have 1"},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "GEMM", "zero_point": true})", ""},
      {R"({"quant_method": "awq", "bits": 8, "group_size": 128})", "bits: not supported: want 4, have 8"},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"})",
       R"(version: not supported: want "gemm", have "gemv")"},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "backend": "llm-awq"})",
       R"(backend: not supported: want "autoawq" or "auto", have "llm-awq")"},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": false})",
       "zero_point: not supported: want true, have false"},
      {R"({"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"})", ""},
      {R"({"quant_method": "bitnet", "modules_to_not_convert": ["lm_head"], "rms_norm_eps": 1e-6})", ""},
      {R"({"quant_method": "bitnet", "linear_class": "linear"})",
       R"(linear_class: not supported: want "bitlinear" or "autobitlinear", have "linear")"},
      {R"({"quant_method": "bitnet", "quantization_mode": "online"})",
       R"(quantization_mode: not supported: want "offline", have "online")"},
      {R"({"quant_method": "bitnet", "use_rms_norm": true})", "use_rms_norm: not supported: want false, have true"},
      {R"({"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]})", ""},
      {R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"})", ""},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", R"(fmt: not supported: want "e4m3", have "e5m2")"},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})",
       "weight_block_size: wrong length: want [rows, columns] of a block, have 1"},
      {R"({"quant_method": "fp8", "kv_cache_scheme": "static"})",
       R"(kv_cache_scheme: not supported: want null, have "static")"},
  };
  for (const auto& [text, what] : cases) {
    EXPECT_EQ(message_of(text), *what ? "config.json: " + std::string(what) : "") << text;
  }
}

TEST(Quantization, NameMatchBeatsClassMatch) {
  Json json = Json::parse(kConfig);
  json["format"] = "mixed-precision";
  Json& all = json["config_groups"]["group_0"];
  all["format"] = "int-quantized";
  Json some = Json::parse(R"({"format": "pack-quantized", "targets": ["re:.*down_proj"],
                              "weights": {"num_bits": 4, "strategy": "group", "group_size": 32}})");
  json["config_groups"]["group_1"] = some;
  Quantization quantization;
  ASSERT_EQ(message(json, &quantization), "");
  const CodeScheme* scheme = nullptr;
  ASSERT_EQ(find_scheme(quantization, "model.layers.0.mlp.down_proj", &scheme).message(), "");
  EXPECT_EQ(scheme->stored_as, StoredAs::packed);
  ASSERT_EQ(find_scheme(quantization, "model.layers.0.mlp.up_proj", &scheme).message(), "");
  EXPECT_EQ(scheme->stored_as, StoredAs::int8);

  some["targets"] = {"re:.*layers.0.*"};
  some["weights"]["group_size"] = 64;
  json["config_groups"]["group_2"] = some;
  quantization = {};
  ASSERT_EQ(message(json, &quantization), "");
  EXPECT_EQ(find_scheme(quantization, "model.layers.0.mlp.down_proj", &scheme).message(),
            "config.json: quantization_config: two config_groups match this module: \"model.layers.0.mlp.down_proj\"");
  EXPECT_EQ(find_scheme(quantization, "model.layers.1.mlp.down_proj", &scheme).message(), "");
}

TEST(Quantization, ExplodingRegexIsAnError) {
  const CodeScheme* scheme = nullptr;
  const Quantization evil = patterns({"re:(([a-z_.]+)+)+[^a-z_.]"}, Json::array());
  const std::string text = find_scheme(evil, "model.layers.self_attn.q_proj_q_proj_q_proj", &scheme).message();
  EXPECT_NE(text.find("takes too many steps"), std::string::npos) << text;
}

// A checkpoint of one module "m" [2, 4] with a scale as in the header.
std::string bound(const std::string& weight_type, const std::string& scale_type, const std::string& scale_shape,
                  int scale_bytes, const char* scale_name = "m.weight_scale") {
  const int weight_bytes = weight_type == "I8" ? 8 : 16;
  const TempFolder folder;
  folder.write(
      "model.safetensors",
      safetensors_text(R"({"m.weight": {"dtype": ")" + weight_type + R"(", "shape": [2, 4], "data_offsets": [0, )" +
                           std::to_string(weight_bytes) + R"(]}, ")" + scale_name + R"(": {"dtype": ")" + scale_type +
                           R"(", "shape": )" + scale_shape + R"(, "data_offsets": [)" + std::to_string(weight_bytes) +
                           ", " + std::to_string(weight_bytes + scale_bytes) + "]}}",
                       std::string(weight_bytes + scale_bytes, '\1')));
  Checkpoint checkpoint;
  EXPECT_EQ(open_checkpoint(folder.path, &checkpoint).message(), "");
  LinearWeight found;
  const Error e = bind_linear(checkpoint, patterns({"Linear"}, Json::array()), "m", 2, 4, &found);
  EXPECT_EQ(found.scale.data != nullptr, !e);
  const std::string text = e.message();
  const std::string file = checkpoint.folder + "/model.safetensors: ";
  return text.starts_with(file) ? text.substr(file.size()) : text;
}

TEST(Quantization, MismatchedTensorsAreErrors) {
  EXPECT_EQ(bound("I8", "BF16", "[2, 1]", 4), "");
  EXPECT_EQ(bound("I8", "F32", "[2]", 8), "");
  EXPECT_EQ(bound("I8", "F16", "[]", 2), "");
  EXPECT_EQ(bound("I8", "F16", "[1]", 2), "");
  EXPECT_EQ(bound("I8", "F16", "[1, 1]", 2), "");
  EXPECT_EQ(bound("I8", "F16", "[1, 2]", 4),
            "m.weight_scale: shape differs: want [2, 1], [2] or one number, have [1, 2]");
  EXPECT_EQ(bound("I8", "BF16", "[2, 2]", 8),
            "m.weight_scale: shape differs: want [2, 1], [2] or one number, have [2, 2]");
  EXPECT_EQ(bound("I8", "I32", "[2, 1]", 8), "m.weight_scale: type differs: want BF16, F16 or F32, have I32");
  EXPECT_EQ(bound("BF16", "BF16", "[2, 1]", 4), "m.weight: type differs: want I8, have BF16");
  EXPECT_EQ(bound("I8", "BF16", "[2, 1]", 4, "m.scale"),
            "m.weight_scale: no such tensor: want the scales of 8-bit weights");
}

}  // namespace
}  // namespace pinion
