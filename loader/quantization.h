// Checkpoints that hold int8 codes: config.json's quantization_config as the compressed-tensors library writes it
// ("int-quantized", https://github.com/vllm-project/compressed-tensors). One format is read: symmetric 8-bit codes with
// a scale per output channel, activations to be quantised per token while running. All others are refused by name.
//
// A matrix W [n, k] is then NAME.weight, I8 [n, k], and NAME.weight_scale, BF16, F16 or F32, [n, 1], [n] or one number:
// w = code * scale.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/error.h"
#include "loader/checkpoint.h"
#include "loader/json.h"

struct pcre2_real_code_8;

namespace pinion {

// A module's name, a class ("Linear"), or "re:" and a Python regular expression that a name must begin with.
struct ModulePattern {
  std::string text;
  std::shared_ptr<const pcre2_real_code_8> regex;  // null where the text is to be compared
};

// Which modules have codes: those that a target matches and nothing in `ignore` does.
struct Quantization {
  std::vector<ModulePattern> targets;
  std::vector<ModulePattern> ignore;
};

// The object under quantization_config. An error names the field that asks for something else than the format above.
Error read_quantization(JsonFields& fields, Quantization* out);

// Whether the linear layer of this name has codes. An expression that needs too many steps is an error.
Error has_codes(const Quantization& quantization, const std::string& module, bool* out);

// A linear layer's weight: `scale` is filled (its data is not null) where the file holds codes.
struct LinearWeight {
  TensorView weight;  // [n, k]
  TensorView scale;   // n numbers or one
};

// What the file has for this module, types and shapes checked against the quantisation, if there is one.
Error bind_linear(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
                  const std::string& module, int64_t n, int64_t k, LinearWeight* out);

}  // namespace pinion
