#include <nlohmann/json.hpp>

#include "loader/config/config_parts.h"

namespace pinion {
namespace {

void read_names(JsonFields& modules, ModuleNames* out) {
  out->embedding = modules.text("embedding");
  out->final_norm = modules.text("final_norm");
  out->head = modules.text("head");
  out->attention_norm = modules.text("attention_norm", "");
  const bool is_latent = modules.has("kv_a");
  const auto plain = is_latent ? std::optional<std::string>("") : std::nullopt;
  const auto latent = is_latent ? std::nullopt : std::optional<std::string>("");
  out->q = modules.text("q");
  out->k = modules.text("k", plain);
  out->v = modules.text("v", plain);
  out->q_a = modules.text("q_a", latent);
  out->q_a_norm = modules.text("q_a_norm", latent);
  out->q_b = modules.text("q_b", latent);
  out->kv_a = modules.text("kv_a", "");
  out->kv_a_norm = modules.text("kv_a_norm", latent);
  out->kv_b = modules.text("kv_b", latent);
  out->o = modules.text("o");
  out->q_norm = modules.text("q_norm", "");
  out->k_norm = modules.text("k_norm", "");
  out->sinks = modules.text("sinks", "");
  out->o_norm = modules.text("o_norm", "");
  out->attention_out_norm = modules.text("attention_out_norm", "");
  out->mlp_norm = modules.text("mlp_norm", "");
  out->down_norm = modules.text("down_norm", "");
  out->mlp_out_norm = modules.text("mlp_out_norm", "");
  const bool mixture = modules.has("router");
  const auto own_mlp = mixture ? std::optional<std::string>("") : std::nullopt;
  const auto expert = mixture ? std::nullopt : std::optional<std::string>("");
  out->gate = modules.text("gate", "");
  out->up = modules.text("up", own_mlp);
  out->down = modules.text("down", own_mlp);
  out->xielu = modules.text("xielu", "");
  out->laurel_left = modules.text("laurel_left", "");
  out->laurel_right = modules.text("laurel_right", "");
  out->laurel_norm = modules.text("laurel_norm", "");
  out->layer_embedding = modules.text("layer_embedding", "");
  out->layer_input = modules.text("layer_input", "");
  out->layer_input_norm = modules.text("layer_input_norm", "");
  out->layer_gate = modules.text("layer_gate", "");
  out->layer_out = modules.text("layer_out", "");
  out->layer_out_norm = modules.text("layer_out_norm", "");
  out->altup_in = modules.text("altup_in", "");
  out->altup_out = modules.text("altup_out", "");
  out->altup_norm = modules.text("altup_norm", "");
  out->altup_router = modules.text("altup_router", "");
  out->altup_prediction = modules.text("altup_prediction", "");
  out->altup_correction = modules.text("altup_correction", "");
  out->altup_scale = modules.text("altup_scale", "");
  out->router = modules.text("router", "");
  out->expert_gate = modules.text("expert_gate", "");
  out->expert_up = modules.text("expert_up", expert);
  out->expert_down = modules.text("expert_down", expert);
  out->stacked_gate_up = modules.text("stacked_gate_up", "");
  out->stacked_down = modules.text("stacked_down", "");
  out->router_correction = modules.text("router_correction", "");
  out->shared_gate = modules.text("shared_gate", "");
  out->shared_up = modules.text("shared_up", "");
  out->shared_down = modules.text("shared_down", "");
  out->shared_weight = modules.text("shared_weight", "");
  out->state_qkv = modules.text("state_qkv", "");
  out->state_z = modules.text("state_z", "");
  out->state_b = modules.text("state_b", "");
  out->state_a = modules.text("state_a", "");
  out->state_conv = modules.text("state_conv", "");
  out->state_rate = modules.text("state_rate", "");
  out->state_step = modules.text("state_step", "");
  out->state_skip = modules.text("state_skip", "");
  out->state_norm = modules.text("state_norm", "");
  out->state_out = modules.text("state_out", "");
  out->mtp_fc = modules.text("mtp_fc", "");
  out->mtp_embedding_norm = modules.text("mtp_embedding_norm", "");
  out->mtp_hidden_norm = modules.text("mtp_hidden_norm", "");
  out->mtp_layer = modules.text("mtp_layer", "");
  out->mtp_norm = modules.text("mtp_norm", "");
}

void read_selection(JsonFields& family, TensorSelection* out) {
  out->skipped = family.texts("skipped_tensors");
  out->skipped_endings = family.texts("skipped_endings");
  JsonFields renamed = family.fields("renamed_tensors");
  for (const auto& [from, to] : renamed.object.items()) out->renamed.emplace_back(from, renamed.text(from));
  family.error = renamed.error;
}

// Branches that read the same stream may read what one norm makes of it.
void read_parallel_norm(JsonFields& family, JsonFields& modules, ModelConfig* out) {
  if (!out->parallel_branches) return;
  std::string& norm = out->names.mlp_norm;
  norm = modules.text("parallel_mlp_norm", norm);
  out->one_norm = norm == out->names.attention_norm;
  const bool recurs = recurrent_layers(*out) > 0;
  if (recurs || out->experts.count > 0) {
    family.fail("parallel_branches", "not supported beside experts or recurrent layers");
  }
}

// Layers behind the model's own, which predict one token more.
void skip_layers_behind(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string field = family.text("layers_behind", "");
  const int64_t count = field.empty() ? 0 : file.integer(field, 0, 0, kMaxLayers);
  for (int64_t i = out->layers; i < out->layers + count; ++i) {
    const std::string name = module_name(out->names.attention_norm, i);
    out->tensors.skipped.push_back(name.substr(0, name.rfind('.') + 1));
  }
}

// Files hold keys and values of layers that read others', too.
void skip_unread_kv(ModelConfig* out) {
  const ModuleNames& names = out->names;
  for (int64_t i = 0; i < out->layers; ++i) {
    if (out->owns_kv(i)) continue;
    for (const std::string& module : {names.k, names.v, names.k_norm}) {
      if (!module.empty()) out->tensors.unread.push_back(module_name(module, i) + ".");
    }
  }
}

}  // namespace

std::string module_name(std::string_view pattern, int64_t layer) {
  std::string name(pattern);
  const size_t place = name.find("{}");
  if (place != std::string::npos) name.replace(place, 2, std::to_string(layer));
  return name;
}

std::string module_name(std::string_view pattern, int64_t layer, int64_t expert) {
  return module_name(module_name(pattern, layer), expert);
}

Error read_modules(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields modules = family.fields("modules");
  read_names(modules, &out->names);
  read_parallel_norm(family, modules, out);
  if (modules.error) return modules.error;
  read_selection(family, &out->tensors);
  skip_layers_behind(family, file, out);
  skip_unread_kv(out);
  return {};
}

}  // namespace pinion
