#include "loader/config/model_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/layout.h"
#include "loader/config/config_parts.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

// Whether the head is the embedding must not hang on which of the two objects is read.
Error check_tying(const Json& outer, const Json& inner, const std::string& where) {
  constexpr const char* kField = "tie_word_embeddings";
  const auto a = outer.find(kField);
  const auto b = inner.find(kField);
  if (a == outer.end() || b == inner.end() || *a == *b) return {};
  return error("differs from text_config's", where + ": " + kField, brief(*b), brief(*a));
}

// Python writes a number without bound as Infinity, which is no JSON: here one that nothing reaches.
std::string with_finite_numbers(std::string_view text) {
  constexpr std::string_view kInfinite = "Infinity";
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!in_string && text.substr(i).starts_with(kInfinite)) {
      out += "1e308";
      i += kInfinite.size() - 1;
      continue;
    }
    out += text[i];
    if (in_string && text[i] == '\\' && i + 1 < text.size()) {
      out += text[++i];
    } else if (text[i] == '"') {
      in_string = !in_string;
    }
  }
  return out;
}

// What transformers takes for granted of a family, a file may leave out. Where that was a slip, its tensors do not fit.
std::vector<std::string> assumed_sizes(const Json& defaults, const Json& said) {
  std::vector<std::string> names;
  for (const char* name :
       {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
        "head_dim", "vocab_size", "num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size",
        "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    const auto value = defaults.find(name);
    if (value == defaults.end() || value->is_null() || said.contains(name)) continue;
    names.push_back(name + (" (" + brief(*value) + " taken)"));
  }
  return names;
}

void read_head_dim(JsonFields& file, ModelConfig* out) {
  if (!file.has("head_dim") && out->hidden_size % out->heads != 0) {
    file.fail("num_attention_heads", "does not divide hidden_size", {},
              std::to_string(out->heads) + " and " + std::to_string(out->hidden_size));
  }
  out->head_dim = file.integer("head_dim", out->hidden_size / out->heads);
}

// LFM2's mlp is two thirds as wide as its config says, times a factor, rounded up.
int64_t adjusted_size(JsonFields& file, int64_t size) {
  const int64_t step = file.integer("block_multiple_of", {}, 1, kMaxK);
  const double factor = file.number("block_ffn_dim_multiplier", 0.0, 0.0, 64.0);
  if (!file.boolean("block_auto_adjust_ff_dim") || file.error) return size;
  size = std::max<int64_t>(1, 2 * size / 3);
  if (factor == 0.0) return size;  // null
  size = static_cast<int64_t>(factor * static_cast<double>(size));
  return (size + step - 1) / step * step;
}

void read_intermediate_size(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string field = family.text("intermediate_size", "intermediate_size");
  if (!family.boolean("intermediate_sizes", false)) {
    out->intermediate_size = file.integer(field, {}, 1, kMaxK);
    return;
  }
  const std::vector<int64_t> sizes = file.integers(field, 1, kMaxK);
  const bool is_list = sizes.size() > 1;
  if (sizes.empty() || (is_list && std::ssize(sizes) != out->layers)) {
    return file.fail(field, "wrong length", "1 or " + std::to_string(out->layers), std::to_string(sizes.size()));
  }
  out->intermediate_size = std::ranges::max(sizes);
  if (is_list) out->intermediate_sizes = sizes;
}

void read_sizes(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const bool counts = file.has("num_hidden_layers") || listed_layers(file) == 0;
  out->layers =
      file.integer("num_hidden_layers", counts ? std::nullopt : std::optional(listed_layers(file)), 1, kMaxLayers);
  out->hidden_size = file.integer("hidden_size", {}, 1, kMaxK);
  read_intermediate_size(family, file, out);
  if (family.boolean("adjusts_intermediate_size", false)) {
    out->intermediate_size = adjusted_size(file, out->intermediate_size);
    if (out->intermediate_size < 1 || out->intermediate_size > kMaxK) {
      file.fail("block_ffn_dim_multiplier", "mlp out of range", "1 to " + std::to_string(kMaxK),
                std::to_string(out->intermediate_size));
    }
  }
  out->heads = file.integer("num_attention_heads", {}, 1, kMaxK);
  out->qkv_by_head = family.boolean("qkv_by_head", false);
  out->kv_heads = out->qkv_by_head ? out->heads : file.integer("num_key_value_heads", out->heads, 1, kMaxK);
  if (out->heads % out->kv_heads != 0) {
    file.fail("num_key_value_heads", "does not divide num_attention_heads", {},
              std::to_string(out->kv_heads) + " and " + std::to_string(out->heads));
  }
  family.boolean("latent_attention", false) ? read_latent(file, out) : read_head_dim(file, out);
  if (out->head_dim < 2 || out->head_dim > kMaxHeadDim || out->head_dim % 2 != 0) {
    file.fail("head_dim", "out of range", "an even number from 2 to " + std::to_string(kMaxHeadDim),
              std::to_string(out->head_dim));
  }
  const int64_t widest = std::max(out->head_dim, out->value_dim());
  if (!file.error && out->heads * widest > kMaxK) {
    file.fail("head_dim", "attention too wide", "at most " + std::to_string(kMaxK) + " for all heads",
              std::to_string(out->heads * widest));
  }
  out->vocab_size = file.integer("vocab_size", {}, 1, kMaxVocabulary);
  out->max_positions = file.integer("max_position_embeddings", {}, 1, kMaxPositions);
  out->norm_eps = static_cast<float>(file.number(family.text("norm_eps", "rms_norm_eps"), {}, 0.0, 1.0));
}

// Which layers slide: layer_types says it, or the family's rule does where that is absent.
//   from_layer    those from max_window_layers on (Qwen)
//   pattern       all but every sliding_window_pattern-th (Gemma)
//   pattern_after_first  all but the first of every sliding_window_pattern (CWM)
//   without_rope  those that do not know positions (SmolLM3)
// Beside layer_types the pattern says nothing, and may be of another form (EXAONE 4's "LLLG").
std::vector<bool> sliding_layers(std::string_view rule, JsonFields& file, const ModelConfig& config, bool enabled) {
  const auto layers = static_cast<size_t>(config.layers);
  const int64_t first = rule == "from_layer" ? file.integer("max_window_layers", 0, 0, kMaxPositions) : 0;
  std::vector<bool> sliding(layers, false);
  const std::vector<std::string> types = file.texts("layer_types");
  const bool has_pattern = rule.starts_with("pattern");
  if (has_pattern) file.find("sliding_window_pattern");  // known, also where layer_types says it
  const int64_t period = has_pattern && types.empty() ? file.integer("sliding_window_pattern", {}, 1, kMaxLayers) : 1;
  if (!types.empty() && types.size() != layers) {
    file.fail("layer_types", "wrong length", std::to_string(layers), std::to_string(types.size()));
    return sliding;
  }
  for (size_t i = 0; i < layers; i++) {
    const auto layer = static_cast<int64_t>(i);
    if (types.empty()) {
      if (rule == "from_layer") sliding[i] = enabled && layer >= first;
      if (rule == "pattern") sliding[i] = (layer + 1) % period != 0;
      if (rule == "pattern_after_first") sliding[i] = layer % period != 0;
      if (sliding[i] && !enabled) file.fail("sliding_window", "absent, though the family's layers slide");
      if (rule == "without_rope") sliding[i] = enabled && config.layer_ropes[i] == kNoRope;
    } else if (types[i] == "sliding_attention") {
      sliding[i] = true;
      if (!enabled) file.fail("layer_types", "sliding layers without a window");
    } else if (types[i] != "full_attention") {
      file.fail("layer_types", "unknown layer type", {}, brief(types[i]));
    }
  }
  return sliding;
}

void read_windows(JsonFields& family, JsonFields& file, ModelConfig* out) {
  out->windows.assign(static_cast<size_t>(out->layers), 0);
  const std::string rule = family.text("windows");
  if (rule == "none") return;
  const int64_t window = file.integer("sliding_window", 0, 0, kMaxPositions);
  if (rule == "all") {
    std::ranges::fill(out->windows, window);
    return;
  }
  const bool enabled = file.boolean("use_sliding_window", true) && window > 0;
  const std::vector<bool> sliding = sliding_layers(rule, file, *out, enabled);
  for (size_t i = 0; i < sliding.size(); i++) out->windows[i] = sliding[i] ? window : 0;
}

// SmolLM3: no_rope_layers has a 1 for a layer *with* a rotation; without it every so-manieth has none.
void read_layers_without_rope(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const auto layers = static_cast<size_t>(out->layers);
  JsonFields rule = family.fields("rope_if");
  const bool rotates =
      family.boolean("rope", true) && (rule.object.empty() || file.text(rule.text("field"), "") == rule.text("is"));
  out->layer_ropes.assign(layers, rotates ? 0 : kNoRope);
  if (!family.boolean("no_rope_layers", false)) return;
  std::vector<int64_t> with_rope = file.integers("no_rope_layers", 0, 1);
  const int64_t interval = file.integer("no_rope_layer_interval", {}, 1, kMaxLayers);
  for (int64_t i = std::ssize(with_rope); i < out->layers && !file.has("no_rope_layers"); i++) {
    with_rope.push_back((i + 1) % interval != 0);
  }
  if (with_rope.size() < layers) {
    file.fail("no_rope_layers", "wrong length", std::to_string(layers), std::to_string(with_rope.size()));
    return;
  }
  for (size_t i = 0; i < layers; i++) out->layer_ropes[i] = with_rope[i] ? 0 : kNoRope;
}

// What each layer sees and how it knows positions.
void read_layers(JsonFields& family, JsonFields& file, ModelConfig* out) {
  read_layers_without_rope(family, file, out);
  read_windows(family, file, out);
  const std::string rule = family.text("rope_where_sliding", "");
  const bool only_sliding_have_rope = rule == "always" || (rule == "with_window" && file.has("sliding_window"));
  for (size_t i = 0; i < out->windows.size(); i++) {
    if (out->ropes.size() > 1) out->layer_ropes[i] = out->windows[i] > 0;
    if (only_sliding_have_rope && out->windows[i] == 0) out->layer_ropes[i] = kNoRope;
  }
}

// A field of config.json, or its inverse, root, or root's inverse.
float read_power(JsonFields& rule, JsonFields& file) {
  const double power = rule.number("power");
  const auto value = static_cast<float>(file.number(rule.text("field"), {}, 1e-9, 1e9));
  const float root = std::abs(power) == 0.5 ? std::sqrt(value) : value;
  return power < 0.0 ? 1.0f / root : root;
}

// A number of the description: itself, such a power, or the product of two.
float read_scale(JsonFields& family, std::string_view name, JsonFields& file, float absent) {
  if (!family.has(name)) return absent;
  if (family.find(name)->is_number()) return static_cast<float>(family.number(name));
  JsonFields rule = family.fields(name);
  float scale = read_power(rule, file);
  if (rule.has("times")) {
    JsonFields other = rule.fields("times");
    scale *= read_power(other, file);
    if (!rule.error) rule.error = other.error;
  }
  if (!family.error) family.error = rule.error;
  return scale;
}

// Likewise, where null and absence of the field mean that there is no such cap.
float read_cap(JsonFields& family, std::string_view name, JsonFields& file) {
  const std::string field = family.text(name, "");
  return field.empty() ? 0.0f : static_cast<float>(file.number(field, 0.0, 0.0, 1e9));
}

template <class T>
struct NamedValue {
  std::string_view name;
  T value;
};

constexpr NamedValue<Activation> kActivations[] = {{"silu", Activation::silu},
                                                   {"gelu", Activation::gelu},
                                                   {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                   {"relu2", Activation::relu_squared},
                                                   {"xielu", Activation::xielu}};

constexpr NamedValue<QkNorm> kQkNorms[] = {{"none", QkNorm::none},
                                           {"heads", QkNorm::heads},
                                           {"rotated_heads", QkNorm::rotated_heads},
                                           {"all_heads", QkNorm::all_heads},
                                           {"own_heads", QkNorm::own_heads}};

// What such a table has for a name, which is the field's.
template <class T, size_t N>
T named(const NamedValue<T> (&table)[N], const std::string& name, std::string_view field, JsonFields& file) {
  const auto row = std::ranges::find(table, name, &NamedValue<T>::name);
  if (row != std::end(table)) return row->value;
  std::vector<std::string> names;
  for (const NamedValue<T>& known : table) names.emplace_back(known.name);
  file.fail(field, "not supported", "one of " + joined(names), brief(name));
  return table[0].value;
}

void read_arithmetic(JsonFields& family, JsonFields& file, ModelConfig* out) {
  out->tied_head = file.boolean("tie_word_embeddings");
  out->qkv_bias = read_switch(family, "qkv_bias", file);
  out->o_bias = read_switch(family, "o_bias", file);
  out->mlp_bias = read_switch(family, "mlp_bias", file);
  out->qk_norm = named(kQkNorms, family.text("qk_norm"), "qk_norm", family);
  if (const std::string field = family.text("qk_norm_if", ""); !field.empty() && !file.boolean(field)) {
    out->qk_norm = QkNorm::none;
  }
  out->head_bias = family.boolean("head_bias", false);
  out->parallel_branches = family.has("parallel_branches") && read_switch(family, "parallel_branches", file);
  const std::string norm = family.text("norm", "rms");
  if (norm != "rms" && norm != "layer") family.fail("norm", "unknown", "rms or layer", brief(norm));
  out->layer_norm = norm == "layer";
  out->norm_bias = family.boolean("norm_bias", false);
  out->norm_offset = static_cast<float>(family.number("norm_offset", 0.0));
  out->value_norm = family.boolean("value_norm", false);
  out->attention_gate = family.boolean("attention_gate", false);
  const std::string activation_field = family.text("activation", "hidden_act");
  const std::string activation = file.text(activation_field);
  const std::string meant = family.fields("activations_meant").text(activation, activation);
  out->activation = named(kActivations, meant, activation_field, file);
  if (out->activation == Activation::xielu && !family.fields("modules").has("xielu")) {
    file.fail(activation_field, "not supported for family " + out->family, {}, brief(activation));
  }
  if (const std::string limit = family.text("activation_limit", ""); !limit.empty()) {
    out->activation = Activation::clamped_swiglu;
    out->activation_limit = static_cast<float>(file.number(limit, {}, 1e-3, 1e6));
  }
  out->embedding_scale = read_scale(family, "embedding_scale", file, 1.0f);
  out->score_scale = read_scale(family, "score_scale", file, 1.0f / std::sqrt(static_cast<float>(out->head_dim)));
  out->score_cap = read_cap(family, "score_cap", file);
  out->branch_scale = read_scale(family, "branch_scale", file, 1.0f);
  out->logit_scale = read_scale(family, "logit_scale", file, 1.0f);
  out->logit_cap = read_cap(family, "logit_cap", file);
}

void read_token_ids(JsonFields& file, ModelConfig* out) {
  if (file.has("bos_token_id")) out->bos_id = file.integer("bos_token_id", {}, 0, kMaxVocabulary);
  out->eos_ids = file.integers("eos_token_id", 0, kMaxVocabulary);
}

// The second is the name that the first releases of compressed-tensors wrote.
Error read_own_quantization(JsonFields& family, JsonFields& file, ModelConfig* out) {
  for (const char* name : {"quantization_config", "compression_config"}) {
    if (!file.has(name)) continue;
    if (out->quantization || out->experts.mxfp4) {
      return error("two quantisations", file.where + ": " + name, "one of quantization_config and compression_config");
    }
    JsonFields fields = file.fields(name);
    if (has_mxfp4_experts(family, fields)) return read_mxfp4_experts(fields, &out->experts);
    if (Error e = read_quantization(fields, &out->quantization.emplace())) return e;
  }
  return {};
}

}  // namespace

Error with_assumed_sizes(const ModelConfig& config, Error e) {
  if (!e || config.assumed_sizes.empty()) return e;
  (e.actual.empty() ? e.what : e.actual) += "; config.json does not say " + joined(config.assumed_sizes);
  return e;
}

Error parse_model_config(std::string_view text, const std::string& where, ModelConfig* out) {
  Json json;
  if (Error e = parse_json(with_finite_numbers(text), where, &json)) return e;
  std::vector<Family> families;
  if (Error e = read_families(&families)) return e;

  ModelConfig config;
  const Family* found = nullptr;
  JsonFields heading{json, where};
  if (Error e = find_family(families, heading, &found, &config.architecture)) return e;
  config.family = found->name;
  JsonFields family{found->description, "configs/models/" + found->name + ".json"};
  Json said = json;
  // Beside a vision model the language model's fields lie in an object of their own.
  const bool may_nest = !json.contains("architectures") || !config.architecture.ends_with("ForCausalLM");
  if (const auto inner = json.find("text_config"); may_nest && inner != json.end() && inner->is_object()) {
    if (Error e = check_tying(json, *inner, where)) return e;
    said.erase("text_config");
    said.update(*inner);
  }
  // Names that a family's fields had before, which rule where a file has both.
  const JsonFields older = family.fields("older_fields");
  for (const auto& [from, to] : older.object.items()) {
    const auto value = said.find(from);
    if (value == said.end() || !to.is_string()) continue;
    said[to.get<std::string>()] = *value;
    said.erase(from);
  }
  // A null in the file stays: it overrides a default with "none".
  const Json& defaults = family.fields("defaults").object;
  Json merged = defaults;
  merged.update(said);
  config.assumed_sizes = assumed_sizes(defaults, said);

  JsonFields file{merged, where};
  if (Error e = read_own_quantization(family, file, &config)) return e;
  read_sizes(family, file, &config);
  if (file.error) return with_assumed_sizes(config, file.error);
  read_arithmetic(family, file, &config);
  read_ropes(family, file, &config);
  stretch_scores(&config);
  read_recurrence(family, file, &config);
  read_output_scales(family, file, &config);
  read_layers(family, file, &config);
  read_altup(family, file, &config);
  read_experts(family, file, &config);
  read_token_ids(file, &config);
  if (Error e = read_modules(family, file, &config)) return e;
  if (config.quantization) config.quantization->renamed = config.tensors.renamed;
  if (!config.names.mtp_fc.empty()) read_mtp(file, &config);
  if (Error e = check_other_fields(file, family, &config)) return e;
  if (family.error) return family.error;
  *out = std::move(config);
  return {};
}

Error read_model_config(const std::filesystem::path& folder, ModelConfig* out) {
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code)) return error("no such folder", folder.string());
  const std::filesystem::path path = folder / "config.json";
  std::string text;
  if (Error e = read_text_file(path, kMaxJsonBytes, &text)) return e;
  return parse_model_config(text, path.string(), out);
}

}  // namespace pinion
