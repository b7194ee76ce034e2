// Options of loading a model, and the weight format that they select for each matrix. No other file selects formats.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/layout.h"

namespace pinion {

enum class Quant : uint8_t {
  none,       // bf16 weights, fp32 arithmetic
  w8a8,       // int8 weights per output channel, int8 activations per token
  w4a8,       // 4-bit weights in groups of 32, int8 activations per token; the head and some matrices have int8 weights
  w4a8_plus,  // as w4a8, with more int8 weights
};
inline constexpr std::array<std::string_view, 4> kQuantNames = {"none", "w8a8", "w4a8", "w4a8+"};  // by Quant

constexpr bool has_4_bits(Quant quant) { return quant == Quant::w4a8 || quant == Quant::w4a8_plus; }

class Exchange;
class Team;
enum class MatrixRole : uint8_t;
struct LinearWeight;
struct MatrixTensor;
struct ModelConfig;

// A text whose activations calibrate weights: `ids`, and the tokens that the model adds to them.
struct CalibrationText {
  std::vector<int32_t> ids;
  int64_t added_tokens = 0;
};

struct LoadOptions {
  Quant quant = Quant::w8a8;
  std::optional<Format> head = {};  // format of the head; nullopt: that of `quant`
  // Matrices whose tensor name contains one of these stay bf16, e.g. "lm_head" or "layers.3.mlp.down_proj".
  std::vector<std::string> keep = {};
  std::vector<std::string> lora = {};  // adapters, "PATH" or "PATH=FACTOR" (loader/quant/stored_weights.h)
  bool mtp = false;    // loads the checkpoint's MTP layer instead of the model: see load_mtp (engine/runtime/load.h)
  bool rotate = true;  // rotates the inputs of matrices that are quantised here (kernels/layout.h)
  // Packs float matrices that are ternary, judged by some rows (quantize.h), as w2 in modes that quantise, unrounded.
  bool ternary = true;
  bool synthetic_ternary = false;  // makes the weights of synthetic_model ternary
  // Weights are then quantised with error feedback (engine/runtime/load.h). Empty: from the weights alone.
  std::vector<CalibrationText> calibration = {};
  int64_t calibrated_layers = INT64_MAX;  // at once, if so many fit into memory; fewer in tests
  Team* team = nullptr;                   // packs the weights; null: the caller's thread alone
  Exchange* exchange = nullptr;           // to the boards that load the other rows; null: this board loads all
  std::function<void(int64_t done, int64_t total)> progress = {};  // in bytes, or in steps of a calibration
  std::string cache_folder = {};  // of packed weights (loader/pack/pack_cache.h); empty: no cache
  // Verifies the hashes of cached weights before their use; false: in the background, at the first start after a boot.
  bool check_cache = false;
  std::function<void(const Error&)> warn = {};  // reports problems that do not stop the load; called on any thread
  // Reports damage that may have affected results already returned. Empty: calls `warn`.
  std::function<void(const Error&)> doubt = {};
};

// The format of a float tensor with this name, or of experts if the file has them in MXFP4: these keep their codes.
Format weight_format(const LoadOptions& options, const ModelConfig& config, const std::string& name, MatrixRole role,
                     bool is_expert);

using LayerMatrices = std::set<std::pair<int64_t, MatrixRole>>;  // by layer; experts' together

// Matrices of layers that are packed as w8 where they would be w4n: those whose bits lower the divergence most
// (tools/MEASURED.md), up to 4.55 bits a weight of the layers in w4a8 and 5 in w4a8+.
LayerMatrices int8_matrices(Quant quant, const ModelConfig& config);

// The format of a matrix that packing_of() or weight_format() gave this one; kept codes are not changed.
Format with_int8(const LayerMatrices& int8, const MatrixTensor& tensor, Format format);

// An error if a pattern of `keep` matches none of the matrices' names.
Error check_keep(const LoadOptions& options, const std::set<std::string>& matrices, const std::string& folder);

// An error if `keep` and `head` give the head different formats.
Error check_head_format(const LoadOptions& options, const ModelConfig& config);

// The way a matrix of the checkpoint is packed.
struct Packing {
  Format format = Format::bf16;
  bool as_stored = false;                // keeps the file's codes and scales
  std::string requantised_because = {};  // reason if 4-bit codes of the file could not be kept; else empty
  int64_t rotation = 1;                  // see Matrix; 1 for the file's codes, which cannot be rotated
};

// The rotation (see Matrix) of weights with k inputs that the loader quantises to this format; 1: not rotated.
int64_t weight_rotation(const LoadOptions& options, Format format, int64_t k);

// The packing of one matrix. Reads some of its rows to detect ternary weights. If the file has 4-bit codes, w4a8
// and w4a8+ pack the matrices that it stores with more bits as int8, since its authors found 4 bits too few for them.
Packing packing_of(const LoadOptions& options, const ModelConfig& config, MatrixRole role, const std::string& module,
                   const LinearWeight& weight);

}  // namespace pinion
