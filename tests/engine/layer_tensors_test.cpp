#include "loader/config/layer_tensors.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/runtime/load.h"
#include "loader/config/config_parts.h"
#include "tests/engine/families.h"

namespace pinion {
namespace {

// hidden 4, 2 heads and 1 kv head of 2, intermediate 6, vocabulary 10, 1 layer, by hand.
TEST(LayerTensors, SmallModel) {
  ModelConfig c;
  c.layers = 1, c.hidden_size = 4;
  c.layer = {{.heads = 2, .kv_heads = 1, .head_dim = 2, .value_dim = 2, .mlp_size = 6}};
  c.vocab_size = 10;
  c.qkv_bias = true;
  c.branch_scale = 0.5f;
  c.o_bias = true;
  c.names = {{"q", "l.{}.q"},       {"k", "l.{}.k"},       {"v", "l.{}.v"},
             {"o", "l.{}.o"},       {"gate", "l.{}.gate"}, {"up", "l.{}.up"},
             {"down", "l.{}.down"}, {"head", "head"},      {"attention_norm", "l.{}.norm"}};
  const std::vector<MatrixTensor> matrices = layer_matrices(c, 0);
  ASSERT_EQ(matrices.size(), 7u);  // q, k, v, o, gate, up, down
  EXPECT_EQ(matrices[0].module(), "l.0.q");
  EXPECT_EQ(matrices[0].n, 4);
  EXPECT_EQ(matrices[1].n, 2);
  EXPECT_EQ(matrices[3].role, MatrixRole::o);
  EXPECT_EQ(matrices[3].bias_scale, 0.5f) << "branch_scale applies to the bias";
  EXPECT_EQ(matrices[0].bias_scale, 1.0f);
  EXPECT_EQ(matrices[6].n, 4);
  EXPECT_EQ(matrices[6].k, 6);
  const std::vector<VectorTensor> vectors = layer_vectors(c, 0);
  ASSERT_EQ(vectors.size(), 1u);
  EXPECT_EQ(vectors[0].name, "l.0.norm.weight");
  // Embedding and head 40 each, final norm 4, norm 4, q 16 + 4, k and v 8 + 2 each, o 16 + 4, mlp 3 * 24.
  EXPECT_EQ(count_parameters(c).all, 40 + 40 + 4 + 4 + 20 + 10 + 10 + 20 + 72);
  EXPECT_EQ(active_parameters(c), count_parameters(c).all);
  c.tied_head = true;
  EXPECT_EQ(count_parameters(c).all, 40 + 4 + 4 + 20 + 10 + 10 + 20 + 72);
  c.names["gate"] = "", c.norm_bias = true;
  EXPECT_EQ(layer_matrices(c, 0).size(), 6u);
  EXPECT_EQ(layer_vectors(c, 0)[1].name, "l.0.norm.bias");
  EXPECT_EQ(count_parameters(c).all, 40 + 8 + 8 + 20 + 10 + 10 + 20 + 48)
      << "an mlp of two matrices, norms with a bias";
  c.head_bias = true, c.logit_scale = 0.25f;
  EXPECT_EQ(count_parameters(c).all, 40 + 10 + 8 + 8 + 20 + 10 + 10 + 20 + 48);
  EXPECT_EQ(head_matrix(c).bias_scale, 0.25f) << "logit_scale applies to the bias";
  c.names["mlp_norm"] = "l.{}.norm";
  EXPECT_EQ(layer_vectors(c, 0).size(), 4u);
  c.shared_norm = true;
  EXPECT_EQ(layer_vectors(c, 0).size(), 2u) << "one norm for both branches";
  c.attention_gate = true;
  EXPECT_EQ(layer_matrices(c, 0)[0].n, 8) << "a gate for each query";
}

// 2 heads of 4 in one tensor; each head has rows of q, k and v.
TEST(LayerTensors, FusedQkvByHead) {
  ModelConfig c;
  c.layers = 1, c.hidden_size = 8;
  c.layer = {{.heads = 2, .kv_heads = 2, .head_dim = 4, .value_dim = 4, .mlp_size = 6}};
  c.qkv_by_head = true;
  c.names = {{"q", "l.{}.qkv"}, {"k", "l.{}.qkv"}, {"v", "l.{}.qkv"}};
  const std::vector<MatrixTensor> matrices = layer_matrices(c, 0);
  const std::vector<int64_t> seventh = {14, 18, 22};  // row 6: the third row of head 1
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(matrices[i].order.rows, matrices[i].n);
    EXPECT_EQ(matrices[i].order.file_row(6), seventh[i]);
  }
}

// 4 heads of 2 in two blocks, each with its queries, values and keys; a slice of the last head.
TEST(LayerTensors, FusedQkvByBlocks) {
  ModelConfig c;
  c.layers = 1, c.hidden_size = 8;
  c.layer = {{.heads = 4, .kv_heads = 4, .head_dim = 2, .value_dim = 2, .mlp_size = 6}};
  c.ropes.resize(1);
  c.qkv_by_head = true, c.qkv_blocks = 2;
  c.names = {{"q", "l.{}.qkv"}, {"k", "l.{}.qkv"}, {"v", "l.{}.qkv"}};
  const std::vector<MatrixTensor> matrices = layer_matrices(c, 0);
  const int64_t first[] = {0, 8, 4};  // q, k, v
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(matrices[i].order.file_row(3), first[i] + 3);
    EXPECT_EQ(matrices[i].order.file_row(4), first[i] + 12) << "the second block";
    EXPECT_EQ(matrices[i].order.slice(6, 2).file_row(1), first[i] + 15);
  }
}

