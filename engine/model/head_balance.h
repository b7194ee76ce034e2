// Which channels of a head are large is known from its norms' weights: in some models a few hundred times the others in
// keys, and not in queries, or the other way round. One scale for all of a head's codes then wastes bits on what the
// other side hardly sees. Keys times s and queries by s have the same products; with s = sqrt(query's size / key's
// size) both get the same size, and the error of the products is least (Cauchy-Schwarz). The effect on two trained
// models is in tools/MEASURED.md.
#pragma once

#include <vector>

#include "engine/model/layer.h"
#include "loader/config/model_config.h"

namespace pinion {

// Fills in the layer's balance, if its heads have norms. The channels that rope turns into each other share a factor.
void balance_heads(const ModelConfig& config, Layer* layer);

// The same for one of a model's layers, when those before it have theirs: queries that read another layer's keys are
// balanced as that layer's.
void balance_heads(const ModelConfig& config, int64_t index, std::vector<Layer>* layers);

}  // namespace pinion
