// What each matrix becomes: the mode, the options and what the file holds decide, here alone.
#pragma once

#include <set>
#include <string>

#include "engine/model/load_options.h"
#include "loader/config/model_config.h"
#include "loader/quant/stored_weights.h"

namespace pinion {

// The format for a float tensor of this name.
Format weight_format(const LoadOptions& options, const std::string& name, bool is_head);

// A pattern of what to keep that is in no name is a mistake. matrices: the names of all.
Error check_keep(const LoadOptions& options, const std::set<std::string>& matrices, const std::string& folder);

// Options that keep the head at bf16 and give it another format contradict themselves.
Error check_head_format(const LoadOptions& options, const ModelConfig& config);

struct Packing {
  Format format = Format::bf16;
  bool as_stored = false;                // codes of the file and their scales stay what they are
  std::string requantised_because = {};  // why the file's 4-bit codes could not be kept as such; else empty
  int64_t rotation = 1;                  // see Matrix; 1 where the file's codes stay: they cannot be rotated
};

// Rotation block for weights of this format with k inputs that are quantised here; 1: not rotated.
int64_t weight_rotation(const LoadOptions& options, Format format, int64_t k);

// What one matrix of the checkpoint becomes. Reads some of its rows, to see whether they are ternary. In a file with
// 4-bit codes, w4a8 makes int8 of matrices that the file leaves in more bits: its authors found 4 bits too few for
// them.
Packing packing_of(const LoadOptions& options, const ModelConfig& config, const std::string& module,
                   const LinearWeight& weight);

}  // namespace pinion
