// GGUF files in place of folders: those that llama.cpp's converter makes of the models in tests/data/families give the
// logits of the folders, which other tests compare with the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/runtime/load.h"
#include "engine/runtime/runtime.h"
#include "engine/session/session.h"
#include "kernels/half.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "loader/gguf/gguf.h"
#include "loader/gguf/gguf_folder.h"
#include "loader/pack/pack_cache.h"
#include "loader/quant/stored_weights.h"
#include "tests/engine/gguf_families.h"

namespace pinion {
namespace {

std::vector<int32_t> longest_prompt(const Json& expected) {
  const auto length = [](const Json& prompt) { return prompt["ids"].size(); };
  return (*std::ranges::max_element(expected["prompts"], {}, length))["ids"].get<std::vector<int32_t>>();
}

TEST(Gguf, FilesOfEveryFamilyGiveTheLogitsOfTheirFolders) {
  Json changes;
  ASSERT_EQ(read_json_file(kData / "gguf/changes.json", &changes).message(), "");
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(kData / "gguf/families")) {
    const std::string name = entry.path().stem();
    SCOPED_TRACE(name);
    Json expected;
    ASSERT_EQ(read_json_file(kData / "families" / name / "expected.json", &expected).message(), "");
    const std::vector<int32_t> ids = longest_prompt(expected);
    const TempFolder copy;
    const std::string of_folder = folder_of(name, changes, copy);
    const auto tolerance = kTolerances.find(name);
    for (const Quant quant : {Quant::none, Quant::w8a8}) {
      std::vector<float> folder, file;
      logits_of(of_folder, quant, ids, &folder);
      logits_of(entry.path(), quant, ids, &file);
      if (tolerance == kTolerances.end()) {
        EXPECT_EQ(file, folder) << "mode " << static_cast<int>(quant);
      } else if (quant == Quant::none) {
        EXPECT_LT(largest_difference(file, folder), tolerance->second);
      }
    }
    ++files;
  }
  EXPECT_GE(files, 67u);
}

TEST(Gguf, DraftLayersOfFilesAreThoseOfTheirFolders) {
  std::unique_ptr<Model> models[2], layers[2];
  const std::string paths[] = {kData / "families/qwen3_5_mtp", gguf_of("qwen3_5_mtp")};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(load_model(paths[i], {.quant = Quant::w8a8}, &models[i]).message(), "");
    ASSERT_EQ(load_mtp(paths[i], {.quant = Quant::w8a8}, *models[i], &layers[i]).message(), "");
  }
  EXPECT_TRUE(std::ranges::equal(layers[0]->packed(), layers[1]->packed()));
  const auto weights = [](const float* values) { return std::vector<float>(values, values + 28); };
  for (const auto norm : {&MtpInput::embedding_norm, &MtpInput::hidden_norm}) {
    EXPECT_EQ(weights((layers[0]->mtp.*norm).weight), weights((layers[1]->mtp.*norm).weight));
  }
  EXPECT_EQ(weights(layers[0]->final_norm.weight), weights(layers[1]->final_norm.weight));
  const TempFolder folder;
  std::string config;
  ASSERT_EQ(read_model_text(paths[1], "config.json", kMaxJsonBytes, &config).message(), "");
  folder.write("config.json", config);
  const PackRecord record = {{"quant", "w8a8"}, {"source_format", "GGUF"}};
  const fs::path file = folder / "model.safetensors";
  ASSERT_EQ(write_packed_model(file, record, {}, *models[1], layers[1].get(), {}).message(), "");
  std::unique_ptr<Model> model, layer;
  ASSERT_EQ(load_model(folder.string(), {.quant = Quant::w8a8}, &model).message(), "");
  EXPECT_TRUE(model->notes.empty());
  ASSERT_EQ(load_mtp(folder.string(), {.quant = Quant::w8a8}, *model, &layer).message(), "");
  EXPECT_TRUE(std::ranges::equal(layer->packed(), layers[0]->packed()));
  bool exists = true;
  EXPECT_NE(check_mtp(gguf_of("qwen3_5"), {}, &exists).message().find("no tensors of an MTP layer"), std::string::npos);
  EXPECT_FALSE(exists);
}

