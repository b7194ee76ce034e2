// The quantization_config of a config.json: which modules are stored as codes, and how. Supports compressed-tensors
// (https://github.com/vllm-project/compressed-tensors: int-quantized, float-quantized, pack-quantized and
// nvfp4-pack-quantized), fp8, GPTQ, AWQ, AutoRound in the layouts of these two, and BitNet. Errors name every other
// method and every setting that would change the numbers. stored_weights.h describes the tensors.
#pragma once

#include <memory>

#include "kernels/base/error.h"
#include "loader/files/json.h"

struct pcre2_real_code_8;

namespace pinion {

// --- Patterns for names of modules.

// A module's name, a class ("Linear"), or "re:" and a Python regular expression that a name must begin with.
struct ModulePattern {
  std::string text;
  std::shared_ptr<const pcre2_real_code_8> regex;  // null: the text is compared
};

// Python's re and PCRE2 agree on the syntax that module names need. PCRE2's extensions begin with "(*" and are errors.
Error compile_pattern(const std::string& text, const std::string& where, ModulePattern* out);

enum class Match : uint8_t { none, by_class, by_name };

// The best match of the patterns with a linear layer that has these names. A regular expression that takes too many
// steps is an error.
Error match_patterns(const std::vector<ModulePattern>& patterns, const std::vector<std::string>& names, Match* out);

// --- Formats of codes.

enum class StoredAs : uint8_t {
  int8,  // 8 bits, symmetric, one scale per output: w8a8 uses the codes directly
  fp8,
  bytes,  // other integers, one in each byte
  packed,
  gptq,
  awq,
  nvfp4,
  bitnet
};

// The storage of a module's weight. A scale, and a zero point if there are any, applies to group_size inputs of
// rows_per_scale outputs.
struct CodeScheme {
  StoredAs stored_as = StoredAs::int8;
  int bits = 8;            // of integer codes
  int64_t group_size = 0;  // 0: all inputs
  int64_t rows_per_scale = 1;
  bool symmetric = true;       // bytes, packed: the zero point is the middle of the codes; false: it is stored
  bool zeros_less_one = true;  // gptq: zero points are stored minus 1, as in its first version
  bool has_order = false;      // bytes, packed, gptq: a tensor gives the group of each input (act order)
  bool divides = false;        // bitnet: weights are codes divided by the scale, not multiplied

  bool operator==(const CodeScheme&) const = default;
};

constexpr int64_t kNvGroup = 16;  // group_size of nvfp4

struct CodedModules {
  std::vector<ModulePattern> targets;
  CodeScheme scheme;
};

// Modules with codes: those that a target matches and `ignore` does not.
struct Quantization {
  std::vector<CodedModules> groups;
  std::vector<ModulePattern> ignore;
  bool by_tensors = false;  // fp8, gptq, awq, bitnet: the tensors show which modules have codes; there is one group
  // TensorSelection::renamed (loader/checkpoint/checkpoint.h): patterns may match names from before the renaming.
  std::vector<std::pair<std::string, std::string>> renamed;
};

// Reads the object under quantization_config. The error names the field with an unsupported value.
Error read_quantization(JsonFields& fields, Quantization* out);

// True if some modules have 4-bit integer codes.
bool has_w4_codes(const Quantization& quantization);

// True if w4 may keep the codes of some modules according to the config: 4 bits, groups of a multiple of 32 inputs, no
// reordering. find_w4_format (stored_weights.h) decides, since it also reads the scales.
bool keeps_w4_codes(const Quantization& quantization);

// The storage of a linear layer, or null if it is floating point. A regular expression that takes too many steps is an
// error. Not for by_tensors.
Error find_scheme(const Quantization& quantization, const std::string& module, const CodeScheme** out);

}  // namespace pinion
