// A model in memory: configuration, packed matrices, norm weights. Read-only once loaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/error.h"
#include "kernels/layout.h"
#include "loader/arena.h"
#include "loader/checkpoint.h"
#include "loader/model_config.h"
#include "loader/pack_cache.h"

namespace pinion {

enum class Quant : uint8_t {
  none,  // bf16 weights, fp32 arithmetic
  w8a8,  // int8 weights per output channel, int8 activations per token
  w4a8,  // 4-bit weights in groups of 32, int8 activations per token; the head has int8 weights
};

// y = W x + bias. The bias is null where the family has none; that of o and down comes with the
// config's branch_scale in it.
struct Linear {
  Matrix weight;
  const float* bias = nullptr;  // [n]
};

// What a layer with a recurrent state has in place of q, k and v.
struct DeltaLayer {
  Linear qkv;         // [channels, hidden]
  Linear z;           // [value_width, hidden] gates of the output
  Linear b, a;        // [value_heads, hidden] each, how much a token writes and how fast the state decays
  const float* conv;  // [taps][channels]
  const float* rate;  // [value_heads] of decay
  const float* step;  // [value_heads] added to a
  const float* norm;  // [value_dim]
};

struct Expert {
  Linear gate, up;  // [an expert's intermediate, hidden]
  Linear down;      // [hidden, an expert's intermediate]
};

// Norms that the family does not have are null. A layer with experts has no gate, up and down beside them.
struct Layer {
  const float* attention_norm;  // [hidden]
  bool recurrent;               // has delta, and neither q, k and v nor their norms
  int64_t slot;                 // among the layers of its kind: where its cache or its state lies
  DeltaLayer delta;
  Linear q, k, v;                   // [heads * head_dim, hidden] (twice that with gates), [kv_heads * head_dim, hidden]
  const float* q_norm;              // [head_dim], or [heads * head_dim] (QkNorm::all_heads)
  const float* k_norm;              // [head_dim], or [kv_heads * head_dim]
  const float* sinks;               // [heads] one more score of each head's softmax, whose value is zero
  Linear o;                         // [hidden, heads * head_dim], or [hidden, value_width]
  const float* attention_out_norm;  // [hidden], of what the branch adds
  const float* mlp_norm;            // [hidden]
  Linear gate, up;                  // [intermediate, hidden]
  Linear down;                      // [hidden, intermediate]
  const float* mlp_out_norm;        // [hidden], of what the branch adds
  Linear router;                    // [experts, hidden], bf16 in every mode: small, and a wrong choice costs much
  std::vector<Expert> experts;      // empty where the layer has none
  int64_t window;                   // positions a token sees, itself included; 0 = all
  int32_t rope;                     // which of the config's ropes; kNoRope: none
};

// Codes of the file that became other numbers.
struct Conversion {
  std::string from;     // how the file holds them
  std::string why_not;  // of 4-bit codes that became other 4-bit codes: why they did not stay
  Format to;
  std::string module;   // the first
  int64_t modules = 0;  // in all
};

struct Model {
  ModelConfig config;
  Quant quant = Quant::w8a8;
  std::string calibration;  // a name of the text that weights were quantised for; empty: none
  TensorView embedding;     // [vocab, hidden], rows are read from the mapped file (or from the arena: synthetic models)
  std::vector<Layer> layers;
  const float* final_norm = nullptr;  // [hidden]
  Linear head;                        // [vocab, hidden]
  std::vector<int32_t> eos_ids;       // of config.json and generation_config.json

  int64_t parameters = 0;
  int64_t expert_parameters = 0;  // of these, in experts
  int64_t weight_bytes = 0;       // packed matrices
  int64_t expert_bytes = 0;       // of these, experts'
  double load_seconds = 0;
  std::vector<Conversion> conversions;

  Checkpoint checkpoint;  // owns the mapped files
  Arena arena;            // owns the packed matrices
  MappedFile cached;      // owns them instead where the cache had them
  PackCache cache;        // where the cache has or wants them; the path is empty where it is off
  std::vector<std::unique_ptr<float[]>> vectors;  // norm weights and biases
  std::jthread cache_writer;                      // the last member: it reads the others, so they wait for its end

  bool from_cache() const { return cached.pages != nullptr; }
  // All packed matrices: the same bytes on every machine.
  std::span<const std::byte> packed() const {
    return from_cache() ? packed_contents(cache, cached) : std::span<const std::byte>(arena.data, arena.bytes);
  }
  // What a pass of so many tokens reads of the packed matrices; of experts, if it is several, the most that it may.
  int64_t bytes_per_pass(int64_t tokens) const {
    return weight_bytes - expert_bytes + config.experts.share_of(expert_bytes, tokens);
  }
  int64_t active_parameters() const {  // of one token
    return parameters - expert_parameters + config.experts.share_of(expert_parameters, 1);
  }
};

class Team;

struct LoadOptions {
  Quant quant = Quant::w8a8;
  std::optional<Format> head = {};  // of the head, where that is not what the mode gives it
  // Matrices whose tensor name holds one of these stay bf16, e.g. "lm_head" or "layers.3.mlp.down_proj".
  std::vector<std::string> keep = {};
  bool rotate = true;  // the inputs of matrices that are quantised here (kernels/layout.h)
  // A text in windows by which w4 is quantised with error feedback (engine/calibration.h); empty: by the weights alone.
  std::vector<int32_t> calibration = {};
  int32_t threads = 1;
  // Who will read the weights: freshly packed ones then lie near them (first_touch.h), and take all their memory from
  // the start. Null: packed, mapped and synthetic weights lie as they come.
  Team* readers = nullptr;
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes, or a calibration's tokens
  std::string cache_folder = {};  // where packed weights are looked for (loader/pack_cache.h); empty: nowhere
};

// What a layer is by its place alone.
void place_layer(const ModelConfig& config, int64_t index, Layer* out);

Error load_model(const std::string& folder, const LoadOptions& options, std::unique_ptr<Model>* out);

// Gives freshly packed weights to the cache, if there is one: at once, or in the background, where failing is no matter
// (the next start packs again) and the end of the model waits for the end of the writing.
Error write_to_cache(const Model& model);
void write_to_cache_in_background(Model* model);

// Which cache file the weights of a folder have; the error says why it cannot be used.
Error find_in_cache(const std::string& folder, const LoadOptions& options, PackCache* out);

// Random weights of the shape that a config.json describes, made in memory: speed does not depend on their values.
Error synthetic_model(const std::string& config_path, const LoadOptions& options, std::unique_ptr<Model>* out);

}  // namespace pinion