TEST(Gguf, PackedFilesGiveTheSameLogits) {
  const std::vector<int32_t> ids = {3, 17, 5, 60, 42, 9};
  for (const auto& entry : fs::directory_iterator(kData / "gguf/families")) {
    SCOPED_TRACE(entry.path().stem());
    const TempFolder folder;
    std::string config;
    std::unique_ptr<Model> model;
    ASSERT_EQ(read_model_text(entry.path(), "config.json", kMaxJsonBytes, &config).message(), "");
    folder.write("config.json", config);
    ASSERT_EQ(load_model(entry.path(), {.quant = Quant::w8a8}, &model).message(), "");
    const PackRecord record = {{"quant", "w8a8"}, {"source_format", "GGUF"}};
    ASSERT_EQ(write_packed_model(folder / "model.safetensors", record, {}, *model, nullptr, {}).message(), "");
    std::vector<float> file, packed;
    logits_of(entry.path(), Quant::w8a8, ids, &file);
    logits_of(folder.string(), Quant::w8a8, ids, &packed);
    EXPECT_EQ(packed, file);
  }
}

// A GGUF file in a folder, with changed metadata.
struct ChangedFile {
  TempFolder folder;
  std::string path = folder.path / "model.gguf";

  ChangedFile(const std::string& name, const std::string& from, const std::string& to) {
    std::string bytes;
    EXPECT_FALSE(read_text_file(gguf_of(name), int64_t{1} << 24, &bytes));
    EXPECT_EQ(from.size(), to.size());
    const size_t at = bytes.find(from);
    EXPECT_NE(at, bytes.npos);
    bytes.replace(at, from.size(), to);
    std::ofstream(path, std::ios::binary) << bytes;
  }
};

TEST(Gguf, UnreadMetadataAndOtherArchitecturesAreRefused) {
  const ChangedFile unread("llama", "llama.rope.freq_base", "llama.rope.freq_bass");
  EXPECT_EQ(load_message(unread.path), unread.path +
                                           ": metadata that Pinion does not read and that may change the result: "
                                           "llama.rope.freq_bass");
  const ChangedFile other("qwen3", "qwen3.", "qwen9.");
  EXPECT_NE(load_message(other.path).find("missing field"), std::string::npos) << load_message(other.path);
  const ChangedFile renamed("qwen3", "blk.0.attn_q.weight", "blk.0.attn_Q.weight");
  EXPECT_EQ(load_message(renamed.path), renamed.path + ": blk.0.attn_q.weight: no such tensor");
}

std::string config_error(const GgufWriter& file, ModelConfig* out) {
  const TempFolder folder;
  return read_model_config(folder.write("model.gguf", file.file()), out).message();
}