// 2 heads with 2 rotated and 4 unrotated elements of keys and 3 of values; latents of 5 and 7.
TEST(LayerTensors, LatentAttention) {
  ModelConfig c;
  c.layers = 1, c.hidden_size = 8;
  c.layer = {{.heads = 2, .kv_heads = 1, .head_dim = 7, .value_dim = 5, .latent_values = 3, .mlp_size = 6}};
  c.ropes.resize(1);
  c.ropes[0].dims = 2;
  c.rope_interleaved = true;
  c.latent = {.rank = 5, .query_rank = 7, .rope_dims = 2, .nope_dims = 4};
  c.names = {{"q_a", "l.{}.q_a"},   {"q_a_norm", "l.{}.q_norm"},   {"q_b", "l.{}.q_b"}, {"kv_a", "l.{}.kv_a"},
             {"kv_b", "l.{}.kv_b"}, {"kv_a_norm", "l.{}.kv_norm"}, {"o", "l.{}.o"},     {"gate", "l.{}.gate"},
             {"up", "l.{}.up"},     {"down", "l.{}.down"}};
  const std::vector<MatrixTensor> matrices = layer_matrices(c, 0);
  ASSERT_EQ(matrices.size(), 12u);  // q_a, kv_a, k_rope, q, o, gate, up, down, and k, v of two heads
  const int64_t shapes[][2] = {{7, 8}, {5, 8}, {2, 8}, {12, 7}, {8, 6}, {6, 8},
                               {6, 8}, {8, 6}, {5, 4}, {3, 5},  {5, 4}, {3, 5}};
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(matrices[i].n, shapes[i][0]) << i;
    EXPECT_EQ(matrices[i].k, shapes[i][1]) << i;
  }
  EXPECT_EQ(matrices[1].module(), matrices[2].module()) << "rows of one tensor";
  const auto stored = [&](size_t i) {
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < matrices[i].n; ++row) rows.push_back(matrices[i].order.file_row(row));
    return rows;
  };
  EXPECT_EQ(stored(3), (std::vector<int64_t>{4, 5, 0, 1, 2, 3, 10, 11, 6, 7, 8, 9}));
  int64_t rows = 0;
  for (size_t i = 8; i < 12; ++i) {
    EXPECT_EQ(matrices[i].head, i < 10 ? 0 : 1);
    EXPECT_EQ(matrices[i].expert, kNoExpert);
    EXPECT_EQ(matrices[i].transposed, i % 2 == 0) << "keys, whose queries are projected";
    EXPECT_EQ(matrices[i].module(), "l.0.kv_b");
    rows += matrices[i].file_rows();
  }
  EXPECT_EQ(rows, 2 * (4 + 3));
  const Shares second = {.rank = 1, .ranks = 2};
  EXPECT_EQ(own_rows(c, matrices[3], second).first, 6) << "queries are divided by head";
  EXPECT_EQ(own_rows(c, matrices[8], second).count, 0) << "the first board's head";
  EXPECT_EQ(own_rows(c, matrices[11], second).count, 3);
  const std::vector<VectorTensor> vectors = layer_vectors(c, 0);
  ASSERT_EQ(vectors.size(), 2u);
  EXPECT_EQ(vectors[0].n, 7);
  EXPECT_EQ(vectors[1].name, "l.0.kv_norm.weight");
  c.latent.query_rank = 0, c.names["q"] = "l.{}.q";
  const std::vector<MatrixTensor> without_latent = layer_matrices(c, 0);
  ASSERT_EQ(without_latent.size(), 11u);
  EXPECT_EQ(without_latent[2].role, MatrixRole::q);
  EXPECT_EQ(without_latent[2].k, 8);
  EXPECT_EQ(layer_vectors(c, 0).size(), 1u);
}

