// GGUF files in place of folders: those that llama.cpp's converter makes of the models in tests/data/families give the
// logits of the folders, which other tests compare with the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/layer_tensors.h"
#include "engine/runtime/load.h"
#include "engine/runtime/runtime.h"
#include "engine/session/session.h"
#include "kernels/half.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "loader/gguf/gguf.h"
#include "loader/gguf/gguf_folder.h"
#include "loader/pack/pack_cache.h"
#include "loader/quant/stored_weights.h"
#include "tests/loader/coded_checkpoint.h"
#include "tests/loader/gguf_files.h"
#include "tests/temp_folder.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

const fs::path kData = PINION_TEST_DATA;

std::string gguf_of(const std::string& name) { return kData / "gguf/families" / (name + ".gguf"); }

// The logits of all tokens.
void logits_of(const std::string& path, Quant quant, const std::vector<int32_t>& ids, std::vector<float>* out,
               const std::vector<std::string>& lora = {}) {
  LoadOptions options = {.quant = quant, .lora = lora};
  std::unique_ptr<Model> model;
  ASSERT_EQ(load_model(path, options, &model).message(), "");
  Team team{{}};
  std::unique_ptr<Session> session;
  ASSERT_EQ(open_session(*model, team, {.kv = KvType::f32}, &session).message(), "");
  out->resize(ids.size() * model->config.vocab_size);
  ASSERT_EQ(evaluate(*session, ids, true, out->data()).message(), "");
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = a.size() == b.size() ? 0.0f : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// The folder of a file: a copy of the model's in which fields that a GGUF file cannot hold have llama.cpp's values, as
// in the script that wrote the file.
std::string folder_of(const std::string& name, const Json& changes, const TempFolder& copy) {
  const fs::path folder = kData / "families" / name;
  if (!changes.contains(name)) return folder;
  fs::copy(folder, copy.path, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  std::string text;
  EXPECT_FALSE(read_text_file(folder / "config.json", int64_t{1} << 20, &text));
  if (const size_t at = text.find("Infinity"); at != text.npos) text.replace(at, 8, "1e308");
  Json config = Json::parse(text);
  config.merge_patch(changes[name]);
  copy.write("config.json", config.dump());
  return copy.path;
}

std::vector<int32_t> longest_prompt(const Json& expected) {
  const auto length = [](const Json& prompt) { return prompt["ids"].size(); };
  return (*std::ranges::max_element(expected["prompts"], {}, length))["ids"].get<std::vector<int32_t>>();
}

// Numbers that the converter rounds, or adds in another order: rates of Qwen 3.5's states, heads by tiles; BitNet's
// scales.
const std::map<std::string, float> kTolerances = {{"qwen3_5_value_heads", 1e-4f}, {"bitnet_divided", 1e-6f}};

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

std::string load_message(const std::string& path, const std::vector<std::string>& lora = {}) {
  std::unique_ptr<Model> model;
  return load_model(path, {.quant = Quant::none, .lora = lora}, &model).message();
}

// The metadata of a small model, without weights except for an embedding of zeros.
GgufWriter small_model(const std::string& architecture, uint32_t layers, uint32_t width, uint32_t heads) {
  GgufWriter file;
  const std::string prefix = architecture + ".";
  file.add("general.architecture", architecture);
  file.add(prefix + "block_count", layers);
  file.add(prefix + "embedding_length", width);
  file.add(prefix + "attention.head_count", heads);
  file.add(prefix + "context_length", uint32_t{512});
  file.add(prefix + "feed_forward_length", uint32_t{64});
  file.add_tensor("token_embd.weight", {width, 4}, 0, std::string(width * 16, '\0'));
  return file;
}

// The matrices that an adapter of either kind of file can change, as module, rows and inputs.
struct Adapted {
  std::string module;
  int64_t n, k;
};

std::vector<Adapted> adapted_matrices(const std::string& model) {
  ModelConfig config;
  EXPECT_EQ(read_model_config(model, &config).message(), "");
  const bool is_delta = config.recurrence.kind == RecurrenceKind::gated_delta && recurrent_layers(config) > 0;
  std::vector<Adapted> result;
  for (const MatrixTensor& m : all_matrices(config)) {
    const bool is_recurrent = m.stage == Stage::state_out || (!config.layer[m.layer].attends && m.stage == Stage::qkv);
    constexpr MatrixRole kSplit[] = {MatrixRole::latent_k, MatrixRole::latent_v, MatrixRole::altup_in,
                                     MatrixRole::altup_out};  // in only one of the two kinds of file
    const bool is_split = std::ranges::count(kSplit, m.role) > 0;
    if (m.expert != kNoExpert || is_split || (is_delta && is_recurrent)) continue;
    if (m.role == MatrixRole::head && config.tied_head) continue;
    const auto same = std::ranges::find(result, m.module(), &Adapted::module);
    if (same == result.end()) {
      result.push_back({m.module(), m.n, m.k});
    } else {
      same->n += m.n;
    }
  }
  return result;
}

// Numbers from -0.1 to 0.1, by rows.
std::string random_floats(int64_t count, uint32_t* seed) {
  std::string bytes;
  for (int64_t i = 0; i < count; ++i) {
    *seed = *seed * 1664525 + 1013904223;
    bytes += raw((static_cast<float>(*seed >> 8) / static_cast<float>(1 << 23) - 1.0f) * 0.1f);
  }
  return bytes;
}

constexpr int64_t kRank = 2;

std::string peft_adapter(const std::string& model, const TempFolder& folder) {
  std::vector<Tensor> tensors;
  uint32_t seed = 1;
  for (const auto& [module, n, k] : adapted_matrices(model)) {
    const std::string name = "base_model.model." + module + ".lora_";
    const int64_t a[] = {kRank, k}, b[] = {n, kRank};
    tensors.push_back({name + "A.weight", "F32", shape_text(a), random_floats(kRank * k, &seed)});
    tensors.push_back({name + "B.weight", "F32", shape_text(b), random_floats(kRank * n, &seed)});
  }
  folder.write("adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6})");
  folder.write("adapter_model.safetensors", file_of(tensors));
  return folder.string();
}

GgufWriter adapter_head(const std::string& architecture) {
  GgufWriter file;
  file.add("general.type", "adapter");
  file.add("general.architecture", architecture);
  file.add("adapter.type", "lora");
  file.add("adapter.lora.alpha", 6.0f);
  return file;
}

std::string gguf_adapter(const std::string& model, const TempFolder& folder) {
  std::vector<MappedFile> files;
  GgufFile gguf;
  EXPECT_EQ(open_gguf(model, &files, &gguf).message(), "");
  GgufWriter file = adapter_head(gguf.metadata["general.architecture"]);
  uint32_t seed = 1;
  for (const auto& [module, n, k] : adapted_matrices(model)) {
    const auto width = static_cast<uint64_t>(k), rows = static_cast<uint64_t>(n);
    file.add_tensor(module + ".weight.lora_a", {width, kRank}, 0, random_floats(kRank * k, &seed));
    file.add_tensor(module + ".weight.lora_b", {kRank, rows}, 0, random_floats(kRank * n, &seed));
  }
  return folder.write("adapter.gguf", file.file());
}

std::string message_without(std::string text, const TempFolder& folder) {
  if (const size_t at = text.find(folder.string()); at != text.npos) text.erase(at, folder.string().size() + 1);
  return text;
}

TEST(Gguf, AdaptersThatDoNotFitAreRefused) {
  const std::string folder = kData / "families/llama", file = gguf_of("llama");
  const auto messages = [&](const GgufWriter& adapter, const std::string& expected) {
    const TempFolder temporary;
    const std::string path = temporary.write("a.gguf", adapter.file());
    for (const std::string& model : {folder, file}) {
      EXPECT_EQ(message_without(load_message(model, {path}), temporary), expected) << model;
    }
  };
  messages(adapter_head("qwen3"), "--lora: such adapters do not fit this model: want llama, have qwen3");
  messages(small_model("llama", 2, 64, 4), "a.gguf: adapter.type: missing field");
  GgufWriter activated = adapter_head("llama");
  activated.add("adapter.alora.invocation_tokens", std::vector<int32_t>{1});
  messages(activated, "a.gguf: adapter.alora.invocation_tokens: not supported");
  GgufWriter norm = adapter_head("llama");
  norm.add_tensor("blk.0.attn_norm.weight", {64}, 0, std::string(256, '\0'));
  messages(norm, "a.gguf: blk.0.attn_norm.weight: not a tensor of a LoRA adapter: want NAME.weight.lora_a or lora_b");
  const auto with_pair = [](const std::string& module, uint64_t width, uint64_t rows) {
    GgufWriter adapter = adapter_head("llama");
    adapter.add_tensor(module + ".weight.lora_a", {width, 2}, 0, std::string(width * 8, '\0'));
    adapter.add_tensor(module + ".weight.lora_b", {2, rows}, 0, std::string(rows * 8, '\0'));
    return adapter;
  };
  messages(with_pair("blk.9.attn_q", 64, 64),
           "a.gguf: blk.9.attn_q.lora_A.0, and 1 more: tensor that a llama model of this config.json does not have");
  const TempFolder temporary;
  const std::string wide = temporary.write("a.gguf", with_pair("blk.0.attn_q", 32, 65).file());
  for (const std::string& model : {folder, file}) {
    EXPECT_NE(load_message(model, {wide}).find(".lora_A.0"), std::string::npos);
    EXPECT_NE(load_message(model, {wide}).find("shape differs: want [2, "), std::string::npos);
  }
  EXPECT_NE(load_message(gguf_of("qwen3"), {(kData / "lora/qwen3").string()}).find("lm_head.weight"),
            std::string::npos);
}

// Files of llama.cpp's own converter.
TEST(Gguf, ConvertedAdaptersGiveTheLogitsOfTheirFolders) {
  const std::vector<int32_t> ids = {3, 17, 5, 60, 42, 9};
  // The converter drops use_rslora: phi3's rank is 4.
  for (const auto& [name, base, factor] : {std::tuple("llama_second", "llama", ""), {"phi3", "phi3", "=2"}}) {
    SCOPED_TRACE(name);
    const std::string folder = kData / "families" / base, peft = kData / "lora" / name;
    const std::string converted = (kData / "gguf/lora" / name).string() + ".gguf" + factor;
    std::vector<float> expected;
    logits_of(folder, Quant::none, ids, &expected, {peft});
    for (const std::string& model : {folder, gguf_of(base)}) {
      for (const std::string& adapter : {peft, converted}) {
        std::vector<float> found;
        logits_of(model, Quant::none, ids, &found, {adapter});
        EXPECT_EQ(found, expected) << model << " " << adapter;
      }
    }
  }
}

TEST(Gguf, AdaptersOfFoldersFitFilesAndTheReverse) {
  Json changes;
  ASSERT_EQ(read_json_file(kData / "gguf/changes.json", &changes).message(), "");
  const std::vector<int32_t> ids = {3, 17, 5, 60, 42, 9};
  for (const auto& entry : fs::directory_iterator(kData / "gguf/families")) {
    const std::string name = entry.path().stem();
    SCOPED_TRACE(name);
    const TempFolder copy, peft, gguf;
    const std::string of_folder = folder_of(name, changes, copy);
    const std::string of_peft = peft_adapter(of_folder, peft), of_gguf = gguf_adapter(entry.path(), gguf);
    if (name.starts_with("falcon_h1")) {
      EXPECT_NE(load_message(entry.path(), {of_peft}).find("--lora: such adapters do not fit this model"),
                std::string::npos);
      EXPECT_NE(load_message(of_folder, {of_gguf}).find("--lora: such adapters do not fit this model"),
                std::string::npos);
      continue;
    }
    // Their folders store gate and up in one tensor, or more.
    if (name.starts_with("granite_") && name != "granite_moe") {
      EXPECT_NE(load_message(entry.path(), {of_peft}).find(".lora_"), std::string::npos);
      EXPECT_NE(load_message(of_folder, {of_gguf}).find(".lora_"), std::string::npos);
      EXPECT_EQ(load_message(of_folder, {of_peft}) + load_message(entry.path(), {of_gguf}), "");
      continue;
    }
    std::vector<float> plain;
    logits_of(of_folder, Quant::none, ids, &plain);
    for (const std::string& adapter : {of_peft, of_gguf}) {
      std::vector<float> folder, file;
      logits_of(of_folder, Quant::none, ids, &folder, {adapter});
      logits_of(entry.path(), Quant::none, ids, &file, {adapter});
      EXPECT_GT(largest_difference(folder, plain), 0.0f);
      // BitNet's file holds rounded values, to which the change is added.
      const float tolerance = name == "bitnet_divided" ? 0.05f : kTolerances.contains(name) ? 1e-4f : 0.0f;
      EXPECT_LE(largest_difference(file, folder), tolerance) << adapter;
    }
  }
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
      const float exact = group.scale * static_cast<float>(codes[i]) + group.minimum;
      ASSERT_LE(codes[i], 15);
      if (!std::isfinite(values[i])) continue;
      const float size = std::abs(group.scale) * 15.0f + std::abs(group.minimum);
      ASSERT_LE(std::abs(exact - values[i]), 1e-6f * size) << i;
    }
    ++kept;
  }
  EXPECT_EQ(kept, 3u);
  EXPECT_EQ(kept_format(DType::q4_0), Format::w4);
  EXPECT_EQ(kept_format(DType::q4_k), Format::w4z);
  EXPECT_EQ(kept_format(DType::q6_k), std::nullopt);
}

TEST(Gguf, TheModeFollowsTheBitsOfTheFile) {
  EXPECT_EQ(default_quant(gguf_of("llama")), Quant::w8a8);
  GgufFile gguf;
  gguf.tensors = {{"token_embd.weight", DType::f32, {8, 32}, nullptr, 8 * 128},
                  {"blk.0.attn_q.weight", DType::q4_0, {8, 32}, nullptr, 8 * 18},
                  {"blk.0.attn_norm.weight", DType::f32, {32}, nullptr, 128}};
  EXPECT_EQ(bits_per_weight(gguf), 8.0 * 144 / 256);
}

}  // namespace
}  // namespace pinion
