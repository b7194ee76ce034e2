#include "loader/gguf/gguf_folder.h"

#include <cmath>
#include <numbers>
#include <set>

#include "configs/families.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf.h"

namespace pinion {
namespace {

constexpr int64_t kMaxSize = 1 << 20, kMaxFactors = 512;

constexpr const char* kTable = "configs/gguf.json";

const TensorView* find_tensor(const GgufFile& gguf, std::string_view name) {
  const auto found = std::ranges::find(gguf.tensors, name, &TensorView::name);
  return found == gguf.tensors.end() ? nullptr : &*found;
}

// Metadata of the architecture, by keys without its prefix.
struct ArchitectureFields {
  const Json& metadata;
  std::string prefix;  // "llama."
  std::set<std::string> read = {};

  Json list(const std::string& key) {
    read.insert(key);
    return metadata.value(prefix + key, Json());
  }

  // Lists with one number for each layer become that number if all are equal. Null: absent.
  Json get(const std::string& key) {
    Json value = list(key);
    const bool is_uniform = value.is_array() && !value.empty() &&
                            std::ranges::all_of(value, [&](const Json& item) { return item == value[0]; });
    return is_uniform ? Json(value[0]) : value;
  }
};

// A number in a range without overflows; 0 for other values, which the reader of the config refuses.
int64_t count_of(const Json& value) {
  return value.is_number_integer() ? std::clamp<int64_t>(value.get<int64_t>(), 0, kMaxSize) : 0;
}

// A field's value: metadata, or the difference or the quotient of two ("block_count - nextn_predict_layers"), of which
// the second may be absent; "A | B": B if A is absent; "max A": the largest number of a list.
Json value_of(const std::string& formula, ArchitectureFields* fields) {
  const std::vector<std::string_view> parts = split(formula, ' ');
  Json value = fields->get(std::string(parts[parts[0] == "max"]));
  if (parts[0] == "max" && value.is_array() && !value.empty()) return *std::ranges::max_element(value);
  if (parts.size() < 3) return value;
  const Json second = fields->get(std::string(parts[2]));
  if (parts[1] == "|") return value.is_null() ? second : value;
  if (!value.is_number_integer() || !second.is_number_integer()) return value;
  const int64_t a = count_of(value), b = count_of(second);
  return parts[1] == "-" ? a - std::min(a, b) : a / std::max<int64_t>(1, b);
}

// The factors by which a tensor divides the angles; check_factors has found them right.
Json rope_factors(const GgufFile& gguf, std::string_view name) {
  const TensorView* tensor = find_tensor(gguf, name);
  if (!tensor) return nullptr;
  std::vector<float> factors(tensor->elements());
  read_floats(*tensor, factors.data());
  return factors;
}

// llama.cpp applies factors and a scaling together, which no family does.
Error check_factors(const GgufFile& gguf, const Json& scaling, const std::string& where) {
  for (const TensorView& tensor : gguf.tensors) {
    if (!tensor.name.starts_with("rope_f")) continue;
    const bool is_plain = !tensor.name.starts_with("rope_freqs") || scaling.is_null() || scaling == "none";
    if (tensor.dtype == DType::f32 && tensor.elements() <= kMaxFactors && is_plain) continue;
    return error("unsupported factors of rope", where + ": " + tensor.name, "at most 512 of F32, without rope.scaling");
  }
  return {};
}

// Llama 3's rope is stored as factors; as a longrope with one list and no attention factor it is the same.
Json read_rope_scaling(const GgufFile& gguf, const Json& names, Json rope, ArchitectureFields* fields,
                       const Json& context_length) {
  const bool is_yarn = fields->get("rope.scaling.type") == "yarn";
  for (const auto& [key, name] : names.items()) {
    if (is_yarn && key == "rope.scaling.attn_factor") continue;  // a factor of yarn's own: left unread, so refused
    if (Json value = fields->get(key); !value.is_null()) rope[name.get<std::string>()] = std::move(value);
  }
  if (const Json factors = rope_factors(gguf, "rope_freqs.weight"); !factors.is_null()) {
    return {{"rope_type", "longrope"},
            {"short_factor", factors},
            {"long_factor", factors},
            {"attention_factor", 1.0},
            {"original_max_position_embeddings", context_length}};
  }
  if (const Json factors = rope_factors(gguf, "rope_factors_long.weight"); !factors.is_null()) {
    rope["rope_type"] = "longrope";
    rope["long_factor"] = factors;
    rope["short_factor"] = rope_factors(gguf, "rope_factors_short.weight");
    return rope;
  }
  if (!rope.contains("rope_type") || rope["rope_type"] == "none") return nullptr;
  if (rope["rope_type"] == "linear") rope.erase("original_max_position_embeddings");
  return rope;
}

// Layer types from a list with a value for each layer: true, or a number above 0, stands for the first type.
Json layer_types(const Json& by_layer, const Json& names, int64_t layers) {
  Json types = Json::array();
  for (int64_t i = 0; i < std::min(layers, std::ssize(by_layer)); ++i) {
    const Json& value = by_layer[i];
    types.push_back(names[value == true || (value.is_number() && value > 0) ? 0 : 1]);
  }
  return types;
}

// Gemma 4: heads by layer, mlps of two sizes, two ropes of which the full layers' leaves some elements unrotated.
void add_gemma4(const GgufFile& gguf, ArchitectureFields* fields, Json* config) {
  const Json types = config->value("layer_types", Json::array()), kv_heads = fields->get("attention.head_count_kv");
  const Json full = fields->get("attention.key_length"), sliding = fields->get("attention.key_length_swa");
  Json& sizes = (*config)["intermediate_size"];
  (*config)["use_double_wide_mlp"] = sizes.is_array();
  if (sizes.is_array()) sizes = Json(sizes[0]);
  (*config)["head_dim"] = sliding;
  (*config)["global_head_dim"] = full;
  for (size_t i = 0; i < types.size(); ++i) {
    const bool is_full = types[i] == "full_attention";
    Json& layer = (*config)["per_layer_config"][std::to_string(i)];
    layer["head_dim"] = is_full ? full : sliding;
    layer["num_key_value_heads"] = kv_heads.is_array() && i < kv_heads.size() ? kv_heads[i] : kv_heads;
    if (!is_full) continue;
    const std::string attention = "blk." + std::to_string(i) + ".attn_";
    if (!find_tensor(gguf, attention + "k.weight")) continue;  // it reads the keys of another layer
    (*config)["attention_k_eq_v"] = !find_tensor(gguf, attention + "v.weight");
  }
  const Json factors = rope_factors(gguf, "rope_freqs.weight");
  const auto turns = std::ranges::count_if(factors, [](const Json& factor) { return factor < 1e29; });
  const double turning = static_cast<double>(turns) / static_cast<double>(std::max<size_t>(1, factors.size()));
  (*config)["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"}, {"partial_rotary_factor", turning}, {"rope_theta", (*config)["rope_theta"]}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", fields->get("rope.freq_base_swa")}}}};
  for (const char* field : {"rope_theta", "rope_scaling", "partial_rotary_factor"}) config->erase(field);
}

// Numbers as config.json has them, from others that were computed of them in single precision.
double restored(double value) { return std::round(value * 1e6) / 1e6; }

// Gemma 3n: the cuts of sparse gates, in standard deviations; other layers have the largest negative number.
void add_gemma3n(ArchitectureFields* fields, Json* config) {
  const Json cuts = fields->list("activation_sparsity_scale");
  for (const Json& cut : cuts.is_array() ? cuts : Json::array()) {
    const double below = cut.is_number() ? std::erfc(-cut.get<double>() / std::numbers::sqrt2) / 2.0 : -1.0;
    (*config)["activation_sparsity_pattern"].push_back(restored(below));
  }
}

// DeepSeek: a tenth of mscale_all_dim, which is also mscale.
void add_deepseek2(Json* config) {
  const Json rope = config->value("rope_scaling", Json::object()), tenth = rope.value("mscale_all_dim", Json());
  if (!tenth.is_number()) return;
  for (const char* name : {"mscale", "mscale_all_dim"}) {
    (*config)["rope_scaling"][name] = restored(10.0 * tenth.get<double>());
  }
}

Json end_ids(const Json& metadata) {
  std::set<int64_t> ids;
  for (const char* name : {"eos", "eot", "eom"}) {
    const Json id = metadata.value("tokenizer.ggml." + std::string(name) + "_token_id", Json());
    if (id.is_number_integer()) ids.insert(id.get<int64_t>());
  }
  return ids;
}

// The name of the table's row for an architecture; models with experts, windows, rope switched off, or a router with
// corrections may have one of their own. (Routers with corrections take sigmoids; not all files have
// expert_gating_func.)
Error find_row(const Json& table, const ArchitectureFields& fields, const GgufFile& gguf, const std::string& where,
               std::string* out) {
  const Json& rows = table["architectures"];
  std::string name = fields.prefix.substr(0, fields.prefix.size() - 1);
  for (const auto& [variant, key] : {std::pair(":experts", "expert_count"),
                                     {":windows", "attention.sliding_window"},
                                     {":nope", "rope.scaling.finetuned"}}) {
    const Json count = fields.metadata.value(fields.prefix + key, Json(0));
    if (rows.contains(name + variant) && (count == false || (count.is_number() && count > 0))) name += variant;
  }
  const auto is_correction = [](const TensorView& tensor) { return tensor.name.ends_with(".exp_probs_b.bias"); };
  if (rows.contains(name + ":corrected") && std::ranges::any_of(gguf.tensors, is_correction)) name += ":corrected";
  if (!rows.contains(name)) {
    std::vector<std::string> known;
    for (const auto& [row, value] : rows.items()) known.push_back(row.substr(0, row.find(':')));
    known.erase(std::ranges::unique(known).begin(), known.end());
    return error("unknown architecture", where + ": general.architecture", "one of " + joined(known), brief(name));
  }
  *out = name;
  return {};
}

Error check_all_read(const ArchitectureFields& fields, const std::string& where) {
  std::vector<std::string> left;
  for (const auto& [key, value] : fields.metadata.items()) {
    const bool is_own = key.starts_with(fields.prefix);
    if (is_own && !fields.read.contains(key.substr(fields.prefix.size()))) left.push_back(key);
  }
  if (left.empty()) return {};
  return error("metadata that Pinion does not read and that may change the result", where, {}, joined(left));
}

}  // namespace

Error make_config(const GgufFile& gguf, const std::string& where, Json* out) {
  Json table;
  std::string row_name;
  if (Error e = parse_json(gguf_text(), kTable, &table)) return e;
  JsonFields general{gguf.metadata, where};
  const std::string kind = general.text("general.type", "model");
  if (kind != "model") general.fail("general.type", "not a model: give the model's file", "model", brief(kind));
  ArchitectureFields fields{gguf.metadata, general.text("general.architecture") + "."};
  if (general.error) return general.error;
  if (Error e = find_row(table, fields, gguf, where, &row_name)) return e;
  Json row = std::move(table["architectures"][row_name]);
  for (const Json* required : {&table["required"], &row["required"]}) {
    for (const Json& keys : *required) {  // the families' defaults are those of other files
      const auto is_given = [&](const Json& key) { return general.has(fields.prefix + key.get<std::string>()); };
      if (std::ranges::none_of(keys, is_given))
        general.fail(fields.prefix + keys[0].get<std::string>(), "missing field");
    }
  }
  for (const Json* fixed : {&table["fixed"], &row["fixed"]}) {
    for (const auto& [key, value] : fixed->items()) {
      const Json found = fields.get(key);
      if (!found.is_null() && found != value)
        general.fail(fields.prefix + key, "unsupported", brief(value), brief(found));
    }
  }
  if (general.error) return general.error;
  if (Error e = check_factors(gguf, fields.get("rope.scaling.type"), where)) return e;
  Json config = table["config"], names = table["fields"];
  config.update(row["config"]);
  names.merge_patch(row.value("fields", Json::object()));
  names.update(row.value("fields_by_layers", Json::object()).value(fields.get("block_count").dump(), Json::object()));
  for (const auto& [name, key] : names.items()) {
    Json value = value_of(key.get<std::string>(), &fields);
    if (name == "num_key_value_heads" && value.is_null()) value = config["num_attention_heads"];
    if (!value.is_null() || name == "sliding_window" || name == "head_dim") config[name] = std::move(value);
  }
  for (const auto& [name, tensor] : row["flags"].items()) {
    const std::string which = tensor;  // "!TENSOR": true if it is absent
    config[name] = which[0] == '!' ? !find_tensor(gguf, which.substr(1)) : find_tensor(gguf, which) != nullptr;
  }
  for (const auto& [name, tensor] : table["rows"].items()) {
    if (const TensorView* found = find_tensor(gguf, tensor.get<std::string>())) config[name] = found->shape[0];
  }
  const auto is_mxfp4 = [](const TensorView& tensor) {
    return tensor.dtype == DType::mxfp4 && tensor.name.ends_with("_exps.weight");
  };
  if (std::ranges::any_of(gguf.tensors, is_mxfp4)) config["quantization_config"]["quant_method"] = "mxfp4";
  config["tie_word_embeddings"] = find_tensor(gguf, "output.weight") == nullptr;
  if (const Json types = row.value("layer_types", Json()); !types.is_null()) {
    const int64_t layers = count_of(config["num_hidden_layers"]);
    const Json by_layer = fields.list(types["key"].get<std::string>());
    if (by_layer.is_array()) config["layer_types"] = layer_types(by_layer, types["names"], layers);
    if (by_layer.is_null() && types.contains("absent")) config["layer_types"] = Json(layers, types["absent"]);
    const Json others = types.value("others", Json::object());
    for (const auto& [key, name] : others.items()) {
      const Json sizes = fields.list(key);
      for (size_t i = 0; sizes.is_array() && i < std::min(sizes.size(), config["layer_types"].size()); ++i) {
        if (sizes[i] > 0) config["layer_types"][i] = name;
      }
    }
  }
  Json rope = read_rope_scaling(gguf, table["rope_scaling"], row.value("rope_scaling", Json::object()), &fields,
                                config.value("max_position_embeddings", Json()));
  if (rope.contains("long_factor")) {
    config["original_max_position_embeddings"] = rope.value("original_max_position_embeddings", Json());
  }
  if (!rope.is_null()) config["rope_scaling"] = std::move(rope);
  const Json rotated = fields.get("rope.dimension_count");
  if (rotated.is_number() && std::ranges::count(row["ignored"], "rope.dimension_count") == 0) {
    const int64_t heads = std::max<int64_t>(1, count_of(config["num_attention_heads"]));
    const Json& head_dim = config["head_dim"];
    const int64_t width = head_dim.is_null() ? count_of(config["hidden_size"]) / heads : count_of(head_dim);
    // The product with the width is cut to a whole number, hence half more.
    const double fraction = (rotated.get<double>() + 0.5) / static_cast<double>(std::max<int64_t>(1, width));
    config["partial_rotary_factor"] = std::min(1.0, fraction);
  }
  if (fields.prefix == "gemma4.") add_gemma4(gguf, &fields, &config);
  if (fields.prefix == "gemma3n.") add_gemma3n(&fields, &config);
  if (fields.prefix == "deepseek2.") add_deepseek2(&config);
  if (const Json* id = general.find("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = *id;
  config["eos_token_id"] = end_ids(gguf.metadata);
  config[kGgufRow] = row_name;
  for (const Json* ignored : {&table["ignored"], &row["ignored"]}) {
    for (const Json& name : *ignored) fields.read.insert(name.get<std::string>());
  }
  if (Error e = check_all_read(fields, where)) return e;
  *out = std::move(config);
  return {};
}

Error family_changes(const std::string& row, const std::string& where, Json* out) {
  Json table;
  if (Error e = parse_json(gguf_text(), kTable, &table)) return e;
  const auto found = table["architectures"].find(row);
  if (found == table["architectures"].end()) return error("unknown", where + ": " + kGgufRow, {}, brief(row));
  *out = std::move(table["description"]);
  out->update(found->value("description", Json::object()), true);
  return {};
}

Error adapter_row(const std::string& own_row, const std::string& family, const std::string& architecture,
                  std::string* out) {
  Json table;
  std::string fitting;
  if (Error e = parse_json(gguf_text(), kTable, &table)) return e;
  for (const auto& [name, row] : table["architectures"].items()) {
    const Json families = row.value("families", Json::array({row["config"]["model_type"]}));
    if (std::ranges::count(families, Json(family)) == 0 || (!own_row.empty() && own_row != name)) continue;
    *out = name;
    fitting = name.substr(0, name.find(':'));
    if (architecture.empty() || architecture == fitting) return {};
  }
  return error("such adapters do not fit this model", "--lora", fitting, architecture);
}

Error make_generation_config(const Json& metadata, Json* out) {
  Json table;
  if (Error e = parse_json(gguf_text(), kTable, &table)) return e;
  *out = {{"eos_token_id", end_ids(metadata)}};
  for (const auto& [key, name] : table["sampling"].items()) {
    if (!metadata.contains(key)) continue;
    (*out)[name.get<std::string>()] = metadata[key];
    (*out)["do_sample"] = true;
  }
  return {};
}

}  // namespace pinion
