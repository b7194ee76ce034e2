// A layer in memory: its configuration and its packed weights. Read-only once loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/boards/exchange.h"
#include "engine/model/layer_tensors.h"
#include "kernels/layout.h"

namespace pinion {

// y = alpha W x + bias. `bias` is the file's bias times MatrixTensor::bias_scale, which covers the model's factors of
// the whole sum W x + bias: a multiplier of the output, branch_scale in the last matrix of a branch (unless a norm
// follows, whose output is scaled instead), logit_scale in the head.
struct Linear {
  Matrix weight;                // the rows of this board; n is 0 if it has none
  const float* bias = nullptr;  // [n] or null
  float alpha = 1;
  Division rows = {};  // of the whole matrix; count is 0 if the model has no such matrix
  int64_t first = 0;   // index in the whole matrix of the first row of `weight`
};

// Weights that are fp32 in every mode. Null: the layer has no such module, or the module no bias.
struct Vector {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

struct Expert {
  Linear matrix[3];  // gate, up, down; gate is empty in models without gates

  const Linear& operator[](MatrixRole role) const { return matrix[static_cast<size_t>(role) - kFirst]; }
  Linear& operator[](MatrixRole role) { return matrix[static_cast<size_t>(role) - kFirst]; }
  static constexpr auto kFirst = static_cast<size_t>(MatrixRole::gate);
};

struct Layer : LayerConfig {
  Linear matrix[kMatrixRoles];  // empty if the layer has none with this role
  Vector vector[kVectorRoles];
  std::vector<Expert> experts;                    // empty without experts
  int64_t slot = 0;                               // index of its keys and values in the KV cache
  int64_t state_slot = 0;                         // index of its state in RecurrentState
  const float* v_norm = nullptr;                  // [head_dim], for which files have no tensor
  std::vector<float> key_balance, query_balance;  // [kv_heads * head_dim] or empty, see balance_heads()
  std::optional<float> gate_cut;  // sparse gate: its outputs below mean + gate_cut * deviation of the row become zero

  const Linear& operator[](MatrixRole role) const { return matrix[static_cast<size_t>(role)]; }
  Linear& operator[](MatrixRole role) { return matrix[static_cast<size_t>(role)]; }
  const Vector& operator[](VectorRole role) const { return vector[static_cast<size_t>(role)]; }
  Vector& operator[](VectorRole role) { return vector[static_cast<size_t>(role)]; }
  // The matrices that a stage multiplies; those that the layer lacks have no rows.
  std::span<const Linear> of(Stage stage) const {
    const RoleRange roles = roles_of(stage);
    return std::span(matrix).subspan(roles.first, roles.count);
  }
};

// Weights of norms for which files have no tensor.
const float* ones();

// Sets the fields that follow from the config and the layer's index alone.
void init_layer(const ModelConfig& config, int64_t index, Layer* out);

// Balances keys and queries for a q8 cache. In some models the weights of the k norm, or those of the q norm, make a
// few channels hundreds of times larger than the others. One scale for all codes of a head then wastes bits. Keys times
// s and queries divided by s, per channel, have the same products. s = sqrt(query size / key size), with the sizes
// taken from the norms' weights, minimises the error of the products (Cauchy-Schwarz). The two channels of a rope pair
// share a factor. Does nothing without norms. tools/MEASURED.md has the effect on two trained models.
void balance_heads(const ModelConfig& config, Layer* layer);

// Balances layer `index`. Earlier layers must be balanced: a layer that reads another layer's keys copies its factors.
void balance_heads(const ModelConfig& config, int64_t index, std::vector<Layer>* layers);

}  // namespace pinion
