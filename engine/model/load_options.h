// How a model is to be loaded.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/layout.h"

namespace pinion {

enum class Quant : uint8_t {
  none,  // bf16 weights, fp32 arithmetic
  w8a8,  // int8 weights per output channel, int8 activations per token
  w4a8,  // 4-bit weights in groups of 32, int8 activations per token; the head has int8 weights
};
inline constexpr std::array<std::string_view, 3> kQuantNames = {"none", "w8a8", "w4a8"};  // by Quant

class Exchange;
class Team;

struct LoadOptions {
  Quant quant = Quant::w8a8;
  std::optional<Format> head = {};  // of the head, where that is not what the mode gives it
  // Matrices whose tensor name holds one of these stay bf16, e.g. "lm_head" or "layers.3.mlp.down_proj".
  std::vector<std::string> keep = {};
  bool mtp = false;    // the checkpoint's MTP layer instead of the model: see load_mtp (engine/runtime/load.h)
  bool rotate = true;  // the inputs of matrices that are quantised here (kernels/layout.h)
  // Where a mode quantises, matrices of floats that look ternary (loader/pack/ternary.h) are packed as w2, which rounds
  // nothing.
  bool ternary = true;
  bool synthetic_ternary = false;  // synthetic_model's are, where a mode quantises and w2 has the shape
  // Token ids of the calibration text, cut into windows: w4 is then quantised with error feedback
  // (engine/runtime/calibration.h). Empty: w4 is rounded from the weights alone.
  std::vector<int32_t> calibration = {};
  Team* team = nullptr;          // who packs; null: the caller's thread alone
  Exchange* exchange = nullptr;  // with boards that load the other rows; null: all are loaded here
  // Freshly packed weights lie on the NUMA node of the worker that will read them (first_touch.h), and take all their
  // memory from the start.
  bool numa_first_touch = false;
  std::function<void(int64_t done, int64_t total)> progress = {};  // bytes, or a calibration's tokens
  std::string cache_folder = {};  // where packed weights are looked for (loader/pack/pack_cache.h); empty: nowhere
  // Compares all cached weights with their hashes before they are used. Without it the first start after a boot does so
  // in the background.
  bool check_cache = false;
  std::function<void(const Error&)> warn = {};  // what is wrong and keeps nobody from going on; from any thread
  // The same of what may have made results wrong that are out already; empty: `warn` is told, since none depend on it.
  std::function<void(const Error&)> doubt = {};
};

}  // namespace pinion
