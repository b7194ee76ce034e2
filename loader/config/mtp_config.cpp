#include <algorithm>

#include "kernels/layout.h"
#include "loader/config/config_parts.h"

namespace pinion {
namespace {

Error refuse(const std::string& field, const std::string& expected, const std::string& actual) {
  return error("not supported of an MTP layer (`--speculate ngram` needs none)", field, expected, actual);
}

}  // namespace

// Files that have the layer's tensors need not speak of it.
void read_mtp(JsonFields& file, ModelConfig* out) {
  out->mtp.layers = file.integer("mtp_num_hidden_layers", 1, 0, kMaxLayers);
  out->mtp.own_embedding = file.boolean("mtp_use_dedicated_embeddings", false);
}

Error mtp_config(const ModelConfig& model, ModelConfig* out) {
  if (model.names.mtp_fc.empty() || model.mtp.layers == 0) {
    return error("this " + model.family + " model has none; `--speculate ngram` needs none", "MTP layer");
  }
  if (model.mtp.layers > 1) return refuse("mtp_num_hidden_layers", "1", std::to_string(model.mtp.layers));
  if (model.mtp.own_embedding) return refuse("mtp_use_dedicated_embeddings", "false", "true");
  if (2 * model.hidden_size > kMaxK) {
    return refuse("hidden_size", "at most " + std::to_string(kMaxK / 2), std::to_string(model.hidden_size));
  }
  // What it holds of a text could not be computed again: the hidden states that it was computed from are gone.
  const RopeKind rope = model.ropes[0].kind;
  if (rope == RopeKind::dynamic || rope == RopeKind::longrope) {
    return refuse("rope_type", "frequencies that stay as they are", "frequencies that follow the length");
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
