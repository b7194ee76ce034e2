#include <cmath>

#include "kernels/base/math.h"
#include "kernels/half.h"
#include "loader/config/config_parts.h"

namespace pinion {
namespace {

template <class T>
struct NamedValue {
  std::string_view name;
  T value;
};

constexpr NamedValue<Activation> kActivations[] = {
    {"silu", Activation::silu}, {"gelu", Activation::gelu},          {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"relu", Activation::relu}, {"relu2", Activation::relu_squared}, {"xielu", Activation::xielu}};

constexpr NamedValue<QkNorm> kQkNorms[] = {{"none", QkNorm::none},
                                           {"heads", QkNorm::heads},
                                           {"rotated_heads", QkNorm::rotated_heads},
                                           {"all_heads", QkNorm::all_heads},
                                           {"layer_norm_heads", QkNorm::layer_norm_heads},
                                           {"layer_norm", QkNorm::layer_norm}};

// The value of a name in such a table. `field` is the name's field in `file`.
template <class T, size_t N>
T value_of(const NamedValue<T> (&table)[N], const std::string& name, std::string_view field, JsonFields& file) {
  std::vector<std::string> names;
  for (const NamedValue<T>& row : table) {
    if (row.name == name) return row.value;
    names.emplace_back(row.name);
  }
  file.fail(field, "not supported", "one of " + joined(names), brief(name));
  return table[0].value;
}

// A number, or a field of config.json to the power of 1, -1, 0.5 or -0.5, `times` another scale.
float read_scale(JsonFields& family, std::string_view name, JsonFields& file, float absent = 1.0f) {
  const Json* given = family.find(name);
  if (!given) return absent;
  if (given->is_number()) return static_cast<float>(family.number(name));
  JsonFields rule = family.fields(name);
  if (rule.boolean("optional", false) && !file.has(rule.text("field"))) return absent;
  const double power = rule.number("power");
  const auto value = static_cast<float>(file.number(rule.text("field"), {}, 1e-9, 1e9));
  const float root = std::abs(power) == 0.5 ? std::sqrt(value) : value;
  float scale = (power < 0.0 ? 1.0f / root : root) * read_scale(rule, "times", file);
  if (rule.boolean("bf16", false)) scale = to_float(to_bf16(scale));
  return scale;
}

// A cap of the description, which names the field. 0, no cap, if the field is null or absent.
float read_cap(JsonFields& family, std::string_view name, JsonFields& file) {
  const std::string field = family.text(name, "");
  return field.empty() ? 0.0f : static_cast<float>(file.number(field, 0.0, 0.0, 1e9));
}

void read_activation(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string field = family.text("activation", "hidden_act");
  const std::string given = file.text(field);
  const std::string name = family.fields("activation_aliases").text(given, given);
  out->activation = value_of(kActivations, name, field, file);
  if (out->activation == Activation::xielu && !family.fields("modules").has("xielu")) {
    file.fail(field, "not supported for family " + out->family, {}, brief(given));
  }
  if (const std::string limit = family.text("activation_limit", ""); !limit.empty()) {
    out->activation = Activation::clamped_swiglu;
    out->activation_limit = static_cast<float>(file.number(limit, {}, 1e-3, 1e6));
  }
}

// ALiBi (Press et al. 2021): a geometric sequence for the largest power of two, then every other slope of the next one.
std::vector<float> alibi_slopes(int64_t heads) {
  const auto first = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  std::vector<float> slopes;
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t steps =
        head < first ? 2 * (head + 1) : 2 * (head - first) + 1;  // of the sequence for 2 * first heads
    slopes.push_back(
        static_cast<float>(portable_pow(2.0, -4.0 * static_cast<double>(steps) / static_cast<double>(first))));
  }
  return slopes;
}

constexpr double kMaxMultiplier = 1e9;

float read_multiplier(JsonFields& rules, std::string_view name, JsonFields& file) {
  const std::string field = rules.text(name, "");
  return field.empty() ? 1.0f : static_cast<float>(file.number(field, 1.0, -kMaxMultiplier, kMaxMultiplier));
}

// A list with one number for each target, which keep their values if the field is absent.
void read_multipliers(JsonFields& rules, std::string_view name, JsonFields& file,
                      std::initializer_list<float*> targets) {
  const std::string field = rules.text(name, "");
  if (field.empty() || !file.has(field)) return;
  const std::vector<double> values = file.numbers(field, -kMaxMultiplier, kMaxMultiplier);
  if (!has_length(file, field, std::ssize(targets), std::ssize(values))) return;
  for (size_t i = 0; i < values.size(); ++i) *targets.begin()[i] = static_cast<float>(values[i]);
}

// If the field is absent, the first ten layers of a model with more than ten are sparse.
void read_gate_sparsity(const std::string& field, JsonFields& file, ModelConfig* out) {
  std::vector<double> fractions = file.numbers(field, 0.0, 0.999999);
  if (!file.has(field)) {
    fractions.assign(out->layers, 0.0);
    if (out->layers > 10) std::fill_n(fractions.begin(), 10, 0.95);
  }
  if (!has_length(file, field, out->layers, std::ssize(fractions))) return;
  for (int64_t i = 0; i < out->layers; ++i) out->layer[i].gate_sparsity = static_cast<float>(fractions[i]);
}

void read_residual_inputs(JsonFields& file, AltupConfig* out) {
  out->inputs = file.integer("altup_num_inputs", {}, 1, kMaxAltupInputs);
  out->active = file.integer("altup_active_idx", {}, 0, kMaxAltupInputs - 1);
  out->scales = file.boolean("altup_correct_scale");
  if (out->active >= out->inputs && !file.error) {
    file.fail("altup_active_idx", "out of range", "below altup_num_inputs", out->active);
  }
}

void read_layer_inputs(JsonFields& file, ModelConfig* out) {
  LayerInputConfig& input = out->layer_input;
  input.size = file.integer("hidden_size_per_layer_input", {}, out->altup.inputs > 0 ? 1 : 0, kMaxK);
  out->output_scales.layer_input = 1.0f / std::sqrt(static_cast<float>(out->hidden_size));
  input.vocab_size = file.integer("vocab_size_per_layer_input", {}, 1, kMaxVocabulary);
  check_width(file, "hidden_size_per_layer_input", out->layers * input.size, "too wide", "all layers");
}

}  // namespace

