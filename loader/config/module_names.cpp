#include <set>

#include "kernels/layout.h"
#include "loader/config/config_parts.h"

namespace pinion {
namespace {

void read_selection(JsonFields& family, TensorSelection* out) {
  out->skipped = family.texts("skipped_tensors");
  out->skipped_endings = family.texts("skipped_endings");
  JsonFields renamed = family.fields("renamed_tensors");
  for (const auto& [from, to] : renamed.object.items()) out->renamed.emplace_back(from, renamed.text(from));
  family.error = renamed.error;
}

// Parallel branches may have a norm each or share one.
void read_parallel_norm(JsonFields& family, ModelConfig* out) {
  if (!out->parallel_branches) return;
  if (const std::string& norm = out->name("parallel_mlp_norm"); !norm.empty()) out->names["mlp_norm"] = norm;
  out->shared_norm = out->name("mlp_norm") == out->name("attention_norm") && out->experts.count == 0;
  if (recurrent_layers(*out) > 0) family.fail("parallel_branches", "not supported beside recurrent layers");
}

// Some files have MTP layers after the model's own.
void skip_extra_layers(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string field = family.text("extra_layers", "");
  const int64_t count = field.empty() ? 0 : file.integer(field, 0, 0, kMaxLayers);
  for (int64_t i = out->layers; i < out->layers + count; ++i) {
    const std::string name = module_name(out->name("attention_norm"), i);
    out->tensors.skipped.push_back(name.substr(0, name.rfind('.') + 1));
  }
}

// Files also store keys and values of layers that read those of another layer, layers that attend to images only, and
// the norm of the experts' sum in layers without experts.
void skip_unread(ModelConfig* out) {
  for (int64_t i = 0; i < out->layers; ++i) {
    const LayerConfig& layer = out->layer[i];
    const std::string norm = module_name(out->name("attention_norm"), i);
    const bool is_empty = !layer.attends && !layer.recurrent && !layer.has_mlp;
    if (is_empty) out->tensors.unread.push_back(norm.substr(0, norm.rfind('.') + 1));
    for (const std::string_view key : {"k", "v", "k_norm", "experts_out_norm"}) {
      const std::string& module = out->name(key);
      const bool is_read = key == "experts_out_norm" ? layer.has_experts : layer.owns_kv();
      if (!is_read && !module.empty()) out->tensors.unread.push_back(module_name(module, i) + ".");
    }
  }
}

// Zamba: layers share blocks in turn, with low-rank changes of their own. The file has a block and all its changes
// where it is first used.
void share_blocks(JsonFields& family, JsonFields& file, ModelConfig* out) {
  JsonFields rule = family.fields("blocks"), changes = rule.fields("changes");
  if (rule.object.empty()) return;
  const auto count = static_cast<size_t>(file.integer(rule.text("count"), {}, 1, kMaxLayers));
  std::vector<std::string> blocks;
  for (const LayerConfig& layer : out->layer) {
    if (!layer.is_block) continue;
    const size_t use = blocks.size();
    const std::string& block = blocks.emplace_back(module_name(rule.text("block"), layer.number));
    const std::string& shared = blocks[use % count];
    out->tensors.renamed.emplace_back(module_name(rule.text("recurrence"), layer.number),
                                      module_name(rule.text("layer"), layer.number));
    if (use >= count) out->tensors.copied.emplace_back(shared, block);
    for (const auto& [from, to] : changes.object.items()) {
      const std::string change = module_name(shared + from, use), module = block + changes.text(from);
      out->tensors.renamed.emplace_back(change + ".0.weight", module + ".lora_A." + std::string(kOwnUpdate));
      out->tensors.renamed.emplace_back(change + ".1.weight", module + ".lora_B." + std::string(kOwnUpdate));
    }
  }
  if (!family.error) family.error = changes.error ? changes.error : rule.error;
}

// "model." of "model.embed_tokens": the prefix of the language model's modules.
std::string root_of(const ModelConfig& config) {
  const std::string& embedding = config.name("embedding");
  return embedding.substr(0, embedding.rfind('.') + 1);
}

// The modules directly under the root, with dots: "embed_tokens.", "layers.", "norm.".
std::set<std::string> modules_under(const std::string& root, const ModelConfig& config) {
  std::set<std::string> modules;
  for (const auto& [key, name] : config.names) {
    if (name.empty() || !name.starts_with(root)) continue;
    const std::string inside = name.substr(root.size()) + ".";
    modules.insert(inside.substr(0, inside.find('.') + 1));
  }
  return modules;
}

bool has_prefix(const Checkpoint& checkpoint, const std::string& prefix) {
  const auto first = std::ranges::lower_bound(checkpoint.tensors, prefix, {}, &TensorView::name);
  return first != checkpoint.tensors.end() && first->name.starts_with(prefix);
}

// The prefixes under which the checkpoint has an embedding and layers.
std::vector<std::string> roots_in(const Checkpoint& checkpoint, const std::string& root, const ModelConfig& config) {
  const std::string embedding = config.name("embedding").substr(root.size()) + ".weight";
  const std::string& in_layer = config.name(config.name("up").empty() ? "expert_up" : "up");
  const std::string layers = in_layer.substr(root.size(), in_layer.find("{}") - root.size());
  std::vector<std::string> roots;
  for (const TensorView& tensor : checkpoint.tensors) {
    if (!tensor.name.ends_with(embedding)) continue;
    const std::string prefix = tensor.name.substr(0, tensor.name.size() - embedding.size());
    if (!prefix.empty() && !prefix.ends_with('.')) continue;
    if (has_prefix(checkpoint, prefix + layers)) roots.push_back(prefix);
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
  for (const auto& [key, name] : modules.object.items()) out->names[key] = modules.text(key);
  if (modules.error) return modules.error;
  read_parallel_norm(family, out);
  read_selection(family, &out->tensors);
  skip_extra_layers(family, file, out);
  skip_unread(out);
  share_blocks(family, file, out);
  return {};
}

Error align_names(ModelConfig* config, Checkpoint* checkpoint) {
  const std::string root = root_of(*config), head = config->name("head") + ".";
  const std::string embedding = config->name("embedding") + ".weight";
  std::string found = root;
  TensorSelection renaming;
  if (!checkpoint->find(embedding)) {
    const std::vector<std::string> roots = roots_in(*checkpoint, root, *config);
    if (roots.size() > 1) {
      return error("several modules could be the language model", checkpoint->folder, embedding, joined(roots));
    }
    if (roots.empty()) return {};
    found = roots[0];
    if (!found.empty()) renaming.renamed.emplace_back(found, root);
    for (const std::string& module : found.empty() ? modules_under(root, *config) : std::set<std::string>()) {
      renaming.renamed.emplace_back(module, root + module);
    }
  }
  // The head lies beside the model or inside it, under one of the prefixes of `found`.
  for (size_t i = 0; i < found.size() && !has_prefix(*checkpoint, head); ++i) {
    const std::string inner = found.substr(0, i + 1) + head;
    if (found[i] != '.' || !has_prefix(*checkpoint, inner)) continue;
    renaming.renamed.insert(renaming.renamed.begin(), {inner, head});
    break;
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
  const std::string root = root_of(config);
  if (tensor.find("lora_") != tensor.npos || tensor.starts_with(config.name("head") + ".")) return false;
  if (!tensor.starts_with(root)) return true;
  const std::string_view inside = tensor.substr(root.size());
  const std::string module(inside.substr(0, inside.find('.')));
  if (modules_under(root, config).contains(module + ".")) return false;
  return std::ranges::any_of(kBeside, [&](std::string_view part) { return module.find(part) != module.npos; });
}

Error mtp_config(const ModelConfig& model, ModelConfig* out) {
  if (model.name("mtp_fc").empty() || model.mtp.layers == 0) {
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
  c.recurrence = {};
  c.ropes.resize(1);
  c.layer = {c.layer[0]};
  c.layer[0].attends = true, c.layer[0].recurrent = false, c.layer[0].window = 0, c.layer[0].rope = 0;
  for (auto& [key, name] : c.names) {
    if (const size_t at = name.find("{}"); at != name.npos) name.replace(0, at + 2, c.name("mtp_layer"));
  }
  c.names["final_norm"] = c.name("mtp_norm");
  std::erase_if(c.tensors.skipped, [](const std::string& prefix) { return prefix.ends_with("mtp."); });
  const std::string in_gguf = module_name("blk.{}.", model.layers);
  if (std::erase(c.tensors.skipped, in_gguf) > 0) c.tensors.renamed.emplace_back(in_gguf, kMtpPrefix);
  *out = std::move(c);
  return {};
}

}  // namespace pinion
