// GGUF files of the models in tests/data/families, and what tests compare of them with their folders.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/runtime/load.h"
#include "engine/session/session.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"
#include "tests/loader/gguf_files.h"
#include "tests/temp_folder.h"

namespace pinion {

namespace fs = std::filesystem;

inline const fs::path kData = PINION_TEST_DATA;

inline std::string gguf_of(const std::string& name) { return kData / "gguf/families" / (name + ".gguf"); }

// The logits of all tokens.
inline void logits_of(const std::string& path, Quant quant, const std::vector<int32_t>& ids, std::vector<float>* out,
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

inline float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = a.size() == b.size() ? 0.0f : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// The folder of a file: a copy of the model's in which fields that a GGUF file cannot hold have llama.cpp's values, as
// in the script that wrote the file.
inline std::string folder_of(const std::string& name, const Json& changes, const TempFolder& copy) {
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

// Numbers that the converter rounds, or adds in another order: rates of Qwen 3.5's states, heads by tiles; BitNet's
// scales.
inline const std::map<std::string, float> kTolerances = {{"qwen3_5_value_heads", 1e-4f}, {"bitnet_divided", 1e-6f}};

inline std::string load_message(const std::string& path, const std::vector<std::string>& lora = {}) {
  std::unique_ptr<Model> model;
  return load_model(path, {.quant = Quant::none, .lora = lora}, &model).message();
}

// The metadata of a small model, without weights except for an embedding of zeros.
inline GgufWriter small_model(const std::string& architecture, uint32_t layers, uint32_t width, uint32_t heads) {
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

}  // namespace pinion
