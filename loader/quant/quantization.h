// Checkpoints that hold codes: what config.json's quantization_config says of them. Read are compressed-tensors
// (https://github.com/vllm-project/compressed-tensors: int-quantized, float-quantized, pack-quantized and
// nvfp4-pack-quantized), fp8, GPTQ, AWQ and BitNet; every other method and every setting that would change the numbers
// is refused by name. What the tensors then look like is loader/quant/stored_weights.h's.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "loader/files/json.h"
#include "loader/quant/module_patterns.h"

namespace pinion {

enum class StoredAs : uint8_t {
  int8,  // what w8a8 takes as it is: 8 bits, symmetric, a scale for each output
  fp8,
  bytes,  // all other integers that have a byte each
  packed,
  gptq,
  awq,
  nvfp4,
  bitnet
};

// How a module's weight is held. A code may share its scale, and its zero where there are any, with its neighbours.
struct CodeScheme {
  StoredAs stored_as = StoredAs::int8;
  int bits = 8;                // of integers
  int64_t group_size = 0;      // inputs that share a scale; 0: all
  int64_t block_rows = 1;      // outputs that do
  bool symmetric = true;       // bytes, packed: the zero is the middle of the codes; else it is stored
  bool zeros_less_one = true;  // gptq: as its first version stores them
  bool has_order = false;  // bytes, packed, gptq: inputs were quantised in an order of their own, which a tensor says
  bool divides = false;    // bitnet: weights are codes divided by the scale, not multiplied

  bool operator==(const CodeScheme&) const = default;
};

constexpr int64_t kNvGroup = 16;  // numbers of NVFP4 that share a scale

struct CodedModules {
  std::vector<ModulePattern> targets;
  CodeScheme scheme;
};

// Which modules have codes: those that a target matches and nothing in `ignore` does.
struct Quantization {
  std::vector<CodedModules> groups;
  std::vector<ModulePattern> ignore;
  bool by_tensors = false;  // fp8, gptq, awq, bitnet: which have codes shows by their tensors; there is one group
  // Patterns may mean names as they were before the loader's renaming (loader/checkpoint/checkpoint.h): from, to.
  std::vector<std::pair<std::string, std::string>> renamed;
};

// The object under quantization_config. An error names the field that asks for something else than is read.
Error read_quantization(JsonFields& fields, Quantization* out);

// Whether there are modules of 4-bit integers, as w4a8 takes them.
bool has_w4_codes(const Quantization& quantization);

// Whether w4 may take some as they are, by what the config says: in groups of whole blocks, inputs in their order. Not
// whether it does: find_w4_format (loader/quant/coded_w4.h) looks at the scales, too.
bool keeps_w4_codes(const Quantization& quantization);

// How the linear layer of this name is held; null: in floating point. An expression that needs too many steps is an
// error. Not for by_tensors.
Error find_scheme(const Quantization& quantization, const std::string& module, const CodeScheme** out);

}  // namespace pinion