// 2 key heads, each with 3 rows of q, 3 of k, and for its 2 value heads 4 of v and 4 of z; in another tensor 2 of b
// and 2 of a.
TEST(LayerTensors, FusedDeltaByKeyHead) {
  ModelConfig c;
  c.layers = 1, c.hidden_size = 8;
  c.layer = {{.attends = false, .recurrent = true, .heads = 2, .kv_heads = 2, .head_dim = 4, .mlp_size = 6}};
  c.recurrence = {.key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 2, .taps = 4, .by_key_head = true};
  c.names = {{"state_qkv", "l.{}.qkvz"}, {"state_z", "l.{}.qkvz"}, {"state_b", "l.{}.ba"}, {"state_a", "l.{}.ba"}};
  const std::vector<MatrixTensor> matrices = layer_matrices(c, 0);
  ASSERT_EQ(matrices.size(), 4u);
  const RowOrder &qkv = matrices[0].order, &z = matrices[1].order, &b = matrices[2].order, &a = matrices[3].order;
  EXPECT_EQ(qkv.rows, 20);
  const std::vector<int64_t> rows = {0, 4, 6, 9, 12, 15, 16, 19}, stored = {0, 15, 3, 17, 6, 9, 20, 23};
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(qkv.file_row(rows[i]), stored[i]) << rows[i];
  EXPECT_EQ(z.file_row(0), 10);
  EXPECT_EQ(z.file_row(4), 24);
  EXPECT_EQ(b.file_row(2), 4);
  EXPECT_EQ(a.file_row(1), 3);
  c.recurrence.by_key_head = false;
  for (const MatrixTensor& one : layer_matrices(c, 0)) EXPECT_TRUE(one.order.is_identity());
}

// Every role has a row, and the roles of a stage are consecutive.
TEST(LayerTensors, EveryRoleHasARow) {
  std::vector<Stage> stages(kMatrixRoles, Stage::final_norm);
  std::set<std::pair<std::string_view, int>> places;
  for (const MatrixRow& row : matrix_rows()) {
    if (static_cast<size_t>(row.role) < kMatrixRoles) stages[static_cast<size_t>(row.role)] = row.stage;
    places.emplace(row.key, static_cast<int>(row.role));
  }
  EXPECT_EQ(places.size() + 2, matrix_rows().size()) << "state_z and state_b have two rows";
  for (size_t role = 0; role < kMatrixRoles; ++role) {
    EXPECT_NE(stages[role], Stage::final_norm) << role;
    const RoleRange range = roles_of(stages[role]);
    EXPECT_TRUE(role >= range.first && role < range.first + range.count) << role;
    EXPECT_EQ(range.count, static_cast<size_t>(std::ranges::count(stages, stages[role]))) << role;
  }
  std::set<VectorRole> vectors;
  for (const VectorRow& row : vector_rows()) vectors.insert(row.role);
  EXPECT_EQ(vectors.size() + 5, vector_rows().size()) << "state_rate has three rows, three norms have two";
  EXPECT_EQ(vectors.size(), kVectorRoles);
}

// The keys of `modules` in all families are those of the tables and a few others; none of the tables' keys is unused.
TEST(LayerTensors, KeysOfTheFamilies) {
  std::set<std::string_view> unused,
      known = {"embedding",         "final_norm",         "layer_embedding", "layer_input_norm", "stacked_gate_up",
               "stacked_down",      "mtp_embedding_norm", "mtp_hidden_norm", "mtp_layer",        "mtp_norm",
               "parallel_mlp_norm", "positions",          "embedding_norm",  "head_norm",        "o_bias"};
  for (const MatrixRow& row : matrix_rows()) known.insert(row.key);
  for (const VectorRow& row : vector_rows()) known.insert(row.key);
  unused = known;
  std::vector<Family> families;
  ASSERT_EQ(read_families(family_texts(), &families).message(), "");
  for (const Family& family : families) {
    const Json& modules = family.description["modules"];
    for (const auto& [key, name] : modules.items()) {
      EXPECT_TRUE(known.contains(key)) << family.name << ": " << key;
      unused.erase(key);
    }
    const Json recurrence = family.description.value("recurrence", Json::object());
    if (recurrence.value("alone", false)) continue;  // neither attention nor an mlp
    const bool has_experts = modules.contains("router"), is_latent = modules.contains("kv_a");
    for (const char* key :
         {"embedding", "final_norm", "head", "q", "o", is_latent ? "kv_b" : "k", is_latent ? "kv_a_norm" : "v",
          has_experts ? "expert_up" : "up", has_experts ? "expert_down" : "down"}) {
      EXPECT_TRUE(modules.contains(key)) << family.name << " has no " << key;
    }
  }
  EXPECT_TRUE(unused.empty()) << *unused.begin();
}

