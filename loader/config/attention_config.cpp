#include <set>

#include "kernels/base/math.h"
#include "kernels/layout.h"
#include "loader/config/config_parts.h"

namespace pinion {
namespace {

// In the order of RopeKind. The first releases of longrope called it "su".
constexpr std::string_view kRopeKinds[] = {"default", "linear",   "dynamic",     "yarn",
                                           "llama3",  "longrope", "proportional"};

// The family, which allows some fields inside the object that describes a rotation, and the fields outside of it.
struct RopeContext {
  JsonFields& family;
  double theta, partial;
  std::optional<int64_t> original_max_positions = {};  // overrides the one inside
};

// rotatable: elements of a head that rope may rotate; fewer than the head's in latent attention.
void read_rotated_dims(JsonFields& rope, const RopeContext& context, int64_t head_dim, int64_t rotatable, Rope* r) {
  const double fraction = rope.number("partial_rotary_factor", context.partial, 0.0, 1.0);
  if (r->kind == RopeKind::proportional) {
    r->dims = rotatable;
    r->turning = 2 * static_cast<int64_t>(static_cast<double>(rotatable) * fraction / 2.0);
    return;
  }
  if (fraction != 1.0 && !context.family.boolean("partial_rotary", false))
    rope.fail("partial_rotary_factor", "not supported", "1");
  const int64_t whole = context.family.boolean("partial_of_head", false) ? head_dim : rotatable;
  r->dims = std::min(rotatable, static_cast<int64_t>(static_cast<double>(whole) * fraction));
  if (r->dims < 2 || r->dims % 2 != 0) {
    rope.fail("partial_rotary_factor", "out of range", "an even number of rotated elements", std::to_string(r->dims));
    r->dims = 2;
  }
}

// Hunyuan: a "dynamic" rotation with alpha is an unscaled one with a larger base.
void read_alpha(JsonFields& rope, Rope* r) {
  const double alpha = rope.number("alpha", 0.0, 0.0, 1e9);
  if (r->kind != RopeKind::dynamic || alpha == 0.0) return;
  if (alpha < 1.0) return rope.fail("alpha", "out of range", "0 or at least 1");
  if (r->dims < 4) return rope.fail("alpha", "needs a wider head", "at least 4 rotated elements");
  const auto d = static_cast<double>(r->dims);
  r->kind = RopeKind::none;
  r->theta *= portable_pow(alpha, d / (d - 2.0));
}

void read_longrope(JsonFields& rope, Rope* r) {
  r->short_factor = rope.numbers("short_factor", 1e-3, 1e6);
  r->long_factor = rope.numbers("long_factor", 1e-3, 1e6);
  if (r->kind != RopeKind::longrope) return;
  const int64_t expected = r->dims / 2;
  if (std::ssize(r->short_factor) == expected && std::ssize(r->long_factor) == expected) return;
  rope.fail("short_factor, long_factor", "wrong length", std::to_string(expected),
            std::to_string(r->short_factor.size()) + " and " + std::to_string(r->long_factor.size()));
}

// `factor`, and the ends of llama3's ramp.
void read_factors(JsonFields& rope, int64_t max_positions, Rope* r) {
  const double ratio = static_cast<double>(max_positions) / static_cast<double>(r->original_max_positions);
  std::optional<double> factor;
  if (r->kind == RopeKind::none || r->kind == RopeKind::proportional) factor = 1.0;
  if (r->kind == RopeKind::yarn || r->kind == RopeKind::longrope) factor = ratio;
  if (r->kind == RopeKind::yarn && !rope.object.contains("factor")) {
    rope.fail("factor", "missing in yarn",
              "a number, or null for max_position_embeddings / original_max_position_embeddings");
  }
  r->factor = rope.number("factor", factor, 1e-3, 1e6);
  const bool is_llama3 = r->kind == RopeKind::llama3;
  const std::optional<double> absent = is_llama3 ? std::nullopt : std::optional(0.0);
  r->low_freq_factor = rope.number("low_freq_factor", absent, 0.0, 1e6);
  r->high_freq_factor = rope.number("high_freq_factor", absent, 0.0, 1e6);
  if (is_llama3 && !(r->low_freq_factor > 0.0 && r->high_freq_factor > r->low_freq_factor)) {
    rope.fail("high_freq_factor", "out of range", "more than low_freq_factor, which is more than 0");
  }
}

// Refuses values for which a formula would divide by zero.
void check_defined(JsonFields& rope, const Rope& r) {
  if (r.kind == RopeKind::longrope && r.original_max_positions < 2) {
    rope.fail("original_max_position_embeddings", "out of range for longrope", "at least 2",
              std::to_string(r.original_max_positions));
  }
  if (r.kind == RopeKind::yarn && !(r.theta > 1.0)) {
    rope.fail("rope_theta", "out of range for yarn", "more than 1", "1");
  }
  if (r.kind == RopeKind::dynamic && r.dims < 4) {
    rope.fail("rope_type", "head too narrow for dynamic", "at least 4 rotated elements", std::to_string(r.dims));
  }
}

// Fields of other kinds are read, too, and have no effect, as in transformers.
Rope read_rope(JsonFields& rope, const RopeContext& context, const ModelConfig& config, int64_t head_dim) {
  Rope r;
  const std::string old_name = rope.text("type", "default");
  std::string name = rope.text("rope_type", old_name);
  const bool has_sections = context.family.boolean("mrope", false);
  if (has_sections && name == "mrope") name = "default";
  name = context.family.fields("rope_aliases").text(name, name);
  const auto row = std::ranges::find(kRopeKinds, name == "su" ? "longrope" : name);
  if (row == std::end(kRopeKinds)) {
    rope.fail("rope_type", "unknown kind", "default, linear, dynamic, yarn, llama3, longrope or proportional",
              brief(name));
    return r;
  }
  r.kind = static_cast<RopeKind>(row - std::begin(kRopeKinds));
  r.theta = rope.number("rope_theta", context.theta, 1.0, 1e15);
  r.original_max_positions = rope.integer("original_max_position_embeddings", config.max_positions, 1, kMaxPositions);
  r.original_max_positions = context.original_max_positions.value_or(r.original_max_positions);
  read_rotated_dims(rope, context, head_dim, config.latent.rank > 0 ? config.latent.rope_dims : head_dim, &r);
  read_factors(rope, config.max_positions, &r);
  check_defined(rope, r);
  if (rope.has("attention_factor")) r.attention_factor = rope.number("attention_factor", {}, 0.0, 1e6);
  if (rope.has("short_mscale")) {  // both must be equal
    r.attention_factor = rope.number("short_mscale", {}, 0.0, 1e6);
    rope.number("long_mscale", {}, *r.attention_factor, *r.attention_factor);
  }
  r.mscale = rope.number("mscale", r.mscale, 0.0, 1e6);
  r.mscale_all_dim = rope.number("mscale_all_dim", r.mscale_all_dim, 0.0, 1e6);
  for (const auto& [field, beta] : {std::pair{"beta_fast", &r.beta_fast}, {"beta_slow", &r.beta_slow}}) {
    const double value = rope.number(field, *beta, 0.0, 1e6);
    if (value > 0.0) *beta = value;  // 0 stands for the default, as in transformers
  }
  r.truncate = rope.boolean("truncate", r.truncate);
  read_longrope(rope, &r);
  if (context.family.boolean("ntk_alpha", false)) read_alpha(rope, &r);
  if (context.family.boolean("query_scaling", false)) {
    r.query_beta = rope.number("llama_4_scaling_beta", 0.0, 0.0, 1e3);
    rope.integer("max_position_embeddings", config.max_positions);  // a copy
  }
  if (has_sections) {  // angles for the rows and columns of an image; in text all positions are equal
    rope.integers("mrope_section");
    rope.boolean("mrope_interleaved", false);
  }
  rope.boolean("finetuned", false);  // a note without effect
  if (const auto unknown = rope.unread(); !unknown.empty()) rope.fail(brief(joined(unknown)), "unknown field");
  return r;
}

// Latent attention with a stretched context: scores grow with the square of the magnitude of mscale_all_dim.
void scale_latent_scores(ModelConfig* out) {
  const Rope& rope = out->ropes.front();
  if (out->latent.rank == 0 || rope.kind == RopeKind::none || rope.mscale_all_dim == 0.0 || rope.factor <= 1.0) return;
  const double magnitude = 0.1 * rope.mscale_all_dim * portable_log(rope.factor) + 1.0;
  out->score_scale = static_cast<float>(double{out->score_scale} * magnitude * magnitude);
}

// The layers with a sliding window, from layer_types or, if that is absent, from the family's rule:
//   from_layer           layers from max_window_layers on (Qwen)
//   pattern              all but every sliding_window_pattern-th (Gemma)
//   pattern_after_dense  pattern, counted from the first layer with experts on (Cohere)
//   pattern_but_first    pattern, and not the first layer (MiMo)
//   pattern_between      all but the first two, the last, and every n-th from the second on (Flint)
//   pattern_after_first  all but the first of every sliding_window_pattern (CWM)
//   without_rope         layers without positional encoding (SmolLM3)
//   chunks               layers with it, in chunks (Llama 4)
// Next to layer_types the pattern is ignored and may have another form (EXAONE 4's "LLLG").
std::vector<bool> sliding_layers(std::string_view rule, JsonFields& file, const ModelConfig& config, bool enabled) {
  const int64_t first = rule == "from_layer" ? file.integer("max_window_layers", 0, 0, kMaxPositions) : 0;
  const int64_t dense = rule == "pattern_after_dense" ? file.integer("first_k_dense_replace", 0, 0, kMaxLayers) : 0;
  std::vector<bool> sliding(config.layers, false);
  const std::vector<std::string> types = file.texts("layer_types");
  const bool has_pattern = rule.starts_with("pattern");
  if (has_pattern) file.find("sliding_window_pattern");  // marks the field as known, even if layer_types replaces it
  const int64_t period = has_pattern && types.empty() ? file.integer("sliding_window_pattern", {}, 1, kMaxLayers) : 1;
  if (!types.empty() && !has_length(file, "layer_types", config.layers, std::ssize(types))) return sliding;
  for (int64_t i = 0; i < config.layers; i++) {
    if (types.empty()) {
      if (rule == "from_layer") sliding[i] = enabled && i >= first;
      if (rule == "pattern" || rule == "pattern_after_dense") sliding[i] = i >= dense && (i + 1 - dense) % period != 0;
      if (rule == "pattern_but_first") sliding[i] = i > 0 && (i + 1) % period != 0;
      if (rule == "pattern_between") sliding[i] = i >= 2 && i % period != 1 && i + 1 < config.layers;
      if (rule == "pattern_after_first") sliding[i] = i % period != 0;
      if (sliding[i] && !enabled) file.fail("sliding_window", "missing, but the family has sliding layers");
      const bool rotates = config.layer[i].rope != kNoRope;
      if (rule == "without_rope" || rule == "chunks") sliding[i] = enabled && rotates == (rule == "chunks");
    } else if (types[i] == (rule == "chunks" ? "chunked_attention" : "sliding_attention") || types[i] == "local") {
      sliding[i] = true;
      if (!enabled) file.fail("layer_types", "sliding layers without a window");
    } else if (types[i] != "full_attention" && types[i] != "global" && !config.layer[i].recurrent) {
      file.fail("layer_types", "unknown layer type", {}, brief(types[i]));
    }
  }
  return sliding;
}

void read_windows(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string rule = family.text("windows");
  if (rule == "none") return;
  const int64_t window = file.integer("sliding_window", 0, 0, kMaxPositions);
  const bool enabled = rule != "all" && file.boolean("use_sliding_window", true) && window > 0;
  const std::vector<bool> sliding =
      rule == "all" ? std::vector<bool>(out->layers, true) : sliding_layers(rule, file, *out, enabled);
  const bool is_half = out->counts_both_sides || family.boolean("half_window", false);
  const int64_t side = is_half ? window / 2 : window;
  const int64_t reach = out->attends_both_ways && window > 0 ? side + 1 : side;
  for (size_t i = 0; i < sliding.size(); i++) out->layer[i].window = sliding[i] ? reach : 0;
}

// SmolLM3: no_rope_layers has a 1 for a layer *with* a rotation; if it is absent, every n-th layer has none.
void read_layers_without_rope(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields rule = family.fields("rope_if");
  const Json outer = file.object.value("rope_theta", Json(10000.0)),
             theta = file.fields("rope_parameters").object.value("rope_theta", outer);
  const bool rotates = (!family.has("rope") || read_switch(family, "rope", file)) &&
                       !(family.boolean("optional_theta", false) && theta.is_null()) &&
                       (rule.object.empty() || file.text(rule.text("field"), "") == rule.text("is"));
  for (LayerConfig& layer : out->layer) layer.rope = rotates ? 0 : kNoRope;
  if (!family.boolean("no_rope_layers", false)) return;
  std::vector<int64_t> with_rope = file.integers("no_rope_layers", 0, 1);
  const int64_t interval = file.integer("no_rope_layer_interval", {}, 1, kMaxLayers);
  for (int64_t i = with_rope.empty() ? 0 : out->layers; i < out->layers; i++) {
    with_rope.push_back((i + 1) % interval != 0);
  }
  if (std::ssize(with_rope) < out->layers) {
    return file.fail("no_rope_layers", "wrong length", std::to_string(out->layers), std::to_string(with_rope.size()));
  }
  for (int64_t i = 0; i < out->layers; i++) out->layer[i].rope = with_rope[i] ? 0 : kNoRope;
}

// Layers without positional encoding scale their queries (Llama 4, Beam): a rope of theirs, which rotates nothing, does
// it.
void read_temperature(JsonFields& family, JsonFields& file, ModelConfig* out) {
  Rope rope;
  rope.query_offset = 1;
  double& scale = family.boolean("temperature_power", false) ? rope.query_power : rope.query_beta;
  scale = file.number("attn_scale", {}, 0.0, 1e3);
  rope.original_max_positions = file.integer("floor_scale", {}, 1, kMaxPositions);
  if (!file.boolean("attn_temperature_tuning")) return;
  const auto own = static_cast<int32_t>(out->ropes.size());
  for (LayerConfig& layer : out->layer) layer.rope = layer.rope == kNoRope ? own : layer.rope;
  out->ropes.push_back(std::move(rope));
}

// A theta for each layer (Granite 4.5); 0: no positional encoding.
void read_layer_thetas(JsonFields& file, ModelConfig* out) {
  constexpr const char* kField = "layer_rope_theta";
  const std::vector<double> thetas = file.numbers(kField, 0.0, 1e15);
  if (thetas.empty() || !has_length(file, kField, out->layers, std::ssize(thetas))) return;
  for (size_t i = 0; i < thetas.size(); ++i) {
    Rope rope = out->ropes[0];
    rope.theta = thetas[i];
    if (thetas[i] > 0.0 && thetas[i] < 1.0) file.fail(kField, "out of range", "0, or 1 and more");
    if (thetas[i] > 0.0) check_defined(file, rope);
    const auto known = std::ranges::find(out->ropes, thetas[i], &Rope::theta);
    out->layer[i].rope = thetas[i] > 0.0 ? static_cast<int32_t>(known - out->ropes.begin()) : kNoRope;
    if (known == out->ropes.end() && thetas[i] > 0.0) out->ropes.push_back(std::move(rope));
  }
}

// Layers without a window have other heads (Gemma 4). Transformers 5.24 lists them by layer.
void read_full_heads(JsonFields& file, ModelConfig* out) {
  out->layer.back().window = 0, out->layer.back().rope = 0;  // whatever the file says, as in transformers
  const bool keys_are_values = file.boolean("attention_k_eq_v");
  const int64_t head_dim = file.integer("global_head_dim", {}, 2, kMaxHeadDim);
  const int64_t kv_heads = file.integer("num_global_key_value_heads", 0, 1, kMaxK);
  JsonFields listed = file.fields("per_layer_config");
  for (int64_t i = 0; i < out->layers; ++i) {
    LayerConfig& layer = out->layer[i];
    layer.values_are_keys = keys_are_values && layer.window == 0;
    const std::string number = std::to_string(i), padded = std::string(i < 10, '0') + number;
    JsonFields own = listed.fields(listed.has(padded) ? padded : number);
    if (listed.object.empty() && layer.window == 0) {
      layer.head_dim = head_dim;
      if (keys_are_values && kv_heads > 0) layer.kv_heads = kv_heads;
    }
    layer.head_dim = layer.value_dim = own.integer("head_dim", layer.head_dim, 2, kMaxHeadDim);
    layer.kv_heads = own.integer("num_key_value_heads", layer.kv_heads, 1, kMaxK);
    for (const std::string& name : own.unread()) own.fail(name, "not supported for single layers");
    check_heads(file, layer);
  }
  for (const std::string& name : listed.unread()) listed.fail(name, "no such layer");
}

}  // namespace

void read_latent(JsonFields& file, ModelConfig* out, LayerConfig* layer) {
  LatentConfig& latent = out->latent;
  latent.rank = file.integer("kv_lora_rank", {}, 1, kMaxK);
  latent.query_rank = file.integer("q_lora_rank", 0, 1, kMaxK);
  latent.rope_dims = file.integer("qk_rope_head_dim", {}, 2, kMaxHeadDim);
  latent.nope_dims = file.integer("qk_nope_head_dim", {}, 1, kMaxHeadDim);
  const int64_t width = std::max<int64_t>(1, out->hidden_size / layer->heads);
  layer->latent_values = file.integer("v_head_dim", width, 1, kMaxHeadDim);
  layer->head_dim = latent.rope_dims + latent.rank;
  layer->value_dim = latent.rank;
  const int64_t widest = std::max(latent.rope_dims + latent.nope_dims, layer->latent_values);
  check_width(file, "num_attention_heads", layer->heads * widest, "attention too wide", "all heads");
  if (layer->kv_heads != layer->heads) {
    file.fail("num_key_value_heads", "not supported with latent attention", std::to_string(layer->heads),
              std::to_string(layer->kv_heads));
  }
  layer->kv_heads = 1;
}

void read_ropes(JsonFields& family, JsonFields& file, ModelConfig* out) {
  out->rope_reversed = family.boolean("rope_reversed", false);
  out->rope_interleaved = family.has("rope_interleaved") && read_switch(family, "rope_interleaved", file);
  RopeContext context = {family, file.number(family.text("rope_theta", "rope_theta"), 10000.0, 1.0, 1e15),
                         file.number(family.text("partial_rotary_factor", "partial_rotary_factor"), 1.0, 0.0, 1.0)};
  if (const std::string dims = family.text("rotary_dims", ""); !dims.empty() && file.has(dims)) {
    const int64_t head_dim = out->layer[0].head_dim;
    const auto rotated = static_cast<double>(file.integer(dims, {}, 2, head_dim)) + 0.5;  // cut to a whole number later
    context.partial = std::min(1.0, rotated / static_cast<double>(head_dim));
  }
  if (file.has("original_max_position_embeddings")) {
    context.original_max_positions = file.integer("original_max_position_embeddings", {}, 1, kMaxPositions);
  }
  JsonFields parameters = file.fields("rope_parameters");
  JsonFields scaling = file.fields("rope_scaling");
  const auto add = [&](const JsonFields& fields) {
    std::set<int64_t> widths;  // of the heads that it rotates
    for (const LayerConfig& layer : out->layer) {
      if (layer.rope == std::ssize(out->ropes)) widths.insert(out->query_dim(layer));
    }
    if (widths.size() > 1) file.fail("head_dim", "differs among layers that share a rope");
    JsonFields rope{fields.object, fields.where, file.error, {}, &file};
    const int64_t head_dim = widths.empty() ? out->query_dim(out->layer[0]) : *widths.begin();
    out->ropes.push_back(read_rope(rope, context, *out, head_dim));
  };
  if (family.boolean("ropes_by_layer_type", false)) {
    const JsonFields full = parameters.fields("full_attention"), sliding = parameters.fields("sliding_attention");
    // Transformers 5.12 wrote an unscaled rope without layer types, for all layers, or beside the layer types.
    const bool is_flat = full.object.empty() && sliding.object.empty();
    const bool is_scaled = parameters.text("rope_type", parameters.text("type", "default")) != "default";
    const double flat_theta = is_scaled ? context.theta : parameters.number("rope_theta", context.theta, 1.0, 1e15);
    if (is_scaled) parameters.fail("rope_type", "for which layers", "full_attention or sliding_attention around it");
    if (const auto unknown = parameters.unread(); !unknown.empty()) parameters.fail(unknown[0], "unknown layer type");
    if (is_flat) context.theta = flat_theta;
    // In the older spelling, rope_scaling applies to the layers without a window.
    add(scaling.object.empty() ? full : scaling);
    context.theta = file.number("rope_local_base_freq", context.theta, 1.0, 1e15);
    add(sliding);
  } else {
    add(scaling.object.empty() ? parameters : scaling);
  }
  if (family.boolean("layer_thetas", false)) read_layer_thetas(file, out);
  if (family.boolean("attention_temperature", false)) read_temperature(family, file, out);
  scale_latent_scores(out);
}

void read_layers(JsonFields& family, JsonFields& file, ModelConfig* out) {
  read_layers_without_rope(family, file, out);
  read_windows(family, file, out);
  const std::string rule = family.text("rope_where_sliding", "");
  const bool has_full = !file.fields("rope_parameters").fields("full_attention").object.empty();
  const bool only_sliding_have_rope = rule == "always" || (rule == "without_parameters" && !has_full) ||
                                      (rule == "with_window" && file.has("sliding_window"));
  for (LayerConfig& layer : out->layer) {
    if (family.boolean("ropes_by_layer_type", false)) layer.rope = layer.window > 0;
    if (only_sliding_have_rope && layer.window == 0) layer.rope = kNoRope;
    layer.chunked = family.text("windows") == "chunks";
    layer.has_sinks = layer.window > 0 || !family.boolean("sliding_sinks", false);
    if (layer.window > 0) layer.kv_heads *= family.integer("sliding_kv_heads", 1, 1, 64), check_heads(file, layer);
  }
  if (family.boolean("full_layer_heads", false)) read_full_heads(file, out);
}

// The last layers share the keys and values of the last earlier layer with the same window.
void read_shared_kv(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string field = family.text("shared_kv", "");
  const bool widens = family.has("shared_kv_wide_mlp") && read_switch(family, "shared_kv_wide_mlp", file);
  if (field.empty()) return;
  const int64_t first = out->layers - file.integer(field, 0, 0, kMaxLayers);
  if (first <= 0 || first == out->layers) return;  // if all would share, none does, as in transformers
  for (int64_t i = first; i < out->layers; ++i) {
    LayerConfig& layer = out->layer[i];
    const std::string name = "layer " + std::to_string(i);
    layer.kv_layer = first - 1;
    while (layer.kv_layer >= 0 && out->layer[layer.kv_layer].window != layer.window) --layer.kv_layer;
    if (layer.kv_layer < 0) return file.fail(field, "no earlier layer has keys and values for " + name);
    const LayerConfig& owner = out->layer[layer.kv_layer];
    if (owner.head_dim != layer.head_dim || owner.kv_heads != layer.kv_heads) {
      return file.fail(field, name + " shares keys of other heads than its own");
    }
    if (widens) layer.mlp_size *= 2;
    if (layer.mlp_size > kMaxK) file.fail(field, "mlp too wide", "at most " + std::to_string(kMaxK));
  }
}

}  // namespace pinion
