// Hand-made Qwen3.5 models with an MTP layer that is always right. Embeddings are one-hot and layers add nothing, so
// the hidden state of a token is its one-hot vector, and the head determines the next token.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loader/config/layer_tensors.h"
#include "loader/config/model_config.h"
#include "loader/files/mapped_file.h"
#include "tests/loader/make_files.h"

namespace pinion {

constexpr int64_t kMadeHidden = 64, kMadeVocab = 40;  // the norm of a one-hot vector is exact: sqrt(64) is 8
constexpr int32_t kMadeFirst = 3;                     // first token of the cycle

inline int32_t made_next(int32_t id) { return id + 1 < kMadeVocab ? std::max(id + 1, kMadeFirst) : kMadeFirst; }

// Writes a checkpoint with all tensors of a config and its MTP layer. fill: sets values that are not zero.
using FillTensor = std::function<void(const std::string& name, std::vector<float>& values)>;
inline void write_made(const TempFolder& folder, const std::string& config_text, const FillTensor& fill) {
  folder.write("config.json", config_text);
  ModelConfig model, layer;
  ASSERT_EQ(read_model_config(folder.path, &model).message(), "");
  ASSERT_EQ(mtp_config(model, &layer).message(), "");
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (const int64_t size : shape) n *= size;
    std::vector<float> values(n);
    fill(name, values);
    const size_t first = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {first, data.size()}}};
  };
  const auto add_matrix = [&](const MatrixTensor& m) { add(m.module() + ".weight", {m.n, m.k}); };
  const auto add_model = [&](const ModelConfig& c) {
    for (int64_t i = 0; i < c.layers; ++i) {
      for (const MatrixTensor& m : layer_matrices(c, i)) add_matrix(m);
      for (const VectorTensor& v : layer_vectors(c, i)) {
        const bool is_conv = v.role == VectorRole::state_conv;
        add(v.name,
            is_conv ? std::vector<int64_t>{c.recurrence.channels(), 1, c.recurrence.taps} : std::vector<int64_t>{v.n});
      }
    }
    add(c.name("final_norm") + ".weight", {c.hidden_size});
  };
  add(model.name("embedding") + ".weight", {model.vocab_size, model.hidden_size});
  if (!model.tied_head) add_matrix(head_matrix(model));
  add_model(model);
  add_model(layer);
  add_matrix(mtp_matrix(layer));
  for (const std::string& norm : {layer.name("mtp_embedding_norm"), layer.name("mtp_hidden_norm")}) {
    add(norm + ".weight", {layer.hidden_size});
  }
  folder.write("model.safetensors", safetensors_text(header.dump(), data));
}

inline nlohmann::json made_config() {
  std::string text;
  EXPECT_FALSE(read_text_file(PINION_TEST_DATA "/families/qwen3_5_mtp/config.json", 1 << 20, &text));
  nlohmann::json config = nlohmann::json::parse(text);
  config["hidden_size"] = kMadeHidden;
  config["vocab_size"] = kMadeVocab;
  config["tie_word_embeddings"] = false;
  config["rms_norm_eps"] = 1e-12;
  return config;
}

// Input from which the MTP layer predicts.
enum class MadeFrom {
  token,   // the head's rows are random: the token determines the distribution of its successor
  hidden,  // tokens form a cycle: the prediction is the second successor of the token in the hidden state
};

inline void write_made(const TempFolder& folder, MadeFrom from) {
  write_made(folder, made_config().dump(), [&](const std::string& name, std::vector<float>& values) {
    const auto at = [&](int64_t row, int64_t column, int64_t columns) -> float& {
      return values[row * columns + column];
    };
    for (int32_t id = 0; id < kMadeVocab; ++id) {
      if (name == "model.embed_tokens.weight") at(id, id, kMadeHidden) = 1;
      if (name == "lm_head.weight") at(made_next(id), id, kMadeHidden) = 1;
      if (name == "mtp.fc.weight" && from == MadeFrom::token) at(id, id, 2 * kMadeHidden) = 1;
      if (name == "mtp.fc.weight" && from == MadeFrom::hidden) at(made_next(id), kMadeHidden + id, 2 * kMadeHidden) = 1;
    }
    if (name != "lm_head.weight" || from != MadeFrom::token) return;
    uint32_t bits = 1;
    for (float& value : values) {
      bits = bits * 1664525u + 1013904223u;
      value = static_cast<float>(bits >> 24) / 256 - 0.5f;
    }
  });
}

}  // namespace pinion
