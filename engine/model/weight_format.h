// What each matrix becomes: the mode, the options and what the file holds decide, here alone.
#pragma once

#include <string>

#include "engine/model/load_options.h"
#include "loader/config/model_config.h"
#include "loader/quant/stored_weights.h"

namespace pinion {

// The format that a matrix of numbers gets by its tensor's name.
Format weight_format(const LoadOptions& options, const std::string& name, bool is_head);

// Options that keep the head at bf16 and give it another format contradict themselves.
Error check_head_format(const LoadOptions& options, const ModelConfig& config);

struct Packing {
  Format format = Format::bf16;
  bool as_stored = false;    // codes of the file and their scales stay what they are
  std::string why_not = {};  // where 4-bit codes become other 4-bit codes: why they do not
  int64_t rotation = 1;      // of the weights made here (see Matrix); codes that stay are in their own basis
};

// How weights of this format with k inputs are rotated, where they are made here.
int64_t weight_rotation(const LoadOptions& options, Format format, int64_t k);

// The same of a matrix as the file holds it. Where a file has 4-bit codes, w4a8 takes what it leaves in more bits as
// int8: its authors did so for the model's sake.
Packing packing_of(const LoadOptions& options, const ModelConfig& config, const std::string& module,
                   const LinearWeight& weight);

}  // namespace pinion
