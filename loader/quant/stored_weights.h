// The weights of linear layers in checkpoints: floats, int8 codes that the engine uses directly, or codes of other
// formats. These become fp32, w = (code - zero point) * scale, unless w4 keeps them.
//
//   format  tensors of a module NAME; W is [n, k]
//   int8    weight I8 [n, k]; weight_scale [n, 1], [n] or one number
//   fp8     weight F8_E4M3 [n, k], codes are numbers; weight_scale or weight_scale_inv (which is no inverse) as for
//           int8, or [n / rows, k / columns] rounded up, one for each tile of [rows, columns] weights
//   nvfp4   weight_packed U8 [n, k / 2], two E2M1 numbers a byte; weight_scale F8_E4M3 [n, k / 16];
//           weight_global_scale F32 [1], which divides all scales
//   bytes   weight I8 [n, k], signed codes of 4 or 8 bits; weight_scale [n, k / group]; with zero points
//           weight_zero_point I8 [n, k / group]
//   packed  weight_packed I32 [n, k bits / 32], weight_shape, weight_scale [n, k / group]; with zero points
//           weight_zero_point I32 [n bits / 32, k / group]
//   gptq    qweight I32 [k bits / 32, n], scales [k / group, n], qzeros I32 [k / group, n bits / 32]; if inputs were
//           reordered (act order), g_idx I32 [k], the group of each input
//   awq     qweight I32 [k, n bits / 32], scales and qzeros as for gptq; a word holds the columns 0 2 4 6 1 3 5 7
//   bitnet  weight U8 [n / 4, k]: byte row i holds two-bit codes of rows i, i + n / 4, i + n / 2 and i + 3 n / 4, each
//           a weight plus 1; weight_scale, one number
//
// Words and bytes hold their first code in the lowest bits. Scales are BF16, F16 or F32 unless stated otherwise.
#pragma once

#include <cstring>

#include "kernels/layout.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/pack/pack.h"
#include "loader/quant/quantization.h"

namespace pinion {

struct CodedMatrix;
struct ExpertsConfig;
struct ModelConfig;

// The tensors of one module, by the suffixes of their names.
struct ModuleTensors {
  const Checkpoint& checkpoint;
  const std::string& module;
  std::vector<std::string>* names;  // of all tensors that belong to the module's weight

  const TensorView* find(const char* suffix) const { return checkpoint.find(module + suffix); }
  std::string where(const char* suffix) const { return checkpoint.where(module + suffix); }
  // As Checkpoint::bind. Appends the name to `names`.
  Error bind(const char* suffix, std::initializer_list<int64_t> shape, std::initializer_list<DType> dtypes,
             TensorView* out) const {
    names->push_back(module + suffix);
    return checkpoint.bind(names->back(), shape, dtypes, out);
  }
  // Appends the names of tensors that the file may have but nothing reads.
  void add_unused(std::initializer_list<const char*> suffixes) const {
    for (const char* suffix : suffixes) {
      if (find(suffix)) names->push_back(module + suffix);
    }
  }
};

// A format of codes other than int8; the table is in code_formats.cpp.
struct CodeFormat {
  StoredAs stored_as;
  std::string_view name;
  bool by_column;  // the codes of one row of W are spread over the whole tensor

  // Finds and checks the module's tensors.
  Error (*bind)(const ModuleTensors& tensors, CodedMatrix* out);
  // One row of codes that are numbers, times their scales; null if codes are integers.
  void (*read_numbers)(const CodedMatrix& matrix, int64_t row, const float* scales, float* out);
  // Integer codes and their stored zero points (code_formats.cpp); null if there are none.
  void (*read_codes)(const CodedMatrix& matrix, int64_t first, int64_t rows, uint8_t* out);
  void (*read_zero_points)(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);
};

// A matrix W [n, k], or its rows from first_row on.
struct CodedMatrix {
  const CodeFormat* format = nullptr;  // null: not stored as codes
  CodeScheme scheme;
  int64_t n = 0;  // rows of the stored matrix
  int64_t k = 0;
  int64_t first_row = 0;
  TensorView codes, scale;
  TensorView zero;          // data is null if there are no zero points
  TensorView order;         // [k] the group of each input; data is null if groups are consecutive inputs
  float scale_divisor = 1;  // nvfp4: divides all scales