TEST(Gguf, ConstantsOfLlamaCppAreTheDefaults) {
  ModelConfig config;
  GgufWriter gemma =
      small_model("gemma3", 62, 5376, 32);  // 27B: heads of 128, but scores by the width of a head's share
  EXPECT_NE(config_error(gemma, &config).find("epsilon: missing field"), std::string::npos);
  gemma.add("gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
  gemma.add("gemma3.attention.key_length", uint32_t{128});
  gemma.add("gemma3.attention.sliding_window", uint32_t{1024});
  EXPECT_EQ(config_error(gemma, &config), "");
  EXPECT_FLOAT_EQ(config.score_scale, 1.0f / std::sqrt(168.0f));
  EXPECT_EQ(config.ropes[0].theta, 10000.0);  // not the family's 1000000

  GgufWriter mistral = small_model("mistral3", 2, 64, 4);
  mistral.add("mistral3.attention.layer_norm_rms_epsilon", 1e-5f);
  mistral.add("mistral3.rope.freq_base", 1e9f);
  EXPECT_EQ(config_error(mistral, &config), "");
  EXPECT_EQ(config.ropes[0].kind, RopeKind::none);  // not the family's yarn
  EXPECT_EQ(config.ropes[0].theta, 1e9);

  GgufWriter partial = small_model("stablelm", 2, 208, 2);  // 30 / 104 * 104 is 29.99...
  partial.add("stablelm.attention.layer_norm_epsilon", 1e-5f);
  partial.add("stablelm.rope.dimension_count", uint32_t{30});
  EXPECT_EQ(config_error(partial, &config), "");
  EXPECT_EQ(config.ropes[0].dims, 30);
  EXPECT_TRUE(config.parallel_branches);  // the file has no norm of the mlp
  partial.add("stablelm.attention.causal", false);
  EXPECT_EQ(config_error(partial, &config), "");
  EXPECT_TRUE(config.attends_both_ways);
}

TEST(Gguf, FilesWithoutThePartsOfAModelAreRefused) {
  const std::pair<const char*, std::string> keys[] = {
      {"granite_hybrid", ".ssm.conv_kernel"}, {"falcon_h1", ".ssm.group_count"},
      {"nemotron_h", ".ssm.state_size"},      {"gemma3n", ".altup.num_inputs"},
      {"deepseek_v2", ".expert_group_count"}, {"afmoe", ".expert_weights_scale"},
  };
  for (const auto& [name, key] : keys) {
    const std::string changed = key.substr(0, key.size() - 1) + "_";
    const ChangedFile unread(name, key, changed);
    EXPECT_NE(load_message(unread.path).find("may change the result: "), std::string::npos)
        << load_message(unread.path);
    EXPECT_NE(load_message(unread.path).find(changed), std::string::npos);
  }
  const auto refused = [](GgufWriter file, const char* expected) {
    ModelConfig config;
    EXPECT_NE(config_error(file, &config).find(expected), std::string::npos) << config_error(file, &config);
  };
  GgufWriter old_keys = small_model("deepseek2", 2, 64, 4);  // of before the split of attn_kv_b
  old_keys.add("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
  old_keys.add("deepseek2.attention.key_length", uint32_t{192});
  refused(old_keys, "deepseek2.attention.key_length_mla: missing field");
  GgufWriter no_rope = small_model("granite", 2, 64, 4);
  no_rope.add("granite.attention.layer_norm_rms_epsilon", 1e-5f);
  no_rope.add("granite.rope.scaling.finetuned", false);
  refused(no_rope, "granite.rope.scaling.finetuned: unsupported: want true, have false");
  GgufWriter types = small_model("nemotron_h", 2, 64, 4);  // numbers in place of lists
  types.add("nemotron_h.attention.layer_norm_epsilon", 1e-5f);
  types.add("nemotron_h.attention.head_count_kv", uint32_t{2});
  refused(types, "layer_types: missing field");
  refused(small_model("bitnet-b2", 2, 64, 4), "general.architecture: unknown architecture");
  GgufWriter unread = small_model("jais2", 2, 64, 4);
  unread.add("jais2.attention.layer_norm_epsilon", 1e-5f);
  unread.add("jais2.attention.scale", 0.5f);
  refused(unread, "metadata that Pinion does not read and that may change the result: jais2.attention.scale");
}

TEST(Gguf, HostileMetadataAreRefused) {
  ModelConfig config;
  GgufWriter counts = small_model("llama", 5, 64, 4);
  counts.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  counts.add("llama.nextn_predict_layers", kI64, raw(std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(config_error(counts, &config), "");
  EXPECT_EQ(config.layers, 5);
  GgufWriter types = small_model("qwen3", 2, 64, 4);
  types.add("qwen3.attention.layer_norm_rms_epsilon", "small");
  types.add("qwen3.attention.key_length", "wide");
  types.add("qwen3.rope.dimension_count", uint32_t{8});
  EXPECT_NE(config_error(types, &config), "");
  GgufWriter factors = small_model("llama", 2, 64, 4);
  factors.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  factors.add_tensor("rope_freqs.weight", {8}, 1, std::string(16, '\0'));
  EXPECT_NE(config_error(factors, &config).find("unsupported factors of rope"), std::string::npos);
}

// Blocks with these codes and scales: w = scale * code + minimum.
TEST(Gguf, CodesOfFourBitsStay) {
  std::vector<MappedFile> files;
  GgufFile gguf;
  ASSERT_EQ(open_gguf(kData / "gguf/blocks.gguf", &files, &gguf).message(), "");
  size_t kept = 0;
  for (const TensorView& tensor : gguf.tensors) {
    const BlockFormat* format = block_format(tensor.dtype);
    if (!format || !format->read_codes) continue;
    SCOPED_TRACE(format->name);
    const int64_t blocks = tensor.bytes / format->bytes, elements = blocks * format->elements;
    std::vector<uint8_t> codes(elements);
    std::vector<W4Block> groups(elements / kGroupK);
    std::vector<float> values(elements);
    format->read_codes(tensor.data, blocks, codes.data(), groups.data());
    format->read(tensor.data, blocks, values.data());
    for (int64_t i = 0; i < elements; ++i) {
      const W4Block& group = groups[i / kGroupK];
      const int8_t* levels = traits_of(*format->kept).levels;
      const int code = levels ? levels[codes[i]] : codes[i];
      const float exact = group.scale * static_cast<float>(code) + group.minimum;
      ASSERT_LE(codes[i], 15);
      if (!std::isfinite(values[i])) continue;
      const float size = std::abs(group.scale) * 15.0f + std::abs(group.minimum);
      ASSERT_LE(std::abs(exact - values[i]), 1e-6f * size) << i;
    }
    ++kept;
  }
  EXPECT_EQ(kept, 6u);
  EXPECT_EQ(kept_format(DType::q4_0), Format::w4);
  EXPECT_EQ(kept_format(DType::q4_k), Format::w4z);
  EXPECT_EQ(kept_format(DType::mxfp4), Format::mxfp4);
  for (const uint32_t iq4 : {20, 23}) EXPECT_EQ(kept_format(ggml_type(iq4)->dtype), Format::w4n);
  for (const uint32_t other : {14, 40}) EXPECT_EQ(kept_format(ggml_type(other)->dtype), std::nullopt);  // Q6_K, NVFP4
}

// Random blocks of IQ4_NL or, if k is a multiple of 256, IQ4_XS, some with scale 0.
std::string random_iq4(std::mt19937& random, uint64_t rows, uint64_t k, bool has_scales_of_groups) {
  std::string blocks;
  const uint64_t block_bytes = has_scales_of_groups ? 136 : 18;
  for (uint64_t block = 0; block < rows * k / (has_scales_of_groups ? 256 : 32); ++block) {
    const float size = has_scales_of_groups ? 2e-5f : 5e-4f;
    const float scale = block % 7 == 3 ? 0.0f : size * (static_cast<float>(random() % 100) - 50) / 50;
    blocks += raw(to_f16(scale).bits);
    for (uint64_t i = 2; i < block_bytes; ++i) blocks += static_cast<char>(random());
  }
  return blocks;
}

// A layer of IQ4_XS, whose down has rows that are too short for it. The packed levels and scales give the numbers of
// the file: of IQ4_NL exactly, of IQ4_XS but for scales rounded to f16.
TEST(Gguf, Iq4KeepsItsCodes) {
  GgufWriter file = small_model("llama", 1, 256, 4);
  file.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::mt19937 random(7);
  for (size_t i = 0; i < file.data.size(); i += 4) {
    file.data.replace(i, 4, raw(static_cast<float>(random() % 1000) / 500 - 1));
  }
  std::string ones;
  for (int i = 0; i < 256; ++i) ones += raw(1.0f);
  for (const char* norm : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
    file.add_tensor(norm, {256}, 0, ones);
  }
  const std::tuple<const char*, uint64_t, MatrixRole> matrices[] = {
      {"attn_q", 256, MatrixRole::q},     {"attn_k", 256, MatrixRole::k},      {"attn_v", 256, MatrixRole::v},
      {"ffn_up", 64, MatrixRole::up},     {"attn_output", 256, MatrixRole::o}, {"ffn_gate", 64, MatrixRole::gate},
      {"ffn_down", 256, MatrixRole::down}};
  for (const auto& [name, rows, role] : matrices) {
    const uint64_t k = role == MatrixRole::down ? 64 : 256;
    file.add_tensor("blk.0." + std::string(name) + ".weight", {k, rows}, k == 64 ? 20 : 23,
                    random_iq4(random, rows, k, k == 256));
  }
  const TempFolder folder;
  const std::string path = folder.write("model.gguf", file.file());
  EXPECT_EQ(default_quant(path), Quant::w4a8);
  std::unique_ptr<Model> model;
  ASSERT_EQ(load_model(path, {.quant = Quant::w4a8}, &model).message(), "");
  std::vector<MappedFile> files;
  GgufFile gguf;
  ASSERT_EQ(open_gguf(path, &files, &gguf).message(), "");
  for (const auto& [name, rows, role] : matrices) {
    const Matrix& m = model->layers[0][role].weight;
    ASSERT_EQ(m.format, Format::w4n) << name;
    EXPECT_EQ(m.rotation, 1);
    if (role == MatrixRole::q || role == MatrixRole::k) continue;  // the converter permutes their rows
    const auto tensor = std::ranges::find(gguf.tensors, "blk.0." + std::string(name) + ".weight", &TensorView::name);
    std::vector<float> numbers(m.n * m.k);
    read_floats(*tensor, numbers.data());
    for (int64_t i = 0; i < m.n * m.k; ++i) {
      const int64_t n = i / m.k, k = i % m.k;
      const std::byte* panel = panel_of(m, n / kPanelColumns);
      const int code = std::to_integer<int>(panel[code_offset(m.format, k, n)]) >> code_shift(m.format, k) & 15;
      f16 scale;
      std::memcpy(&scale, panel + code_offset(m.format, k - k % 32, 0) + code_bytes(m.format) + n % kPanelColumns * 2,
                  2);
      const float weight = static_cast<float>(kW4nLevels[code]) * to_float(scale) * m.scale[n];
      ASSERT_NEAR(weight, numbers[i], m.k == 64 ? 0 : std::abs(numbers[i]) / 2048) << name << " " << i;
    }
  }
  std::vector<float> kept, exact;
  logits_of(path, Quant::w4a8, {1, 3, 2}, &kept);
  logits_of(path, Quant::none, {1, 3, 2}, &exact);
  const float largest = std::abs(*std::ranges::max_element(exact, {}, [](float x) { return std::abs(x); }));
  EXPECT_LT(largest_difference(kept, exact), 0.03f * largest);
}

TEST(Gguf, TheModeFollowsTheBitsOfTheFile) {
  EXPECT_EQ(default_quant(gguf_of("llama")), Quant::w8a8);
  EXPECT_EQ(default_quant(gguf_of("gpt_oss_mxfp4")), Quant::w4a8);  // floats beside its experts
  GgufFile gguf;
  gguf.tensors = {{"token_embd.weight", DType::f32, {8, 32}, nullptr, 8 * 128},
                  {"blk.0.attn_q.weight", DType::q4_0, {8, 32}, nullptr, 8 * 18},
                  {"blk.0.attn_norm.weight", DType::f32, {32}, nullptr, 128}};
  EXPECT_EQ(bits_per_weight(gguf), 8.0 * 144 / 256);
}

}  // namespace
}  // namespace pinion
