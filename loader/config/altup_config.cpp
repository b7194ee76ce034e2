#include <algorithm>
#include <nlohmann/json.hpp>

#include "kernels/layout.h"
#include "loader/config/config_parts.h"

namespace pinion {
namespace {

// The last layers read the keys and values of the last layer before them that sees as much as they do.
void read_shared_kv(const std::string& field, JsonFields& file, ModelConfig* out) {
  const int64_t first = out->layers - file.integer(field, 0, 0, kMaxLayers);
  if (first <= 0 || first == out->layers) return;  // no layer would have its own: then, as in transformers, all do
  for (int64_t i = 0; i < out->layers; ++i) {
    int64_t owner = std::min(i, first - 1);
    const bool is_shared = i >= first;
    const auto sees_as_much = [&](int64_t layer) {
      return out->windows[static_cast<size_t>(layer)] == out->windows[static_cast<size_t>(i)];
    };
    while (is_shared && owner >= 0 && !sees_as_much(owner)) --owner;
    if (owner < 0) return file.fail(field, "no earlier layer has keys and values for layer " + std::to_string(i));
    out->kv_layers.push_back(is_shared ? owner : i);
  }
}

// Without the field the first ten layers of a model that has more.
void read_gate_sparsity(const std::string& field, JsonFields& file, ModelConfig* out) {
  const auto layers = static_cast<size_t>(out->layers);
  for (const double part : file.numbers(field, 0.0, 0.999999)) out->gate_sparsity.push_back(static_cast<float>(part));
  if (!file.has(field)) {
    out->gate_sparsity.assign(layers, 0.0f);
    if (layers > 10) std::fill_n(out->gate_sparsity.begin(), 10, 0.95f);
  }
  if (out->gate_sparsity.size() != layers) {
    file.fail(field, "wrong length", std::to_string(layers), std::to_string(out->gate_sparsity.size()));
  }
}

void read_streams(JsonFields& file, ModelConfig* out) {
  AltupConfig& altup = out->altup;
  altup.streams = file.integer("altup_num_inputs", {}, 1, kMostStreams);
  altup.active = file.integer("altup_active_idx", {}, 0, kMostStreams - 1);
  altup.scales = file.boolean("altup_correct_scale");
  if (altup.active >= altup.streams && !file.error) {
    file.fail("altup_active_idx", "out of range", "below altup_num_inputs", std::to_string(altup.active));
  }
}

void read_layer_inputs(JsonFields& file, ModelConfig* out) {
  LayerInputConfig& input = out->layer_input;
  input.size = file.integer("hidden_size_per_layer_input", {}, 1, kMaxK);
  input.vocab_size = file.integer("vocab_size_per_layer_input", {}, 1, kMaxVocabulary);
  if (!file.error && out->layers * input.size > kMaxK) {
    file.fail("hidden_size_per_layer_input", "too wide", "at most " + std::to_string(kMaxK) + " for all layers",
              std::to_string(out->layers * input.size));
  }
}

}  // namespace

void read_altup(JsonFields& family, JsonFields& file, ModelConfig* out) {
  const std::string shared = family.text("shared_kv", ""), sparsity = family.text("gate_sparsity", "");
  if (!shared.empty()) read_shared_kv(shared, file, out);
  if (!sparsity.empty()) read_gate_sparsity(sparsity, file, out);
  JsonFields modules = family.fields("modules");
  if (modules.has("laurel_left")) out->laurel_rank = file.integer("laurel_rank", {}, 1, kMaxK);
  if (modules.has("altup_router")) read_streams(file, out);
  if (modules.has("layer_gate")) read_layer_inputs(file, out);
}

}  // namespace pinion
