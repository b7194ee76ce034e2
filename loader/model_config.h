// What a model is, in plain numbers: config.json read with the help of its family's description (configs/models).
// Fields of the file that nothing here reads are refused unless they are known not to change the arithmetic.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/error.h"

namespace pinion {

enum class RopeKind : uint8_t { none, linear, dynamic, yarn, llama3 };  // none: plain rotation, no scaling

// Names as in transformers' modeling_rope_utils.py; a field belongs to the kinds in brackets.
struct Rope {
  RopeKind kind = RopeKind::none;
  double theta = 10000.0;
  double factor = 1.0;                     // [linear, dynamic, yarn, llama3]
  int64_t original_max_positions = 0;      // [yarn, llama3] the context of the first training
  double low_freq_factor = 0.0;            // [llama3]
  double high_freq_factor = 0.0;           // [llama3]
  std::optional<double> attention_factor;  // [yarn] absent: from factor, mscale and mscale_all_dim
  double mscale = 0.0;                     // [yarn] 0: not given
  double mscale_all_dim = 0.0;             // [yarn] 0: not given
  double beta_fast = 32.0;                 // [yarn]
  double beta_slow = 1.0;                  // [yarn]
  bool truncate = true;                    // [yarn] whole numbers as borders of the ramp
};

// Modules by name; "{}" stands for the layer. A module's tensors are NAME.weight and, where it has one, NAME.bias.
struct ModuleNames {
  std::string embedding, final_norm, head;
  std::string attention_norm, q, k, v, o, q_norm, k_norm;
  std::string mlp_norm, gate, up, down;
};

// "model.layers.{}.mlp.up_proj", 3 -> "model.layers.3.mlp.up_proj"
std::string module_name(std::string_view pattern, int64_t layer);

struct ModelConfig {
  std::string family;        // "llama", the name of the file in configs/models
  std::string architecture;  // "LlamaForCausalLM", as the file has it
  int64_t layers = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // even
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  float rms_norm_eps = 0.0f;
  bool tied_head = false;  // the head is the embedding
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;         // gate, up and down
  bool qk_norm = false;          // RMSNorm over head_dim of every q and k head, before the rotation
  std::vector<int64_t> windows;  // [layers] positions that a token sees, itself included; 0: all
  Rope rope;
  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;
  ModuleNames names;
};

constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxVocabulary = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

// `where` names the text in errors.
Error parse_model_config(std::string_view text, const std::string& where, ModelConfig* out);

Error read_model_config(const std::filesystem::path& folder, ModelConfig* out);

}  // namespace pinion
