#include "loader/config/config_parts.h"

#include <cmath>

namespace pinion {
namespace {

// The layers with experts, by the family's rule:
//   all                       every layer
//   all_but_first             all but the first few
//   types_or_all_but_first    mlp_layer_types lists them; if absent, all but the first few
//   sparse_step               every n-th layer, except those in mlp_only_layers (Qwen) or out of a range (ERNIE)
//   listed_or_step            moe_layers lists them; if absent, every n-th
std::vector<bool> layers_with_experts(JsonFields& rules, JsonFields& file, int64_t layers) {
  const std::string rule = rules.text("layers");
  std::vector<bool> with(layers, true);
  if (rule == "all") return with;
  if (rule == "types_or_all_but_first" && file.has("mlp_layer_types")) {
    const std::vector<std::string> types = file.texts("mlp_layer_types");
    if (!has_length(file, "mlp_layer_types", layers, std::ssize(types))) return with;
    for (size_t i = 0; i < types.size(); i++) {
      with[i] = types[i] == "sparse";
      if (!with[i] && types[i] != "dense") file.fail("mlp_layer_types", "unknown layer type", {}, brief(types[i]));
    }
    return with;
  }
  if (rule == "all_but_first" || rule == "types_or_all_but_first") {
    std::fill_n(with.begin(), file.integer(rules.text("dense_count", "first_k_dense_replace"), {}, 0, layers), false);
    return with;
  }
  const int64_t step = file.integer("decoder_sparse_step", {}, 1, kMaxLayers);
  const int64_t offset = file.integer("expert_layer_offset", step - 1, 0, step - 1);
  const bool has_range = rules.boolean("has_range", false);
  const int64_t first = has_range ? file.integer("moe_layer_start_index", 0, 0, kMaxLayers) : 0;
  const int64_t last = has_range ? file.integer("moe_layer_end_index", -1, -1, kMaxLayers) : -1;  // -1: no limit
  const bool is_listed = rule == "listed_or_step" && file.has("moe_layers");
  const std::vector<int64_t> without = file.integers("mlp_only_layers", 0, kMaxLayers);
  const std::vector<int64_t> listed = is_listed ? file.integers("moe_layers", 0, kMaxLayers) : without;
  for (int64_t i = 0; i < layers; i++) {
    const bool in_range = i >= first && (last < 0 || i <= last);
    const bool is_in = std::ranges::find(listed, i) != listed.end();
    with[i] = is_listed ? is_in : i % step == offset && in_range && !is_in;
  }
  return with;
}

// A number, or a list with the same number for every layer (Hunyuan).
int64_t read_uniform(const std::string& field, JsonFields& file) {
  const std::vector<int64_t> values = file.integers(field, 1, kMaxExperts);
  if (values.empty()) return file.integer(field, {}, 1, kMaxExperts);
  if (std::ranges::count(values, values[0]) != std::ssize(values)) file.fail(field, "differs from layer to layer");
  return values[0];
}

// Group-limited routing.
void read_groups(JsonFields& rules, JsonFields& file, ExpertsConfig* out) {
  JsonFields groups = rules.fields("groups");
  if (groups.object.empty()) return;
  const int64_t count = file.integer(groups.text("count"), 1, 1, kMaxExpertGroups);
  const int64_t kept = file.integer(groups.text("kept"), 1, 1, count);
  const int64_t best = groups.integer("best", {}, 1, kMaxExpertGroups);
  const std::string method = groups.text("field", "");
  const bool applies = method.empty() || file.text(method) == groups.text("is");
  if (!method.empty() && !applies && file.text(method) != groups.text("else")) {
    file.fail(method, "not supported", groups.text("is") + " or " + groups.text("else"), brief(file.text(method)));
  }
  if (!applies || count == 1 || file.error) return;
  const int64_t size = out->count / count;
  if (out->count % count != 0 || size < best || size * kept < out->per_token) {
    return file.fail(groups.text("count"), "groups of experts out of range",
                     "equal groups of at least " + std::to_string(best) + ", with enough experts in the kept ones",
                     std::to_string(count) + " groups, " + std::to_string(kept) + " kept");
  }
  out->groups = count, out->groups_kept = kept, out->group_best = best;
}

// Last components of module names that do not contain experts.
constexpr std::string_view kNotExperts[] = {"self_attn", "q_proj",  "k_proj",       "v_proj", "o_proj",
                                            "router",    "lm_head", "embed_tokens", "norm"};

}  // namespace

bool has_mxfp4_experts(JsonFields& family, JsonFields& quantization) {
  JsonFields rules = family.fields("experts");
  const bool has_one_tensor = rules.boolean("fused", false) || rules.boolean("stacked", false);
  return has_one_tensor && quantization.text("quant_method", "") == "mxfp4";
}

Error read_mxfp4_experts(JsonFields& quantization, ExpertsConfig* out) {
  constexpr const char* kExcluded = "modules_to_not_convert";
  for (const std::string& name : quantization.texts(kExcluded)) {
    const std::string_view last = std::string_view(name).substr(name.rfind('.') + 1);  // npos + 1 is 0
    if (std::ranges::find(kNotExperts, last) == std::end(kNotExperts)) {
      quantization.fail(kExcluded, "may include experts, which must all be MXFP4", {}, brief(name));
    }
  }
  quantization.boolean("dequantize", false);  // only an instruction to transformers
  for (const std::string& name : quantization.unread()) quantization.fail(name, "not supported");
  out->mxfp4 = true;
  return quantization.error;
}

void read_experts(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields rules = family.fields("experts");
  if (rules.object.empty()) return;
  if (const std::string field = rules.text("if", ""); !field.empty() && !file.boolean(field)) {
    for (const char* name : {"count", "per_token", "size"}) file.find(rules.text(name, ""));  // without effect
    return;
  }
  if (rules.boolean("optional", false) && file.integer("num_local_experts", {}, 0, kMaxExperts) == 0) return;
  ExpertsConfig& experts = out->experts;
  const bool by_type = rules.text("layers") == "by_type";
  const auto has_experts = [&] { return std::ranges::any_of(out->layer, &LayerConfig::has_experts); };
  if (by_type && !has_experts()) return;
  // Transformers 5 writes num_local_experts for every family; older files and the family's defaults use another name.
  const std::string older_name = rules.text("count", "num_experts");
  const bool has_older = file.has(older_name);
  const bool is_older = has_older && !file.has("num_local_experts");
  experts.count = file.integer(is_older ? older_name : "num_local_experts", {}, 1, kMaxExperts);
  const std::string per_token = rules.text("per_token", "num_experts_per_tok");
  experts.per_token = read_uniform(per_token, file);
  if (!file.error && experts.per_token > experts.count) {
    file.fail(per_token, "exceeds the number of experts", at_most(experts.count), experts.per_token);
  }
  experts.inner_size = file.integer(rules.text("size"), {}, 1, kMaxK);
  const std::string shared_size = rules.text("shared_size", ""), shared_count = rules.text("shared_count", "");
  const int64_t most_shared = kMaxK / std::max<int64_t>(1, experts.inner_size);
  if (!shared_size.empty()) experts.shared_size = file.integer(shared_size, {}, 0, kMaxK);
  if (!shared_count.empty()) experts.shared_size = experts.inner_size * file.integer(shared_count, {}, 0, most_shared);
  if (experts.shared_size > 0) out->output_scales.experts = static_cast<float>(rules.number("sum_scale", 1.0));
  read_groups(rules, file, &experts);
  if (family.fields("modules").has("router_scale")) {
    out->output_scales.router = 1.0f / std::sqrt(static_cast<float>(out->hidden_size));
  }
  experts.sigmoid = rules.boolean("sigmoid", false);
  const std::string scale = rules.text("scale", ""), jitter = rules.text("jitter", "");
  if (!scale.empty()) experts.scale = static_cast<float>(file.number(scale, 1.0, 1e-6, 1e6));
  if (!jitter.empty()) experts.near = static_cast<float>(2.0 * file.number(jitter, {}, 1e-6, 1.0));
  experts.corrects_logits = rules.boolean("corrects_logits", false);
  experts.router_bias = rules.boolean("router_bias", false);
  experts.fused = rules.boolean("fused", false);
  experts.stacked = rules.boolean("stacked", false);
  experts.flat = rules.boolean("flat", false);
  experts.scales_inputs = rules.boolean("scales_inputs", false);
  experts.normalised = !rules.has("normalised") || read_switch(rules, "normalised", file);
  if (!by_type) {
    const std::vector<bool> with = layers_with_experts(rules, file, out->layers);
    const bool others_rotate = rules.boolean("others_rotate", false);
    for (int64_t i = 0; i < out->layers; ++i) {
      out->layer[i].has_experts = with[i];
      if (others_rotate && !with[i]) out->layer[i].rope = 0;
    }
  }
  if (!has_experts()) file.fail("mlp_only_layers", "leaves no layer with experts");
}

}  // namespace pinion
