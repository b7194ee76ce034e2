#include "loader/config/config_parts.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/layout.h"

namespace pinion {
namespace {

// Which layers have experts: all of them, by Qwen's rule every so-manieth that is not listed as one without, or all but
// the first few. Those of which layer_types says it are known.
std::vector<bool> layers_with_experts(JsonFields& rules, JsonFields& file, int64_t layers) {
  const std::string rule = rules.text("layers");
  std::vector<bool> with(static_cast<size_t>(layers), true);
  if (rule == "all") return with;
  if (rule == "but_first") {
    std::fill_n(with.begin(), file.integer(rules.text("without", "first_k_dense_replace"), {}, 0, layers), false);
    return with;
  }
  const int64_t step = file.integer("decoder_sparse_step", {}, 1, kMaxLayers);
  const std::vector<int64_t> without = file.integers("mlp_only_layers", 0, kMaxLayers);
  for (int64_t i = 0; i < layers; i++) {
    with[static_cast<size_t>(i)] = (i + 1) % step == 0 && std::ranges::find(without, i) == without.end();
  }
  return with;
}

// A number that may be a list of as many layers' (Hunyuan), if it is the same for all.
int64_t same_everywhere(const std::string& field, JsonFields& file) {
  const std::vector<int64_t> values = file.integers(field, 1, kMaxExperts);
  if (values.empty()) return file.integer(field, {}, 1, kMaxExperts);
  if (std::ranges::count(values, values[0]) != std::ssize(values)) file.fail(field, "differs from layer to layer");
  return values[0];
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
  if (rules.boolean("may_be_none", false) && file.integer("num_local_experts", {}, 0, kMaxExperts) == 0) return;
  ExpertsConfig& experts = out->experts;
  const bool by_type = rules.text("layers") == "by_type";
  if (by_type && experts.layers.empty()) return;
  // Transformers 5 writes num_local_experts for every family; older files have the name that theirs had before, as do
  // the family's defaults.
  const std::string older = rules.text("count", "num_experts");
  const bool has_older = file.has(older);
  const bool is_older = has_older && !file.has("num_local_experts");
  experts.count = file.integer(is_older ? older : "num_local_experts", {}, 1, kMaxExperts);
  experts.per_token = same_everywhere(rules.text("per_token", "num_experts_per_tok"), file);
  if (!file.error && experts.per_token > experts.count) {
    file.fail(rules.text("per_token", "num_experts_per_tok"), "more than there are experts",
              "at most " + std::to_string(experts.count), std::to_string(experts.per_token));
  }
  experts.inner_size = file.integer(rules.text("size"), {}, 1, kMaxK);
  if (const std::string size = rules.text("shared_size", ""); !size.empty()) {
    experts.shared_size = file.integer(size, {}, 0, kMaxK);
  }
  if (const std::string count = rules.text("shared_count", ""); !count.empty()) {
    experts.shared_size =
        experts.inner_size * file.integer(count, {}, 0, kMaxK / std::max<int64_t>(1, experts.inner_size));
  }
  experts.sigmoid = rules.boolean("sigmoid", false);
  if (const std::string scale = rules.text("scale", ""); !scale.empty()) {
    experts.scale = static_cast<float>(file.number(scale, {}, 1e-6, 1e6));
  }
  experts.router_bias = rules.boolean("router_bias", false);
  experts.fused = rules.boolean("fused", false);
  experts.stacked = rules.boolean("stacked", false);
  const std::string normalised = rules.text("normalised", "");
  experts.normalised = normalised.empty() || file.boolean(normalised);
  if (!by_type) experts.layers = layers_with_experts(rules, file, out->layers);
  if (std::ranges::find(experts.layers, true) == experts.layers.end()) {
    file.fail("mlp_only_layers", "leaves no layer with experts");
  }
  if (!family.error) family.error = rules.error;
}

}  // namespace pinion
