// Experts that share tensors. Fused (gpt-oss): each matrix is transposed, the columns of gate and up are interleaved,
//   gate_up_proj [experts, hidden, 2 * inner]    gate_up_proj_bias [experts, 2 * inner]
//   down_proj    [experts, inner, hidden]        down_proj_bias    [experts, hidden]
// or the matrices are MXFP4 codes, by rows:
//   gate_up_proj_blocks  U8 [experts, 2 * inner, hidden / 32, 16]
//   gate_up_proj_scales  U8 [experts, 2 * inner, hidden / 32]
//   down_proj_blocks, down_proj_scales   in the same way, from down's shape
// Stacked (Granite, Qwen 3.5): NAME.weight or NAME [experts, rows, k], not transposed.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/base/error.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/config/model_config.h"
#include "loader/pack/pack.h"
#include "loader/quant/stored_weights.h"

namespace pinion {

// One matrix W [n, k] of every expert.
struct FusedMatrix {
  std::string module;
  int64_t n = 0;
  int64_t k = 0;
  TensorView values;           // numbers or codes
  TensorView scales;           // of codes; data is null for numbers
  TensorView bias;             // [experts, n]
  std::string stored_as = {};  // "MXFP4"; empty: floating point
};

struct FusedExperts {
  FusedMatrix gate_up;  // rows of gate and up alternate
  FusedMatrix down;
};

// Finds a layer's fused tensors and checks their types and shapes.
Error bind_fused_experts(const Checkpoint& checkpoint, const ModelConfig& config, int64_t layer, FusedExperts* out);

// In some families, files have stacked experts, or single ones if these are quantised. Sets the names to those in the
// file.
void find_stacked_experts(const Checkpoint& checkpoint, ModelConfig* config);

// All stacked experts as one weight [experts * rows, k].
Error bind_stacked_experts(const Checkpoint& checkpoint, const std::string& module, int64_t experts, int64_t rows,
                           int64_t k, LinearWeight* out);

// Reorders interleaved numbers [experts][2 * inner] so that gate's precede up's in each expert.
void split_gate_up(int64_t inner, std::span<float> numbers);

// Rows first, first + step, ..., `count` of them.
struct SteppedRows {
  int64_t first, step, count;
};

// Packs these rows of an expert's matrix, whose tensors must outlive the job.
PackJob expert_job(const FusedMatrix& matrix, int64_t expert, const SteppedRows& rows, Format format, Matrix* out);

}  // namespace pinion
