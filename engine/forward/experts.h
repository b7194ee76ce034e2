// Mixture of experts: a router chooses some experts for every token; the sum of their weighted outputs is added to the
// residual stream.
#pragma once

#include "engine/forward/pass.h"

namespace pinion {

// --- Routing. The choice for one token depends on no other token.

// The chosen experts of each token, ascending, and the weights of their outputs.
struct Choices {
  std::vector<int32_t> experts;  // [tokens][per_token]
  std::vector<float> weights;    // [tokens][per_token]
  std::vector<float> shared;     // [tokens] weight of the shared expert's output
};

struct RoutingRule {
  const ExpertsConfig& config;
  const float* correction = nullptr;  // [experts] added to the scores to choose experts, not to weigh them; or null
  const float* scales = nullptr;      // [experts] further factors of the weights; or null
};

// Chooses the experts.size() experts with the largest logits (or corrected scores); ties, of groups too, go to the
// lower index. The weight of an expert is its score, 1 / (1 + exp(-logit)) or exp(logit), times `scale`, divided by the
// sum of the chosen scores if `normalised`. Else exponentials are divided by the sum of all exponentials, and sigmoids
// are not divided. Sums are computed in double in ascending order of experts. experts.size() <= logits.size(), and 2
// with `near`.
void choose_experts(std::span<const float> logits, const RoutingRule& rule, std::span<int32_t> experts, float* weights);

// The entries of ExpertGroups that belong to one expert: [first, first + rows).
struct ExpertRows {
  int32_t expert;
  int32_t first;
  int32_t rows;
};

// Choices ordered by expert. An entry is one chosen expert of one token.
struct ExpertGroups {
  std::vector<ExpertRows> experts;  // chosen by any token, ascending
  std::vector<int32_t> tokens;      // [entries] ascending within an expert
  std::vector<float> weights;       // [entries]
  std::vector<int32_t> next;        // [experts] scratch

  // Memory for at most `choices` entries.
  void make(ScratchSizer* sizer, int64_t choices, int64_t expert_count);
};

// Groups the choices of the first `tokens` tokens, per_token each.
void group_by_expert(const Choices& choices, int64_t tokens, int64_t per_token, ExpertGroups* out);

// --- The layer

// The experts' sum goes to Activations::branch, because it is normed, or because attention still reads the stream.
inline bool sums_experts(const ModelConfig& config, const Layer& layer) {
  return layer[VectorRole::mlp_out_norm].weight || (config.parallel_branches && layer.has_experts);
}

// Scratch of one worker.
struct LocalExpertScratch {
  Choices choices;      // of a single token
  ExpertGroups groups;  // of all tokens of the pass
};

// Empty if the model has no experts.
struct ExpertScratch {
  std::vector<float> router;         // [M][experts] logits
  std::vector<float> shared_weight;  // [M] logit of the shared expert's weight
  std::vector<float> sums;           // [M][hidden] outputs of experts beside an mlp
  Choices choices;                   // of several tokens
  std::vector<LocalExpertScratch> workers;
};

// For passes of at most `tokens`. Enlarges buffers of `activations`, since each row is multiplied by several experts.
void make_expert_scratch(const Model& model, const Kernels& kernels, int64_t tokens, ScratchSizer* sizer,
                         Activations* activations, ExpertScratch* out);

// Computes the logits of the router and of the shared expert's weight. y: the input of the mlp; has y.values.
void route(Worker& worker, const Pass& pass, ExpertScratch& scratch, const Layer& layer, const Input& y);

// x += weight * the shared expert's output, which is in Activations::branch; then
// x += branch_scale * sum of weight * down(activation(gate y, up y)) over the token's experts in ascending order.
// y: as for route(), used for a single token. Several tokens, and inputs that the router scales, are normed again from
// x for each of their experts.
// index: of the layer. Experts beside an mlp (with an expert_norm) write their sum to ExpertScratch::sums instead of
// adding it to x.
void add_experts(Worker& worker, const Pass& pass, ExpertScratch& scratch, const Layer& layer, const Input& y,
                 int64_t index);

}  // namespace pinion
