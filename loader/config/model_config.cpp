#include "loader/config/model_config.h"

#include <nlohmann/json.hpp>

#include "loader/config/config_parts.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

// The two objects must agree: some tools read the one, some the other.
Error check_tying(const Json& outer, const Json& inner, const std::string& where) {
  constexpr const char* kField = "tie_word_embeddings";
  const auto a = outer.find(kField);
  const auto b = inner.find(kField);
  if (a == outer.end() || b == inner.end() || *a == *b) return {};
  return error("differs from text_config's", where + ": " + kField, brief(*b), brief(*a));
}

// Python writes an unbounded number as Infinity, which is not JSON. Replaces it by 1e308.
std::string without_infinity(std::string_view text) {
  constexpr std::string_view kInfinite = "Infinity";
  std::string out;
  bool in_string = false;
  for (size_t i = 0, taken = 0; i < text.size(); i += taken) {
    const bool is_infinite = !in_string && text.substr(i).starts_with(kInfinite);
    taken = is_infinite ? kInfinite.size() : in_string && text[i] == '\\' ? 2 : 1;
    if (text[i] == '"') in_string = !in_string;
    out += is_infinite ? "1e308" : text.substr(i, taken);
  }
  return out;
}

// Sizes for which the family's default applies. If a file lacks one by mistake, its tensors have other shapes.
std::vector<std::string> assumed_sizes(const Json& defaults, const Json& given) {
  std::vector<std::string> names;
  for (const char* name :
       {"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
        "head_dim", "vocab_size", "num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size",
        "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    const auto value = defaults.find(name);
    if (value == defaults.end() || value->is_null() || given.contains(name)) continue;
    names.push_back(name + (" (" + brief(*value) + " assumed)"));
  }
  return names;
}

void read_head_dim(JsonFields& family, JsonFields& file, int64_t hidden_size, LayerConfig* out) {
  if (!file.has("head_dim")) check_divides(file, "num_attention_heads", out->heads, "hidden_size", hidden_size);
  out->head_dim = file.integer("head_dim", hidden_size / out->heads);
  out->value_dim = family.has("value_dim") ? file.integer(family.text("value_dim"), {}, 1, kMaxHeadDim) : out->head_dim;
}

// LFM2: the mlp's width is two thirds of the config's times a factor, rounded up to a multiple.
int64_t adjusted_size(JsonFields& file, int64_t size) {
  const int64_t step = file.integer("block_multiple_of", {}, 1, kMaxK);
  const double factor = file.number("block_ffn_dim_multiplier", 0.0, 0.0, 64.0);
  if (!file.boolean("block_auto_adjust_ff_dim") || file.error) return size;
  size = std::max<int64_t>(1, 2 * size / 3);
  if (factor == 0.0) return size;  // null
  size = static_cast<int64_t>(factor * static_cast<double>(size));
  size = (size + step - 1) / step * step;
  if (size < 1 || size > kMaxK) {
    file.fail("block_ffn_dim_multiplier", "mlp out of range", "1 to " + std::to_string(kMaxK), size);
  }
  return size;
}

void read_intermediate_size(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string field = family.text("intermediate_size", "intermediate_size");
  std::optional<int64_t> absent;
  if (family.has("intermediate_factor")) absent = out->hidden_size * family.integer("intermediate_factor", {}, 1, 64);
  const bool may_differ = family.boolean("intermediate_sizes", false);
  std::vector<int64_t> sizes =
      may_differ ? file.integers(field, 1, kMaxK) : std::vector<int64_t>{file.integer(field, absent, 1, kMaxK)};
  const int64_t divisor = family.integer("intermediate_divisor", 1, 1, 64);
  for (int64_t& size : sizes) size = std::max<int64_t>(1, size / divisor);
  if (family.boolean("adjusts_intermediate_size", false)) sizes[0] = adjusted_size(file, sizes[0]);
  check_width(file, field, sizes.empty() ? 0 : sizes[0], "mlp too wide", "the mlp");
  if (sizes.size() == 1) sizes.resize(out->layers, sizes[0]);
  if (std::ssize(sizes) != out->layers) {
    return file.fail(field, "wrong length", "1 or " + std::to_string(out->layers), sizes.size());
  }
  for (int64_t i = 0; i < out->layers; ++i) out->layer[i].mlp_size = sizes[i];
}

// Layers may differ in their number of heads (Laguna).
void read_layer_heads(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string field = family.text("heads_by_layer", "");
  if (field.empty() || !file.has(field)) return;
  const std::vector<int64_t> heads = file.integers(field, 1, kMaxK);
  if (!has_length(file, field, out->layers, std::ssize(heads))) return;
  for (int64_t i = 0; i < out->layers; ++i) {
    out->layer[i].heads = heads[i];
    check_heads(file, out->layer[i]);
  }
}

void read_sizes(JsonFields& family, JsonFields& file, ModelConfig* out) {
  // Transformers 5 omits the number in families with layer types.
  const int64_t listed = file.has("num_hidden_layers") ? 0 : listed_layers(file);
  const std::optional<int64_t> absent = listed > 0 ? std::optional(listed) : std::nullopt;
  out->layers = file.integer("num_hidden_layers", absent, 1, kMaxLayers);
  out->hidden_size = file.integer("hidden_size", {}, 1, kMaxK);
  out->qkv_by_head = family.boolean("qkv_by_head", false);
  LayerConfig layer;
  layer.heads = file.integer("num_attention_heads", {}, 1, kMaxK);
  layer.kv_heads = file.integer(family.text("kv_heads", "num_key_value_heads"), layer.heads, 1, kMaxK);
  const bool is_latent = family.boolean("latent_attention", false);
  is_latent ? read_latent(file, out, &layer) : read_head_dim(family, file, out->hidden_size, &layer);
  check_heads(file, layer);
  out->qkv_blocks = family.integer("qkv_blocks", 0, 1, 64);
  if (out->qkv_blocks > 0) check_divides(file, "qkv_blocks", out->qkv_blocks, "num_attention_heads", layer.heads);
  out->layer.assign(out->layers, layer);
  const std::string image_layers = family.text("image_layers", "");
  if (!image_layers.empty()) {
    for (const int64_t i : file.integers(image_layers, 0, kMaxLayers)) {
      if (i < out->layers) out->layer[i].attends = out->layer[i].has_mlp = false;
    }
  }
  read_layer_heads(family, file, out);
  read_intermediate_size(family, file, out);
  const int64_t rows = file.integer("vocab_size", {}, 1, kMaxVocabulary);
  const std::string head_rows = family.text("head_rows", "");
  out->vocab_size = head_rows.empty() ? rows : file.integer(head_rows, rows, 1, rows);
  out->extra_rows = rows - out->vocab_size + family.integer("extra_rows", 0, 0, kMaxK);
  out->max_positions = file.integer("max_position_embeddings", {}, 1, kMaxPositions);
  if (family.fields("modules").has("positions")) {
    out->position_rows = out->max_positions + family.integer("position_offset", 0, 0, kMaxK);
  }
  out->transposed = family.boolean("transposed", false);
  out->norm_eps = static_cast<float>(file.number(family.text("norm_eps", "rms_norm_eps"), {}, 0.0, 1.0));
}

// The first releases of compressed-tensors wrote the second name.
Error read_quantization_config(JsonFields& family, JsonFields& file, ModelConfig* out) {
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

// Zamba: attention and an mlp before a recurrence are a layer of their own.
void split_blocks(JsonFields& file, ModelConfig* out) {
  check_width(file, "hidden_size", 2 * out->hidden_size, "too wide", "the stream and the embedding");
  std::vector<LayerConfig> layers;
  for (int64_t i = 0; i < out->layers; ++i) {
    LayerConfig layer = out->layer[i];
    layer.number = i;
    if (layer.attends) {
      LayerConfig& block = layers.emplace_back(layer);
      block.is_block = block.has_mlp = layer.follows_block = true;
      block.recurrent = layer.attends = false;
    }
    layers.push_back(layer);
  }
  out->layer = std::move(layers);
  out->layers = std::ssize(out->layer);
}

// Changes a family's description to that of its GGUF files. The names of modules are those of all families.
void apply_changes(const Json& changes, Json* description) {
  Json modules = (*description)["modules"];
  const Json renamed = changes.value("modules", Json::object());
  for (auto& [key, name] : modules.items()) {
    if (!name.is_null() && renamed.contains(key)) name = renamed[key];
  }
  description->merge_patch(changes);
  (*description)["modules"] = std::move(modules);
}

// A description with the differences of files in which a field has some value. A null counts as absent.
Json with_variants(Json description, const Json& given) {
  const Json variants = description.value("variants", Json::array());
  for (const Json& variant : variants) {
    const std::string field = variant.at("field");
    const Json value = given.value(field, Json()), absent = description["defaults"].value(field, Json());
    if ((value.is_null() ? absent : value) == variant.at("is")) description.merge_patch(variant.at("then"));
  }
  return description;
}

}  // namespace

void check_heads(JsonFields& file, const LayerConfig& layer) {
  check_divides(file, "num_key_value_heads", layer.kv_heads, "num_attention_heads", layer.heads);
  if (layer.head_dim < 2 || layer.head_dim > kMaxHeadDim || layer.head_dim % 2 != 0) {
    file.fail("head_dim", "out of range", "an even number from 2 to " + std::to_string(kMaxHeadDim), layer.head_dim);
  }
  if (file.error || layer.is_latent()) return;  // the product could overflow
  const int64_t widest = std::max(layer.head_dim, layer.value_dim);
  check_width(file, "head_dim", layer.heads * widest, "attention too wide", "all heads");
}

void check_divides(JsonFields& file, std::string_view field, int64_t part, const std::string& of, int64_t whole) {
  if (whole % part == 0) return;
  file.fail(field, "does not divide " + of, {}, std::to_string(part) + " and " + std::to_string(whole));
}

void check_width(JsonFields& file, std::string_view field, int64_t width, const char* what, const std::string& parts) {
  if (file.error || width <= kMaxK) return;
  file.fail(field, what, at_most(kMaxK) + " for " + parts, width);
}

bool has_length(JsonFields& file, std::string_view field, int64_t expected, int64_t actual) {
  if (actual != expected) file.fail(field, "wrong length", expected, actual);
  return actual == expected;
}

int64_t attention_layers(const ModelConfig& config) {
  return std::ranges::count(config.layer, true, &LayerConfig::attends);
}

int64_t recurrent_layers(const ModelConfig& config) {
  return std::ranges::count(config.layer, true, &LayerConfig::recurrent);
}

Error with_assumed_sizes(const ModelConfig& config, Error e) {
  if (!e || config.assumed_sizes.empty()) return e;
  (e.actual.empty() ? e.what : e.actual) += "; config.json lacks " + joined(config.assumed_sizes);
  return e;
}

Error parse_model_config(std::string_view text, const std::string& where, ModelConfig* out, bool has_row) {
  Json json;
  if (Error e = parse_json(without_infinity(text), where, &json)) return e;
  std::vector<Family> families;
  if (Error e = read_families(family_texts(), &families)) return e;

  ModelConfig config;
  const Family* found = nullptr;
  JsonFields heading{json, where};
  if (Error e = find_family(families, heading, &found, &config.architecture)) return e;
  config.family = found->name;
  Json given = json;
  // In a vision-language model, text_config holds the fields of the language model.
  const auto inner = json.find("text_config");
  const bool is_typed = inner != json.end() && inner->contains("model_type");
  const bool may_nest = is_typed || !json.contains("architectures") || !config.architecture.ends_with("ForCausalLM");
  if (may_nest && inner != json.end() && inner->is_object()) {
    if (Error e = check_tying(json, *inner, where)) return e;
    given.erase("text_config");
    given.update(*inner);
  }
  Json description = with_variants(found->description, given);
  if (has_row && given.contains(kGgufRow)) {
    Json changes;
    if (Error e = family_changes(heading.text(kGgufRow), where, &changes)) return e;
    apply_changes(changes, &description);
    given.erase(kGgufRow);
  }
  JsonFields family{description, found->path()};
  // Older names of fields; if a file has both, the older one wins.
  const JsonFields renamed = family.fields("renamed_fields");
  for (const auto& [from, to] : renamed.object.items()) {
    const auto value = given.find(from);
    if (value == given.end() || !to.is_string()) continue;
    given[to.get<std::string>()] = *value;
    given.erase(from);
  }
  for (const std::string& name : family.texts("nested_fields")) {
    const Json nested = given.value(name, Json());
    if (!nested.is_object()) continue;
    given.erase(name);
    given.update(nested);
  }
  // A null in the file stays and so overrides a default with "none", except in rope_parameters.
  if (const auto rope = given.find("rope_parameters"); rope != given.end() && rope->is_null()) given.erase(rope);
  const Json& defaults = family.fields("defaults").object;
  Json merged = defaults;
  merged.update(given);
  config.assumed_sizes = assumed_sizes(defaults, given);

  JsonFields file{merged, where};
  if (Error e = read_quantization_config(family, file, &config)) return e;
  read_sizes(family, file, &config);
  if (file.error) return with_assumed_sizes(config, file.error);
  read_arithmetic(family, file, &config);
  read_recurrence(family, file, &config);
  if (config.attends_both_ways && recurrent_layers(config) > 0) {
    file.fail("is_causal", "not supported with recurrent layers", "true", "false");
  }
  read_output_scales(family, file, &config);
  read_layers(family, file, &config);
  read_ropes(family, file, &config);
  read_shared_kv(family, file, &config);
  read_altup(family, file, &config);
  read_experts(family, file, &config);
  if (family.has("blocks")) split_blocks(file, &config);
  if (file.has("bos_token_id")) config.bos_id = file.integer("bos_token_id", {}, 0, kMaxVocabulary);
  config.eos_ids = file.integers("eos_token_id", 0, kMaxVocabulary);
  if (Error e = read_modules(family, file, &config)) return e;
  if (config.quantization) config.quantization->renamed = config.tensors.renamed;
  if (!config.name("mtp_fc").empty()) {  // a file may have the MTP layer's tensors without any of these fields
    config.mtp.layers = file.integer("mtp_num_hidden_layers", 1, 0, kMaxLayers);
    config.mtp.dedicated_embedding = file.boolean("mtp_use_dedicated_embeddings", false);
  }
  if (Error e = check_other_fields(file, family, &config)) return e;
  if (family.error) return family.error;
  *out = std::move(config);
  return {};
}

Error read_model_config(const std::filesystem::path& folder, ModelConfig* out) {
  std::error_code code;
  const bool is_file = is_gguf(folder);
  if (!is_file && !std::filesystem::is_directory(folder, code)) return error("no such folder", folder.string());
  std::string text;
  if (Error e = read_model_text(folder, "config.json", kMaxJsonBytes, &text)) return e;
  return parse_model_config(text, (is_file ? folder : folder / "config.json").string(), out, true);
}

}  // namespace pinion
