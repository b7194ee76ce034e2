// LoRA adapters as GGUF files and as PEFT's folders, each for both kinds of models.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "loader/config/layer_tensors.h"
#include "loader/gguf/gguf.h"
#include "tests/engine/gguf_families.h"
#include "tests/loader/coded_checkpoint.h"

namespace pinion {
namespace {

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

TEST(GgufAdapters, AdaptersThatDoNotFitAreRefused) {
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
TEST(GgufAdapters, ConvertedAdaptersGiveTheLogitsOfTheirFolders) {
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

TEST(GgufAdapters, AdaptersOfFoldersFitFilesAndTheReverse) {
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

}  // namespace
}  // namespace pinion
