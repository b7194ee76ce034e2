#include "loader/model_config.h"

#include <algorithm>

#include "configs/families.h"
#include "kernels/layout.h"
#include "loader/json.h"
#include "loader/mapped_file.h"

namespace pinion {
namespace {

std::string joined(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

// A description of configs/models with the program's own name for it.
struct Family {
  std::string name;
  Json description;
};

Error read_families(std::vector<Family>* out) {
  for (const FamilyText& text : family_texts()) {
    const std::string name(text.name);
    if (Error e =
            parse_json(text.json, "configs/models/" + name + ".json", &out->emplace_back(name, Json()).description)) {
      return e;
    }
  }
  return {};
}

// The family that lists one of the file's architectures, or, in a file without any, its model_type.
Error find_family(const std::vector<Family>& families, JsonFields& file, const Family** out,
                  std::string* architecture) {
  std::vector<std::string> names = file.texts("architectures");
  const std::string type = file.text("model_type", "");
  const bool by_type = names.empty();
  if (by_type) names = {type};
  std::vector<std::string> supported;
  for (const Family& family : families) {
    JsonFields fields{family.description, family.name};
    const std::vector<std::string> types = fields.texts("model_types");
    const std::vector<std::string> architectures = fields.texts("architectures");
    supported.insert(supported.end(), architectures.begin(), architectures.end());
    const auto match = std::ranges::find_first_of(names, by_type ? types : architectures);
    if (match == names.end()) continue;
    if (!type.empty() && std::ranges::find(types, type) == types.end()) {
      file.fail("model_type", "does not fit " + *match, joined(types), brief(type));
    }
    *out = &family;
    *architecture = by_type ? architectures[0] : *match;
    return file.error;
  }
  file.fail(by_type ? "model_type" : "architectures", "unknown architecture", "one of " + joined(supported),
            brief(joined(names)));
  return file.error;
}

// A switch of the description: true, false, or the name of the field of config.json that says it.
bool read_switch(JsonFields& family, std::string_view name, JsonFields& file) {
  const Json* value = family.find(name);
  return value && value->is_string() ? file.boolean(value->get<std::string>()) : family.boolean(name);
}

void read_sizes(JsonFields& file, ModelConfig* out) {
  out->layers = file.integer("num_hidden_layers", {}, 1, kMaxLayers);
  out->hidden_size = file.integer("hidden_size", {}, 1, kMaxK);
  out->intermediate_size = file.integer("intermediate_size", {}, 1, kMaxK);
  out->heads = file.integer("num_attention_heads", {}, 1, kMaxK);
  out->kv_heads = file.integer("num_key_value_heads", out->heads, 1, kMaxK);
  if (out->heads % out->kv_heads != 0) {
    file.fail("num_key_value_heads", "does not divide num_attention_heads", {},
              std::to_string(out->kv_heads) + " and " + std::to_string(out->heads));
  }
  if (!file.has("head_dim") && out->hidden_size % out->heads != 0) {
    file.fail("num_attention_heads", "does not divide hidden_size", {},
              std::to_string(out->heads) + " and " + std::to_string(out->hidden_size));
  }
  out->head_dim = file.integer("head_dim", out->hidden_size / out->heads);
  if (out->head_dim < 2 || out->head_dim > kMaxHeadDim || out->head_dim % 2 != 0) {
    file.fail("head_dim", "out of range", "an even number from 2 to " + std::to_string(kMaxHeadDim),
              std::to_string(out->head_dim));
  }
  if (out->heads * out->head_dim > kMaxK) {
    file.fail("head_dim", "attention too wide", "at most " + std::to_string(kMaxK) + " for all heads",
              std::to_string(out->heads * out->head_dim));
  }
  out->vocab_size = file.integer("vocab_size", {}, 1, kMaxVocabulary);
  out->max_positions = file.integer("max_position_embeddings", {}, 1, kMaxPositions);
  out->rms_norm_eps = static_cast<float>(file.number("rms_norm_eps", {}, 0.0, 1.0));
}

// Qwen: layer_types says which layers slide; without it those from max_window_layers on do.
void read_layer_windows(JsonFields& file, ModelConfig* out) {
  const bool sliding = file.boolean("use_sliding_window", false);
  const int64_t first = file.integer("max_window_layers", 0, 0, kMaxPositions);
  const int64_t window = file.integer("sliding_window", 0, 0, kMaxPositions);
  std::vector<std::string> types = file.texts("layer_types");
  if (types.empty()) {
    types.assign(static_cast<size_t>(out->layers), "full_attention");
    for (int64_t i = first; sliding && window > 0 && i < out->layers; i++) types[i] = "sliding_attention";
  }
  if (static_cast<int64_t>(types.size()) != out->layers) {
    file.fail("layer_types", "wrong length", std::to_string(out->layers), std::to_string(types.size()));
    return;
  }
  for (size_t i = 0; i < types.size(); i++) {
    if (types[i] == "full_attention") continue;
    if (types[i] != "sliding_attention") file.fail("layer_types", "unknown layer type", {}, brief(types[i]));
    if (!sliding || window == 0) file.fail("layer_types", "sliding layers without a window");
    out->windows[i] = window;
  }
}

void read_windows(JsonFields& family, JsonFields& file, ModelConfig* out) {
  out->windows.assign(static_cast<size_t>(out->layers), 0);
  const std::string rule = family.text("windows");
  if (rule == "layers") read_layer_windows(file, out);
  if (rule != "all" || !file.has("sliding_window")) return;
  std::ranges::fill(out->windows, file.integer("sliding_window", {}, 1, kMaxPositions));
}

struct RopeKindRow {
  std::string_view name;
  RopeKind kind;
};

constexpr RopeKindRow kRopeKinds[] = {
    {"default", RopeKind::none}, {"linear", RopeKind::linear}, {"dynamic", RopeKind::dynamic},
    {"yarn", RopeKind::yarn},    {"llama3", RopeKind::llama3},
};

// Fields of every kind are read whatever the kind is: those of another kind do nothing, as in transformers.
void read_rope_fields(JsonFields& rope, ModelConfig* out) {
  Rope& r = out->rope;
  const std::string old_name = rope.text("type", "default");
  const std::string name = rope.text("rope_type", old_name);
  const auto row = std::ranges::find(kRopeKinds, name, &RopeKindRow::name);
  if (row == std::end(kRopeKinds)) {
    return rope.fail("rope_type", "unknown kind", "default, linear, dynamic, yarn or llama3", brief(name));
  }
  r.kind = row->kind;
  r.theta = rope.number("rope_theta", r.theta, 1.0, 1e15);
  r.original_max_positions = rope.integer("original_max_position_embeddings", out->max_positions, 1, kMaxPositions);
  std::optional<double> factor;
  if (r.kind == RopeKind::none) factor = 1.0;
  if (r.kind == RopeKind::yarn) {
    factor = static_cast<double>(out->max_positions) / static_cast<double>(r.original_max_positions);
  }
  r.factor = rope.number("factor", factor, 1e-3, 1e6);
  const bool llama3 = r.kind == RopeKind::llama3;
  const std::optional<double> optional_here = llama3 ? std::nullopt : std::optional(0.0);
  r.low_freq_factor = rope.number("low_freq_factor", optional_here, 0.0, 1e6);
  r.high_freq_factor = rope.number("high_freq_factor", optional_here, 0.0, 1e6);
  if (llama3 && !(r.low_freq_factor > 0.0 && r.high_freq_factor > r.low_freq_factor)) {
    rope.fail("high_freq_factor", "out of range", "more than low_freq_factor, which is more than 0");
  }
  if (rope.has("attention_factor")) r.attention_factor = rope.number("attention_factor", {}, 0.0, 1e6);
  r.mscale = rope.number("mscale", r.mscale, 0.0, 1e6);
  r.mscale_all_dim = rope.number("mscale_all_dim", r.mscale_all_dim, 0.0, 1e6);
  r.beta_fast = rope.number("beta_fast", r.beta_fast, 1e-3, 1e6);
  r.beta_slow = rope.number("beta_slow", r.beta_slow, 1e-3, 1e6);
  r.truncate = rope.boolean("truncate", r.truncate);
  if (rope.number("partial_rotary_factor", 1.0) != 1.0) rope.fail("partial_rotary_factor", "not supported", "1");
  rope.boolean("finetuned", false);  // a note of some authors
  if (const auto unknown = rope.unread(); !unknown.empty()) rope.fail(brief(joined(unknown)), "unknown field");
}

// Two spellings: rope_theta beside rope_scaling, or all of it in rope_parameters. What is inside rules.
void read_rope(JsonFields& file, ModelConfig* out) {
  out->rope.theta = file.number("rope_theta", out->rope.theta, 1.0, 1e15);
  const std::optional<int64_t> outer =
      file.has("original_max_position_embeddings")
          ? std::optional(file.integer("original_max_position_embeddings", {}, 1, kMaxPositions))
          : std::nullopt;
  const JsonFields parameters = file.fields("rope_parameters");
  JsonFields scaling = file.fields("rope_scaling");
  JsonFields rope{scaling.object.empty() ? parameters.object : scaling.object,
                  scaling.object.empty() ? parameters.where : scaling.where, scaling.error};
  read_rope_fields(rope, out);
  if (outer) out->rope.original_max_positions = *outer;
  file.error = rope.error;
}

void read_token_ids(JsonFields& file, ModelConfig* out) {
  if (file.has("bos_token_id")) out->bos_id = file.integer("bos_token_id", {}, 0, kMaxVocabulary);
  out->eos_ids = file.integers("eos_token_id", 0, kMaxVocabulary);
}

void read_names(JsonFields& modules, ModuleNames* out) {
  out->embedding = modules.text("embedding");
  out->final_norm = modules.text("final_norm");
  out->head = modules.text("head");
  out->attention_norm = modules.text("attention_norm");
  out->q = modules.text("q");
  out->k = modules.text("k");
  out->v = modules.text("v");
  out->o = modules.text("o");
  out->q_norm = modules.text("q_norm", "");
  out->k_norm = modules.text("k_norm", "");
  out->mlp_norm = modules.text("mlp_norm");
  out->gate = modules.text("gate");
  out->up = modules.text("up");
  out->down = modules.text("down");
}

// Quantised weights bring their own tensors; reading such a file as if it had none would fail later and less clearly.
void refuse_quantised(JsonFields& file) {
  for (const char* name : {"quantization_config", "compression_config"}) {
    if (!file.has(name)) continue;
    JsonFields inside = file.fields(name);
    file.fail(name, "quantised checkpoints are not supported", {}, "quant_method " + inside.text("quant_method", "?"));
  }
}

// A switch that is off asks for nothing.
bool is_off(const Json& value) { return value == false || (value.is_structured() && value.empty()); }

// Fields that must have one value, and those that nobody read. `file` holds the family's defaults too.
Error check_other_fields(JsonFields& file, const std::string& family) {
  Json common;
  if (Error e = parse_json(common_fields_text(), "configs/common_fields.json", &common)) return e;
  JsonFields lists{common, "configs/common_fields.json"};
  for (const auto& [name, wanted] : lists.fields("fixed").object.items()) {
    const Json* value = file.find(name);
    if (value && *value != wanted) file.fail(name, "not supported", brief(wanted), brief(*value));
  }
  const std::vector<std::string> ignored = lists.texts("ignored");
  std::vector<std::string> unknown;
  for (const std::string& name : file.unread()) {
    if (is_off(file.object[name]) || std::ranges::find(ignored, name) != ignored.end()) continue;
    unknown.push_back(brief(name));
  }
  if (lists.error) return lists.error;
  if (file.error || unknown.empty()) return file.error;
  return error("fields unknown to family " + family, file.where, {}, joined(unknown));
}

}  // namespace

std::string module_name(std::string_view pattern, int64_t layer) {
  std::string name(pattern);
  const size_t place = name.find("{}");
  if (place != std::string::npos) name.replace(place, 2, std::to_string(layer));
  return name;
}

Error parse_model_config(std::string_view text, const std::string& where, ModelConfig* out) {
  Json json;
  if (Error e = parse_json(text, where, &json)) return e;
  std::vector<Family> families;
  if (Error e = read_families(&families)) return e;

  ModelConfig config;
  const Family* found = nullptr;
  JsonFields heading{json, where};
  if (Error e = find_family(families, heading, &found, &config.architecture)) return e;
  config.family = found->name;
  JsonFields family{found->description, "configs/models/" + found->name + ".json"};
  // A null in the file stays: it overrides a default with "none".
  Json merged = family.fields("defaults").object;
  merged.update(json);

  JsonFields file{merged, where};
  refuse_quantised(file);
  read_sizes(file, &config);
  if (file.error) return file.error;
  config.tied_head = file.boolean("tie_word_embeddings");
  config.qkv_bias = read_switch(family, "qkv_bias", file);
  config.o_bias = read_switch(family, "o_bias", file);
  config.mlp_bias = read_switch(family, "mlp_bias", file);
  config.qk_norm = read_switch(family, "qk_norm", file);
  read_windows(family, file, &config);
  read_rope(file, &config);
  read_token_ids(file, &config);
  JsonFields modules = family.fields("modules");
  read_names(modules, &config.names);
  if (modules.error) return modules.error;
  if (Error e = check_other_fields(file, config.family)) return e;
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
