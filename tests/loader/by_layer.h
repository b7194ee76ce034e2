// A field of all layers of a model.
#pragma once

#include <vector>

#include "loader/config/model_config.h"

namespace pinion {

template <class T>
std::vector<T> by_layer(const ModelConfig& config, T LayerConfig::* field) {
  std::vector<T> values;
  for (const LayerConfig& layer : config.layer) values.push_back(layer.*field);
  return values;
}

}  // namespace pinion