  int64_t group_size() const { return scheme.group_size > 0 ? scheme.group_size : k; }
  int64_t groups() const { return (k + group_size() - 1) / group_size(); }
  int64_t codes_per_word() const { return 32 / scheme.bits; }
  int64_t words(int64_t count) const { return (count + codes_per_word() - 1) / codes_per_word(); }  // for count codes
};

// --- code_formats.cpp: parts of the formats' layouts that readers of whole matrices need.

const CodeFormat& format_of(const CodeScheme& scheme);

// Element i of an I32 tensor, which may be unaligned.
inline uint32_t word(const TensorView& tensor, int64_t i) {
  uint32_t value;
  std::memcpy(&value, tensor.data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Finds the scales of 8-bit weights: one for each of n rows, or one for all rows.
Error bind_row_scales(const ModuleTensors& tensors, const char* suffix, int64_t n, TensorView* out);

// True if every zero point of 4-bit codes is 8. Compares whole words, so the padding of the last ones counts, too.
bool zeros_are_middle(const CodedMatrix& matrix);

// FP8 scales [first, first + count), divided by the matrix's divisor.
void read_fp8_scales(const CodedMatrix& matrix, int64_t first, int64_t count, float* out);

// --- adapters.cpp: LoRA adapters, low-rank changes of weights, in PEFT's folders (adapter_config.json and
// adapter_model.safetensors) or in GGUF files.

// Adds an adapter's tensors to a checkpoint whose tensors are not selected and renamed yet: MODULE.lora_A.INDEX and
// MODULE.lora_B.INDEX. Tensors of modules_to_save replace the checkpoint's. text: "PATH" or "PATH=FACTOR".
// architecture: of a GGUF adapter, else empty.
Error add_adapter(const std::string& text, int64_t index, Checkpoint* checkpoint, std::string* architecture);

// Finds all adapters' updates of a module with weights [n, k]. Appends the names of their tensors.
Error bind_updates(const Checkpoint& checkpoint, const std::string& module, int64_t n, int64_t k,
                   std::vector<LowRankUpdate>* out, std::vector<std::string>* names);

// --- stored_weights.cpp

// "GPTQ, 4 bits, groups of 128". Part of the weight cache's header: a changed text invalidates caches.
std::string description(const CodeFormat& format, const CodeScheme& scheme);

// (code - zero point) * scale of rows from first_row on, out [rows][k]: exact but for one rounding to fp32. NaN if a
// zero point or a code is invalid.
void read_rows(const CodedMatrix& matrix, int64_t first, int64_t rows, float* out);

// The reason for the NaNs of a row, if its codes show one.
Error explain_nan(const CodedMatrix& matrix, int64_t row);

// The format, w4 if all zero points are 8, else w4z, that keeps all codes, zero points and scales of the matrix, so
// that they give exactly the same numbers. If neither does, returns the reason in a few words and leaves `out`
// unchanged. Reads the zero points and the scales that are not F16, then releases their pages: the tensors must be in
// mapped files.
std::string find_w4_format(const CodedMatrix& matrix, Format* out);

// The format that keeps the codes of a GGUF type: w4 for Q4_0, w4z for types with minima, mxfp4, or w4n. Others have
// none.
std::optional<Format> kept_format(DType dtype);

// The weight of a linear layer.
struct LinearWeight {
  std::string stored_as;               // "int8", "GPTQ, 4 bits, groups of 128"; empty: floating point
  TensorView weight;                   // [n, k]; of codes: their name and bytes
  TensorView scale;                    // of int8 codes: n numbers or one; data is null for other formats
  CodedMatrix coded;                   // codes of other formats
  RowReader reader = {};               // of other layouts
  std::vector<LowRankUpdate> updates;  // by adapters
  std::vector<std::string> tensors;    // names of all tensors that belong to it
};

// Finds the tensors of a module, also those of adapters, and checks their types and shapes against the quantisation, if
// there is one.
Error bind_linear(const Checkpoint& checkpoint, const std::optional<Quantization>& quantization,
                  const std::string& module, int64_t n, int64_t k, LinearWeight* out);

// Rows [first, first + count), as a weight.
LinearWeight rows_of(const LinearWeight& whole, int64_t first, int64_t count);

// A reader for pack_all; empty for floats. keep_codes: find_w4_format or kept_format has found a format.
RowReader reader_of(const LinearWeight& weight, bool keep_codes);

// --- fused_experts.cpp: experts that share tensors. Fused (gpt-oss): each matrix is transposed, the columns of gate
// and up are interleaved,
//   gate_up_proj [experts, hidden, 2 * inner]    gate_up_proj_bias [experts, 2 * inner]
//   down_proj    [experts, inner, hidden]        down_proj_bias    [experts, hidden]
// or the matrices are MXFP4 codes, by rows:
//   gate_up_proj_blocks  U8 [experts, 2 * inner, hidden / 32, 16]
//   gate_up_proj_scales  U8 [experts, 2 * inner, hidden / 32]
//   down_proj_blocks, down_proj_scales   in the same way, from down's shape
// Halves (Qwen3-VL): floats without biases, and the columns of gate precede those of up.
// Stacked (Granite, Qwen 3.5): NAME.weight or NAME [experts, rows, k], not transposed.

// In some families, files have stacked experts, or single ones if these are quantised. Sets the names to those in the
// file.
void find_stacked_experts(const Checkpoint& checkpoint, ModelConfig* config);

inline constexpr const char* kMxfp4 = "MXFP4";  // LinearWeight::stored_as

// A matrix of all experts, or gate and up, as one weight [experts * rows, k]. Gate's rows precede up's in each expert,
// and one call of its reader reads either.
Error bind_shared_experts(const Checkpoint& checkpoint, const ExpertsConfig& experts, const std::string& module,
                          bool is_gate_up, int64_t rows, int64_t k, LinearWeight* out);

// A matrix of all heads or experts, [heads * rows, k], whose columns the tensor [heads, k, rows] or [heads * k, rows]
// stores (DBRX), or of one head [k, rows] (GPT-2's matrices).
Error bind_columns(const Checkpoint& checkpoint, const std::string& name, int64_t heads, int64_t rows, int64_t k,
                   LinearWeight* out);

// Reorders interleaved numbers [experts][2 * inner] so that gate's precede up's in each expert.
void split_gate_up(int64_t inner, std::span<float> numbers);

}  // namespace pinion
