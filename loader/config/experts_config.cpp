#include "loader/config/config_parts.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/layout.h"

namespace pinion {
namespace {

// Which layers have experts: all of them, or by Qwen's rule every so-manieth that is not listed as one without.
std::vector<bool> layers_with_experts(std::string_view rule, JsonFields& file, int64_t layers) {
  std::vector<bool> with(static_cast<size_t>(layers), true);
  if (rule == "all") return with;
  const int64_t step = file.integer("decoder_sparse_step", {}, 1, kMaxLayers);
  const std::vector<int64_t> without = file.integers("mlp_only_layers", 0, kMaxLayers);
  for (int64_t i = 0; i < layers; i++) {
    with[static_cast<size_t>(i)] = (i + 1) % step == 0 && std::ranges::find(without, i) == without.end();
  }
  return with;
}

// Parts of a model that no expert is in, as the last of a module's names.
constexpr std::string_view kNotExperts[] = {"self_attn", "q_proj",  "k_proj",       "v_proj", "o_proj",
                                            "router",    "lm_head", "embed_tokens", "norm"};

}  // namespace

bool has_mxfp4_experts(JsonFields& family, JsonFields& quantization) {
  const bool is_fused = family.fields("experts").boolean("fused", false);
  return is_fused && quantization.text("quant_method", "") == "mxfp4";
}

Error read_mxfp4_experts(JsonFields& quantization, ExpertsConfig* out) {
  constexpr const char* kKept = "modules_to_not_convert";
  for (const std::string& name : quantization.texts(kKept)) {
    const std::string_view last = std::string_view(name).substr(name.rfind('.') + 1);  // npos + 1 is 0
    if (std::ranges::find(kNotExperts, last) == std::end(kNotExperts)) {
      quantization.fail(kKept, "may mean experts, of which all have to be MXFP4", {}, brief(name));
    }
  }
  quantization.boolean("dequantize", false);  // how transformers is to load it
  for (const std::string& name : quantization.unread()) quantization.fail(name, "not supported");
  out->mxfp4 = true;
  return quantization.error;
}

void read_experts(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields rules = family.fields("experts");
  if (rules.object.empty()) return;
  ExpertsConfig& experts = out->experts;
  // Transformers 5 writes num_local_experts for every family; older files have the name that theirs had before, as do
  // the family's defaults.
  const bool has_older = file.has("num_experts");
  const bool is_older = has_older && !file.has("num_local_experts");
  experts.count = file.integer(is_older ? "num_experts" : "num_local_experts", {}, 1, kMaxExperts);
  experts.per_token = file.integer("num_experts_per_tok", {}, 1, kMaxExperts);
  if (!file.error && experts.per_token > experts.count) {
    file.fail("num_experts_per_tok", "more than there are experts", "at most " + std::to_string(experts.count),
              std::to_string(experts.per_token));
  }
  experts.inner_size = file.integer(rules.text("size"), {}, 1, kMaxK);
  experts.router_bias = rules.boolean("router_bias", false);
  experts.fused = rules.boolean("fused", false);
  experts.stacked = rules.boolean("stacked", false);
  const std::string normalised = rules.text("normalised", "");
  experts.normalised = normalised.empty() || file.boolean(normalised);
  experts.layers = layers_with_experts(rules.text("layers"), file, out->layers);
  if (std::ranges::find(experts.layers, true) == experts.layers.end()) {
    file.fail("mlp_only_layers", "leaves no layer with experts");
  }
  if (!family.error) family.error = rules.error;
}

}  // namespace pinion
