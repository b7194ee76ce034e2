#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "kernels/layout.h"
#include "loader/config/config_parts.h"

namespace pinion {
namespace {

struct Module {
  std::string_view name;  // in the family's description
  std::string ModuleNames::* field;
};

using M = ModuleNames;

// Modules that all families have, modules of one kind of attention or mlp, and optional ones.
constexpr Module kAlways[] = {
    {"embedding", &M::embedding}, {"final_norm", &M::final_norm}, {"head", &M::head}, {"q", &M::q}, {"o", &M::o}};
constexpr Module kPlainAttention[] = {{"k", &M::k}, {"v", &M::v}};
constexpr Module kLatentAttention[] = {
    {"q_a", &M::q_a}, {"q_a_norm", &M::q_a_norm}, {"q_b", &M::q_b}, {"kv_a_norm", &M::kv_a_norm}, {"kv_b", &M::kv_b}};
constexpr Module kDense[] = {{"up", &M::up}, {"down", &M::down}};
constexpr Module kExperts[] = {{"expert_up", &M::expert_up}, {"expert_down", &M::expert_down}};
constexpr Module kOptional[] = {{"attention_norm", &M::attention_norm},
                                {"kv_a", &M::kv_a},
                                {"q_norm", &M::q_norm},
                                {"k_norm", &M::k_norm},
                                {"sinks", &M::sinks},
                                {"o_norm", &M::o_norm},
                                {"attention_out_norm", &M::attention_out_norm},
                                {"mlp_norm", &M::mlp_norm},
                                {"down_norm", &M::down_norm},
                                {"mlp_out_norm", &M::mlp_out_norm},
                                {"gate", &M::gate},
                                {"xielu", &M::xielu},
                                {"laurel_left", &M::laurel_left},
                                {"laurel_right", &M::laurel_right},
                                {"laurel_norm", &M::laurel_norm},
                                {"layer_embedding", &M::layer_embedding},
                                {"layer_input", &M::layer_input},
                                {"layer_input_norm", &M::layer_input_norm},
                                {"layer_gate", &M::layer_gate},
                                {"layer_out", &M::layer_out},
                                {"layer_out_norm", &M::layer_out_norm},
                                {"altup_in", &M::altup_in},
                                {"altup_out", &M::altup_out},
                                {"altup_norm", &M::altup_norm},
                                {"altup_router", &M::altup_router},
                                {"altup_prediction", &M::altup_prediction},
                                {"altup_correction", &M::altup_correction},
                                {"altup_scale", &M::altup_scale},
                                {"router", &M::router},
                                {"expert_gate", &M::expert_gate},
                                {"stacked_gate_up", &M::stacked_gate_up},
                                {"stacked_down", &M::stacked_down},
                                {"router_correction", &M::router_correction},
                                {"shared_gate", &M::shared_gate},
                                {"shared_up", &M::shared_up},
                                {"shared_down", &M::shared_down},
                                {"shared_weight", &M::shared_weight},
                                {"state_qkv", &M::state_qkv},
                                {"state_z", &M::state_z},
                                {"state_b", &M::state_b},
                                {"state_a", &M::state_a},
                                {"state_conv", &M::state_conv},
                                {"state_rate", &M::state_rate},
                                {"state_step", &M::state_step},
                                {"state_skip", &M::state_skip},
                                {"state_norm", &M::state_norm},
                                {"state_out", &M::state_out},
                                {"mtp_fc", &M::mtp_fc},
                                {"mtp_embedding_norm", &M::mtp_embedding_norm},
                                {"mtp_hidden_norm", &M::mtp_hidden_norm},
                                {"mtp_layer", &M::mtp_layer},
                                {"mtp_norm", &M::mtp_norm}};

void read_names(JsonFields& modules, std::span<const Module> rows, bool are_required, ModuleNames* out) {
  const auto absent = are_required ? std::nullopt : std::optional<std::string>("");
  for (const Module& row : rows) out->*row.field = modules.text(row.name, absent);
}

void read_all_names(JsonFields& modules, ModuleNames* out) {
  const bool is_latent = modules.has("kv_a"), has_experts = modules.has("router");
  read_names(modules, kAlways, true, out);
  read_names(modules, kPlainAttention, !is_latent, out);
  read_names(modules, kLatentAttention, is_latent, out);
  read_names(modules, kDense, !has_experts, out);
  read_names(modules, kExperts, has_experts, out);
  read_names(modules, kOptional, false, out);
}

void read_selection(JsonFields& family, TensorSelection* out) {
  out->skipped = family.texts("skipped_tensors");
  out->skipped_endings = family.texts("skipped_endings");
  JsonFields renamed = family.fields("renamed_tensors");
  for (const auto& [from, to] : renamed.object.items()) out->renamed.emplace_back(from, renamed.text(from));
  family.error = renamed.error;
}

// Parallel branches may have a norm each or share one.
void read_parallel_norm(JsonFields& family, JsonFields& modules, ModelConfig* out) {
  if (!out->parallel_branches) return;
  std::string& norm = out->names.mlp_norm;
  norm = modules.text("parallel_mlp_norm", norm);
  out->shared_norm = norm == out->names.attention_norm;
  if (recurrent_layers(*out) > 0 || out->experts.count > 0) {
    family.fail("parallel_branches", "not supported beside experts or recurrent layers");
  }
}

// Some files have MTP layers after the model's own.
void skip_extra_layers(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string field = family.text("extra_layers", "");
  const int64_t count = field.empty() ? 0 : file.integer(field, 0, 0, kMaxLayers);
  for (int64_t i = out->layers; i < out->layers + count; ++i) {
    const std::string name = module_name(out->names.attention_norm, i);
    out->tensors.skipped.push_back(name.substr(0, name.rfind('.') + 1));
  }
}

// Files also store keys and values of layers that read those of another layer.
void skip_unread_kv(ModelConfig* out) {
  const ModuleNames& names = out->names;
  for (int64_t i = 0; i < out->layers; ++i) {
    if (out->owns_kv(i)) continue;
    for (const std::string& module : {names.k, names.v, names.k_norm}) {
      if (!module.empty()) out->tensors.unread.push_back(module_name(module, i) + ".");
    }
  }
}

// "model." of "model.embed_tokens": the prefix of the language model's modules.
std::string root_of(const ModuleNames& names) { return names.embedding.substr(0, names.embedding.rfind('.') + 1); }

// The modules directly under the root, with dots: "embed_tokens.", "layers.", "norm.".
std::set<std::string> modules_under(const std::string& root, const ModuleNames& names) {
  std::set<std::string> modules;
  const auto add = [&](std::span<const Module> rows) {
    for (const Module& row : rows) {
      const std::string name = names.*row.field + ".";
      if (name.starts_with(root) && name != ".")
        modules.insert(name.substr(root.size(), name.find('.', root.size()) + 1 - root.size()));
    }
  };
  for (const std::span<const Module> rows : {std::span<const Module>(kAlways), std::span<const Module>(kPlainAttention),
                                             std::span<const Module>(kLatentAttention), std::span<const Module>(kDense),
                                             std::span<const Module>(kExperts), std::span<const Module>(kOptional)}) {
    add(rows);
  }
  return modules;
}

// The prefixes under which the checkpoint has an embedding and layers.
std::vector<std::string> roots_in(const Checkpoint& checkpoint, const std::string& root, const ModuleNames& names) {
  const std::string embedding = names.embedding.substr(root.size()) + ".weight";
  const std::string& in_layer = names.up.empty() ? names.expert_up : names.up;
  const std::string layers = in_layer.substr(root.size(), in_layer.find("{}") - root.size());
  std::vector<std::string> roots;
  for (const TensorView& tensor : checkpoint.tensors) {
    if (!tensor.name.ends_with(embedding)) continue;
    const std::string prefix = tensor.name.substr(0, tensor.name.size() - embedding.size());
    if (!prefix.empty() && !prefix.ends_with('.')) continue;
    const bool has_layers = std::ranges::any_of(
        checkpoint.tensors, [&](const TensorView& other) { return other.name.starts_with(prefix + layers); });
    if (has_layers) roots.push_back(prefix);
  }
  return roots;
}

Error refuse_mtp(const std::string& field, const std::string& expected, const std::string& actual) {
  return error("not supported with an MTP layer (`--speculate ngram` needs none)", field, expected, actual);
}

}  // namespace

std::string module_name(std::string_view pattern, int64_t layer) {
  std::string name(pattern);
  const size_t at = name.find("{}");
  if (at != std::string::npos) name.replace(at, 2, std::to_string(layer));
  return name;
}

std::string module_name(std::string_view pattern, int64_t layer, int64_t expert) {
  return module_name(module_name(pattern, layer), expert);
}

Error read_modules(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields modules = family.fields("modules");
  read_all_names(modules, &out->names);
  read_parallel_norm(family, modules, out);
  if (modules.error) return modules.error;
  read_selection(family, &out->tensors);
  skip_extra_layers(family, file, out);
  skip_unread_kv(out);
  return {};
}

Error align_names(ModelConfig* config, Checkpoint* checkpoint) {
  const std::string root = root_of(config->names), head = config->names.head + ".";
  std::string found = root;
  TensorSelection renaming;
  if (!checkpoint->find(config->names.embedding + ".weight")) {
    const std::vector<std::string> roots = roots_in(*checkpoint, root, config->names);
    if (roots.size() > 1) {
      return error("several modules could be the language model", checkpoint->folder,
                   config->names.embedding + ".weight", joined(roots));
    }
    if (roots.empty()) return {};
    found = roots[0];
    if (found.empty()) {
      for (const std::string& module : modules_under(root, config->names)) {
        renaming.renamed.emplace_back(module, root + module);
      }
    } else {
      renaming.renamed.emplace_back(found, root);
    }
  }
  // The head lies beside the model or inside it, under one of the prefixes of `found`.
  const auto has = [&](const std::string& prefix) {
    return std::ranges::any_of(checkpoint->tensors,
                               [&](const TensorView& tensor) { return tensor.name.starts_with(prefix); });
  };
  for (size_t i = 0; i < found.size() && !has(head); ++i) {
    const std::string inner = found.substr(0, i + 1) + head;
    if (found[i] == '.' && has(inner)) {
      renaming.renamed.insert(renaming.renamed.begin(), {inner, head});
      break;
    }
  }
  if (config->quantization) {
    auto& renamed = config->quantization->renamed;
    renamed.insert(renamed.end(), renaming.renamed.begin(), renaming.renamed.end());
  }
  return select_tensors(renaming, checkpoint);
}

bool is_beside_model(const ModelConfig& config, std::string_view tensor) {
  // Parts of module names, inside the root, that are not of the language model.
  constexpr std::string_view kBeside[] = {
      "vision", "visual", "image", "video",     "audio",     "speech", "multi_modal", "mm_",   "projector",
      "mtp",    "medusa", "eagle", "resampler", "connector", "v_head", "value_head",  "score", "classifier"};
  const std::string root = root_of(config.names);
  if (tensor.find("lora_") != tensor.npos || tensor.starts_with(config.names.head + ".")) return false;
  if (!tensor.starts_with(root)) return true;
  const std::string_view inside = tensor.substr(root.size());
  const std::string module(inside.substr(0, inside.find('.')));
  if (modules_under(root, config.names).contains(module + ".")) return false;
  return std::ranges::any_of(kBeside, [&](std::string_view part) { return module.find(part) != module.npos; });
}

// A file may have the layer's tensors without any of these fields.
void read_mtp(JsonFields& file, ModelConfig* out) {
  out->mtp.layers = file.integer("mtp_num_hidden_layers", 1, 0, kMaxLayers);
  out->mtp.dedicated_embedding = file.boolean("mtp_use_dedicated_embeddings", false);
}

Error mtp_config(const ModelConfig& model, ModelConfig* out) {
  if (model.names.mtp_fc.empty() || model.mtp.layers == 0) {
    return error("this " + model.family + " model has none; `--speculate ngram` needs none", "MTP layer");
  }
  if (model.mtp.layers > 1) return refuse_mtp("mtp_num_hidden_layers", "1", std::to_string(model.mtp.layers));
  if (model.mtp.dedicated_embedding) return refuse_mtp("mtp_use_dedicated_embeddings", "false", "true");
  if (2 * model.hidden_size > kMaxK) {
    return refuse_mtp("hidden_size", "at most " + std::to_string(kMaxK / 2), std::to_string(model.hidden_size));
  }
  // Frequencies that change with the length would require the cache to be computed again, but the hidden states that it
  // was computed from are gone.
  const RopeKind rope = model.ropes[0].kind;
  if (rope == RopeKind::dynamic || rope == RopeKind::longrope) {
    return refuse_mtp("rope_type", "fixed frequencies", "frequencies that depend on the length");
  }
  ModelConfig c = model;
  c.layers = 1;
  c.attends = {true};
  c.recurrent = {false};
  c.recurrence = {};
  c.windows = {0};
  c.ropes.resize(1);
  c.layer_ropes = {0};
  ModuleNames& names = c.names;
  for (std::string* name : {&names.attention_norm, &names.q, &names.k, &names.v, &names.o, &names.q_norm, &names.k_norm,
                            &names.mlp_norm, &names.gate, &names.up, &names.down}) {
    if (!name->empty()) name->replace(0, name->find("{}") + 2, names.mtp_layer);
  }
  names.final_norm = names.mtp_norm;
  std::erase_if(c.tensors.skipped, [](const std::string& prefix) { return prefix.ends_with("mtp."); });
  *out = std::move(c);
  return {};
}

}  // namespace pinion
