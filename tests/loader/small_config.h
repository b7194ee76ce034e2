// A small config.json of any architecture, for tests of single families.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loader/config/model_config.h"
#include "loader/files/json.h"
#include "tests/loader/by_layer.h"

namespace pinion {

using Windows = std::vector<int64_t>;
using Ropes = std::vector<int32_t>;

// `changes` overrides its fields.
inline std::string small(const char* architecture, const char* changes) {
  Json json = Json::parse(R"({"hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 4, "head_dim": 8,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512})");
  json["architectures"] = Json::array({architecture});
  json.update(Json::parse(changes));
  return json.dump();
}

inline ModelConfig read(const char* architecture, const char* changes = "{}") {
  ModelConfig config;
  EXPECT_EQ(parse_model_config(small(architecture, changes), "config.json", &config).message(), "");
  return config;
}

inline std::string message(const char* architecture, const char* changes) {
  ModelConfig config;
  return parse_model_config(small(architecture, changes), "config.json", &config).message();
}

}  // namespace pinion