// The list accounts for every element of the file, for all families.
TEST(LayerTensors, MatchTheTensorsOfEachFamily) {
  for (const std::string& family : family_names()) {
    const std::filesystem::path folder = kFamilyFolders / family;
    ModelConfig config;
    ASSERT_EQ(read_model_config(folder, &config).message(), "");
    if (config.quantization || config.experts.fused) continue;  // scales and other tensors
    Checkpoint checkpoint;
    ASSERT_EQ(open_checkpoint(folder, &checkpoint).message(), "");
    ASSERT_EQ(select_tensors(config.tensors, &checkpoint).message(), "");
    int64_t elements = 0;
    for (const TensorView& tensor : checkpoint.tensors) {
      if (tensor.name.find(".lora_") == std::string::npos) elements += tensor.elements();  // a part of weights
    }
    if (config.tied_head && checkpoint.find(config.name("head") + ".weight")) {
      elements -= config.vocab_size * config.hidden_size;
    }
    EXPECT_EQ(count_parameters(config).all, elements) << folder;
  }
}

// Every matrix and vector of the list has its own member in the model, and no other member has weights.
TEST(LayerTensors, MapToDistinctMembers) {
  for (const char* name : {"families/llama",
                           "families/qwen3_moe_mixed",
                           "families/qwen3_5",
                           "families/gpt_oss",
                           "families/apertus",
                           "families/nemotron_bias",
                           "families/bitnet",
                           "families/qwen2_moe",
                           "families/glm4_moe",
                           "families/qwen3_5_moe",
                           "families/phi",
                           "families/cohere_qk_norm",
                           "families/stablelm_parallel",
                           "families/gpt_neox",
                           "families/lfm2_layer_types",
                           "families/lfm2_moe",
                           "families/granite_hybrid_moe",
                           "families/falcon_h1_norm",
                           "families/nemotron_h",
                           "families/nemotron_h_moe",
                           "families/qwen3_next",
                           "families/deepseek_v2",
                           "families/minicpm3",
                           "families/gemma3n",
                           "families/gemma3n_streams",
                           "families/gemma4",
                           "families/gemma4_e2b",
                           "families/gemma4_moe",
                           "families/falcon_new",
                           "families/afmoe",
                           "families/gpt2",
                           "families/bloom",
                           "families/lfm3",
                           "families/laguna",
                           "families/kimi_linear",
                           "families/bailing_hybrid",
                           "families/olmo_hybrid",
                           "families/zamba2",
                           "families/recurrent_gemma"}) {
    std::unique_ptr<Model> model;
    const std::string folder = PINION_TEST_DATA "/" + std::string(name);
    ASSERT_EQ(load_model(folder, {.quant = Quant::w8a8}, &model).message(), "");
    std::set<const void*> places;
    int64_t bytes = 0, expert_bytes = 0;
    const auto add = [&](const MatrixTensor& tensor) {
      const Matrix& m = matrix_of(*model, tensor).weight;
      EXPECT_TRUE(places.insert(&m).second) << folder;
      EXPECT_EQ(m.n, tensor.n) << tensor.module();
      EXPECT_EQ(m.k, tensor.k) << tensor.module();
      EXPECT_TRUE(!tensor.is_exact || m.format == Format::bf16) << tensor.module();
      bytes += packed_bytes(m.format, m.n, m.k);
      if (tensor.expert != kNoExpert) expert_bytes += packed_bytes(m.format, m.n, m.k);
    };
    for (int64_t i = 0; i < model->config.layers; ++i) {
      Layer& layer = model->layers[static_cast<size_t>(i)];
      for (const MatrixTensor& tensor : layer_matrices(model->config, i)) add(tensor);
      for (const VectorTensor& tensor : layer_vectors(model->config, i)) {
        const Vector& vector = layer[tensor.role];
        EXPECT_TRUE(places.insert(tensor.is_bias ? vector.bias : vector.weight).second) << tensor.name;
      }
      const auto own = static_cast<size_t>(
          std::ranges::count_if(layer.matrix, [](const Linear& linear) { return linear.weight.n > 0; }));
      const size_t of_expert = model->config.name("expert_gate").empty() ? 2 : 3;
      const size_t others = of_expert * layer.experts.size() + 2 * layer.latent_heads.size();
      EXPECT_EQ(own + others, layer_matrices(model->config, i).size());
    }
    for (const MatrixTensor& tensor : model_matrices(model->config)) add(tensor);
    add(head_matrix(model->config));
    EXPECT_EQ(bytes, model->weight_bytes);
    EXPECT_EQ(expert_bytes, model->expert_bytes);
  }
}

}  // namespace
}  // namespace pinion
