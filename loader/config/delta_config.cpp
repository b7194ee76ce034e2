#include "loader/config/config_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/layout.h"

namespace pinion {
namespace {

void read_shape(JsonFields& file, GatedDelta* out) {
  out->key_heads = file.integer("linear_num_key_heads", {}, 1, kMaxK);
  out->value_heads = file.integer("linear_num_value_heads", {}, 1, kMaxK);
  out->key_dim = file.integer("linear_key_head_dim", {}, 1, kMaxHeadDim);
  out->value_dim = file.integer("linear_value_head_dim", {}, 1, kMaxHeadDim);
  out->taps = file.integer("linear_conv_kernel_dim", {}, 1, kMaxConvTaps);
  if (file.error) return;
  if (out->value_heads % out->key_heads != 0) {
    file.fail("linear_num_key_heads", "does not divide linear_num_value_heads", {},
              std::to_string(out->key_heads) + " and " + std::to_string(out->value_heads));
  }
  if (out->channels() > kMaxK) {
    file.fail("linear_num_value_heads", "linear attention too wide",
              "at most " + std::to_string(kMaxK) + " for queries, keys and values", std::to_string(out->channels()));
  }
}

}  // namespace

// layer_types says which layers attend; where that is absent, every full_attention_interval-th does.
void read_delta(JsonFields& family, JsonFields& file, ModelConfig* out) {
  out->recurrent.assign(static_cast<size_t>(out->layers), false);
  if (!family.boolean("gated_delta", false)) return;
  const int64_t interval = file.integer("full_attention_interval", {}, 1, kMaxLayers);
  const std::vector<std::string> types = file.texts("layer_types");
  if (!types.empty() && std::ssize(types) != out->layers) {
    return file.fail("layer_types", "wrong length", std::to_string(out->layers), std::to_string(types.size()));
  }
  for (size_t i = 0; i < out->recurrent.size(); i++) {
    if (types.empty()) {
      out->recurrent[i] = (static_cast<int64_t>(i) + 1) % interval != 0;
    } else if (types[i] == "linear_attention") {
      out->recurrent[i] = true;
    } else if (types[i] != "full_attention") {
      file.fail("layer_types", "unknown layer type", "linear_attention or full_attention", brief(types[i]));
    }
  }
  read_shape(file, &out->delta);
}

int64_t attention_layers(const ModelConfig& config) { return std::ranges::count(config.recurrent, false); }

}  // namespace pinion
