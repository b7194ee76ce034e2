// A layer's experts in tensors that all of them share (gpt-oss), each matrix transposed, the columns of gate and up
// interleaved:
//   gate_up_proj [experts, hidden, 2 * inner]    gate_up_proj_bias [experts, 2 * inner]
//   down_proj    [experts, inner, hidden]        down_proj_bias    [experts, hidden]
// or the matrices as 4-bit codes (loader/quant/mxfp4.h), by rows:
//   gate_up_proj_blocks  U8 [experts, 2 * inner, hidden / 32, 16]
//   gate_up_proj_scales  U8 [experts, 2 * inner, hidden / 32]
//   down_proj_blocks, down_proj_scales: likewise
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
  TensorView values;           // numbers, or blocks of codes
  TensorView scales;           // of codes; its data is null otherwise
  TensorView bias;             // [experts, n]
  std::string stored_as = {};  // "MXFP4"; empty: in floating point
};

struct FusedExperts {
  FusedMatrix gate_up;  // rows of gate and up interleaved
  FusedMatrix down;
};

// What the file has for this layer, types and shapes checked.
Error bind_fused_experts(const Checkpoint& checkpoint, const ModelConfig& config, int64_t layer, FusedExperts* out);

// Some families' files have a layer's experts in such tensors, or one by one where these are quantised: takes the names
// for what the file has.
void find_stacked_experts(const Checkpoint& checkpoint, ModelConfig* config);

// Experts that follow one another in one tensor, NAME.weight or NAME [experts, rows, k] (Granite, Qwen 3.5): all of
// them as one weight [experts * rows, k].
Error bind_stacked_experts(const Checkpoint& checkpoint, const std::string& module, int64_t experts, int64_t rows,
                           int64_t k, LinearWeight* out);

// Numbers of gate and up that are interleaved, [experts][2 * inner]: puts those of gate before those of up, by expert.
void split_gate_up(int64_t inner, std::span<float> numbers);

// Every step-th row from `first` on, `count` of them.
struct SteppedRows {
  int64_t first, step, count;
};

// Packs such rows of an expert's matrix. The matrix's tensors outlive the job.
PackJob expert_job(const FusedMatrix& matrix, int64_t expert, const SteppedRows& rows, Format format, Matrix* out);

}  // namespace pinion