void read_arithmetic(JsonFields& family, JsonFields& file, ModelConfig* out) {
  out->tied_head = file.boolean("tie_word_embeddings");
  for (const std::string& name : file.texts("architectures")) out->has_head &= with_head(name) == name;
  const std::string both_ways = family.text("attends_both_ways", "");
  out->counts_both_sides = !both_ways.empty() && file.boolean(both_ways, false);
  out->attends_both_ways = !file.boolean("is_causal", true) || out->counts_both_sides;
  out->qkv_bias = read_switch(family, "qkv_bias", file);
  out->o_bias = read_switch(family, "o_bias", file);
  out->mlp_bias = read_switch(family, "mlp_bias", file);
  out->qk_norm = value_of(kQkNorms, family.text("qk_norm"), "qk_norm", family);
  if (const std::string field = family.text("qk_norm_if", ""); !field.empty() && !file.boolean(field)) {
    out->qk_norm = QkNorm::none;
  }
  out->head_bias = family.has("head_bias") && read_switch(family, "head_bias", file);
  out->qkv_limit = read_cap(family, "qkv_limit", file);
  out->parallel_branches = family.has("parallel_branches") && read_switch(family, "parallel_branches", file);
  const std::string norm = family.text("norm", "rms");
  if (norm != "rms" && norm != "layer") family.fail("norm", "unknown", "rms or layer", brief(norm));
  out->layer_norm = norm == "layer";
  out->norm_bias = family.boolean("norm_bias", false);
  out->norm_weights = family.boolean("norm_weights", true);
  out->lacks_first_norm = !family.boolean("first_norm", true);
  out->embedding_norm = family.boolean("embedding_norm", false);
  out->norm_offset = static_cast<float>(family.number("norm_offset", 0.0));
  out->value_norm = family.boolean("value_norm", false);
  out->attention_gate = family.boolean("attention_gate", false);
  out->gate_by_head = family.boolean("gate_by_head", false);
  out->gate_softplus = family.boolean("gate_softplus", false);
  if (family.boolean("alibi", false)) out->score_slopes = alibi_slopes(out->layer[0].heads);
  read_activation(family, file, out);
  const auto head_dim = static_cast<float>(out->query_dim(out->layer[0]));
  out->embedding_scale = read_scale(family, "embedding_scale", file);
  out->score_scale = read_scale(family, "score_scale", file, 1.0f / std::sqrt(head_dim));
  out->score_cap = read_cap(family, "score_cap", file);
  out->branch_scale = read_scale(family, "branch_scale", file);
  out->logit_scale = read_scale(family, "logit_scale", file);
  out->logit_cap = read_cap(family, "logit_cap", file);
}

void read_output_scales(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields rules = family.fields("output_scales");
  if (rules.object.empty()) return;
  OutputScales& scales = out->output_scales;
  Recurrence& state = out->recurrence;
  scales.qkv = read_multiplier(rules, "qkv", file);
  scales.key = read_multiplier(rules, "key", file);
  scales.value = read_multiplier(rules, "value", file);
  scales.o = read_multiplier(rules, "o", file);
  read_multipliers(rules, "gate_down", file, {&scales.gate, &scales.down});
  const auto slices = {&scales.state_z, &state.value_scale, &state.key_scale, &state.query_scale, &scales.state_a};
  read_multipliers(rules, "state_slices", file, slices);
  scales.state_in = read_multiplier(rules, "state_in", file);
  scales.state_out = read_multiplier(rules, "state_out", file);
}

void read_altup(JsonFields& family, JsonFields& file, ModelConfig* out) {
  if (const std::string field = family.text("gate_sparsity", ""); !field.empty()) read_gate_sparsity(field, file, out);
  JsonFields modules = family.fields("modules");
  if (modules.has("laurel_left")) out->laurel_rank = file.integer("laurel_rank", {}, 1, kMaxK);
  if (modules.has("altup_router")) read_residual_inputs(file, &out->altup);
  if (modules.has("layer_gate")) read_layer_inputs(file, out);
}

}  // namespace pinion
