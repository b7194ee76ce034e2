// Numbers of parameters, from the lists of a model's tensors.
#include "loader/config/layer_tensors.h"

namespace pinion {
namespace {

// Parameters of the per-layer embeddings of all layers.
int64_t layer_embeddings(const ModelConfig& c) { return c.layer_input.vocab_size * c.layers * c.layer_input.size; }

}  // namespace

int64_t vector_parameters(const ModelConfig& config) {
  int64_t count = config.layer_input.size;
  const bool is_one_norm = config.parallel_branches && config.name("mlp_norm") == config.name("attention_norm");
  const int64_t norms = 1 + !config.name("embedding_norm").empty() + !config.name("head_norm").empty();
  if (config.norm_weights) count += norms * config.hidden_size * (config.norm_bias ? 2 : 1);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const VectorTensor& v : layer_vectors(config, layer))
      count += is_one_norm && v.role == VectorRole::mlp_norm ? 0 : v.n;
  }
  return count;
}

ParameterCounts count_parameters(const ModelConfig& config) {
  const int64_t embedding = (config.vocab_size + config.extra_rows) * config.hidden_size;
  ParameterCounts counts = {vector_parameters(config) + layer_embeddings(config), 0};
  counts.all += config.position_rows * config.hidden_size + (config.tied_head ? 0 : embedding);
  for (const MatrixTensor& matrix : all_matrices(config)) {
    const int64_t count = matrix.n * matrix.k + (matrix.has_bias ? matrix.n : 0);
    counts.all += count;
    if (matrix.expert != kNoExpert) counts.in_experts += count;
  }
  return counts;
}

int64_t active_parameters(const ModelConfig& config) {
  const ParameterCounts counts = count_parameters(config);
  return counts.all - layer_embeddings(config) - counts.in_experts + config.experts.max_active(counts.in_experts, 1);
}

}  // namespace pinion
