// Arbitrary bytes as config.json and generation_config.json: refused, or consistent values.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/session/generation_config.h"
#include "loader/config/model_config.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"

using pinion::failed;
using pinion::require;

static void check_model(std::string_view text) {
  pinion::ModelConfig config;
  if (failed(pinion::parse_model_config(text, "config.json", &config))) return;
  require(config.layers > 0 && config.hidden_size > 0 && std::ssize(config.layer) == config.layers);
  for (const pinion::LayerConfig& layer : config.layer) {
    require(layer.heads > 0 && layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0);
    require(layer.head_dim > 0 && layer.head_dim % 2 == 0 && layer.value_dim > 0);
    require(layer.mlp_size > 0 && layer.window >= 0);
    require(layer.rope >= pinion::kNoRope && layer.rope < std::ssize(config.ropes));
    if (layer.rope >= 0) require(config.ropes[static_cast<size_t>(layer.rope)].dims <= layer.head_dim);
    if (layer.owns_kv()) continue;
    require(layer.kv_layer >= 0 && layer.kv_layer < &layer - config.layer.data());
    const pinion::LayerConfig& owner = config.layer[static_cast<size_t>(layer.kv_layer)];
    require(owner.owns_kv() && owner.kv_heads == layer.kv_heads && owner.head_dim == layer.head_dim);
  }
  if (const pinion::LatentConfig& latent = config.latent; latent.rank > 0) {
    require(config.layer[0].kv_heads == 1 && latent.query_rank >= 0 && latent.nope_dims > 0 && latent.rope_dims > 0);
    require(config.layer[0].is_latent() && config.layer[0].head_dim == latent.rank + latent.rope_dims);
  }
  require(config.vocab_size > 0 && config.max_positions > 0);
  if (const pinion::ExpertsConfig& experts = config.experts; experts.count > 0) {
    require(experts.per_token > 0 && experts.per_token <= experts.count && experts.inner_size > 0);
    require(experts.groups > 0 && experts.count % experts.groups == 0 && experts.groups_kept <= experts.groups);
    require(experts.per_token <= experts.count / experts.groups * experts.groups_kept);
    require(experts.group_best <= pinion::kMaxExpertGroups);
  }
  if (config.quantization) {
    require(!config.quantization->groups.empty());
    require(!config.quantization->by_tensors || config.quantization->groups.size() == 1);
    for (const auto& [targets, scheme] : config.quantization->groups) {
      require((scheme.bits == 4 || scheme.bits == 8) && scheme.group_size >= 0 && scheme.rows_per_scale > 0);
    }
  }
  require(attention_layers(config) > 0);
  if (recurrent_layers(config) > 0) {
    const pinion::Recurrence& r = config.recurrence;
    require(!r.has_heads() || (r.key_heads > 0 && r.value_heads % r.key_heads == 0));
    require(r.norm_groups == 0 || r.value_width() % r.norm_groups == 0);
    require(config.recurrence.channels() > 0 && config.recurrence.taps > 0 &&
            config.recurrence.taps <= pinion::kMaxConvTaps);
  }
  require(config.altup.inputs <= pinion::kMaxAltupInputs);
  require(config.altup.inputs == 0 || config.altup.active < config.altup.inputs);
  for (const pinion::Rope& rope : config.ropes) {
    require(rope.theta >= 1.0 && rope.factor > 0.0);
    require(rope.dims >= 2 && rope.dims % 2 == 0);
  }
}

FUZZ_TARGET(config) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  check_model(text);
  pinion::GenerationDefaults defaults;
  (void)failed(pinion::parse_generation_config(text, "generation_config.json", &defaults));
  return 0;
}
