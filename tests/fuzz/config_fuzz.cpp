// Arbitrary bytes as config.json and generation_config.json: refused, or consistent values.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/session/generation_config.h"
#include "loader/config/model_config.h"
#include "tests/fuzz/check.h"

using pinion::failed;
using pinion::require;

static void check_model(std::string_view text) {
  pinion::ModelConfig config;
  if (failed(pinion::parse_model_config(text, "config.json", &config))) return;
  require(config.heads > 0 && config.kv_heads > 0 && config.heads % config.kv_heads == 0);
  require(config.head_dim > 0 && config.head_dim % 2 == 0 && config.value_dim() > 0);
  if (const pinion::LatentConfig& latent = config.latent; latent.rank > 0) {
    require(config.kv_heads == config.heads && latent.query_rank >= 0);
    require(latent.rope_dims > 0 && latent.rope_dims < config.head_dim);
  }
  require(config.layers > 0 && config.hidden_size > 0 && config.intermediate_size > 0);
  require(config.vocab_size > 0 && config.max_positions > 0);
  if (const pinion::ExpertsConfig& experts = config.experts; experts.count > 0) {
    require(experts.per_token > 0 && experts.per_token <= experts.count && experts.inner_size > 0);
    require(static_cast<int64_t>(experts.layers.size()) == config.layers);
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
  require(static_cast<int64_t>(config.windows.size()) == config.layers);
  for (const int64_t window : config.windows) require(window >= 0);
  require(static_cast<int64_t>(config.layer_ropes.size()) == config.layers);
  require(static_cast<int64_t>(config.recurrent.size()) == config.layers);
  require(config.attends.size() == config.recurrent.size() && attention_layers(config) > 0);
  require(config.mlps.empty() || config.mlps.size() == config.recurrent.size());
  if (recurrent_layers(config) > 0) {
    const pinion::Recurrence& r = config.recurrence;
    require(!r.has_heads() || (r.key_heads > 0 && r.value_heads % r.key_heads == 0));
    require(r.norm_groups == 0 || r.value_width() % r.norm_groups == 0);
    require(config.recurrence.channels() > 0 && config.recurrence.taps > 0 &&
            config.recurrence.taps <= pinion::kMaxConvTaps);
  }
  for (int64_t layer = 0; layer < static_cast<int64_t>(config.kv_layers.size()); ++layer) {
    const int64_t owner = config.kv_layers[static_cast<size_t>(layer)];
    require(owner >= 0 && owner <= layer && config.owns_kv(owner));
  }
  require(config.kv_layers.empty() || static_cast<int64_t>(config.kv_layers.size()) == config.layers);
  require(config.gate_sparsity.empty() || static_cast<int64_t>(config.gate_sparsity.size()) == config.layers);
  require(config.intermediate_sizes.empty() || static_cast<int64_t>(config.intermediate_sizes.size()) == config.layers);
  require(config.altup.inputs <= pinion::kMaxAltupInputs);
  require(config.altup.inputs == 0 || config.altup.active < config.altup.inputs);
  for (const int32_t rope : config.layer_ropes) {
    require(rope >= pinion::kNoRope && rope < static_cast<int64_t>(config.ropes.size()));
  }
  for (const pinion::Rope& rope : config.ropes) {
    require(rope.theta >= 1.0 && rope.factor > 0.0);
    require(rope.dims >= 2 && rope.dims % 2 == 0 && rope.dims <= config.head_dim);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  check_model(text);
  pinion::GenerationDefaults defaults;
  (void)failed(pinion::parse_generation_config(text, "generation_config.json", &defaults));
  return 0;
}
