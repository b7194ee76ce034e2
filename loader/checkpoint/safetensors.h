// The safetensors format: an 8-byte length, a JSON header, the bytes of the tensors. Parses memory; checkpoint.h opens
// the files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <map>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

// All types of the format, then those of GGUF that are stored in blocks: first_block + the number in the file
// (loader/gguf/gguf.h), of which the code names a few.
// clang-format off: one row for each kind of number
enum class DType : uint8_t {
  bf16, f16, f32, f64,
  i8, i16, i32, i64, u8, u16, u32, u64, boolean,
  f8_e4m3, f8_e5m2, f8_e8m0, f4, f6_e2m3, f6_e3m2, c64,
  first_block = 64, q4_0 = first_block + 2, q4_k = first_block + 12, q6_k = first_block + 14, mxfp4 = first_block + 39,
  q1_0 = first_block + 41
};
// clang-format on

inline bool is_block(DType dtype) { return dtype >= DType::first_block; }

// The types that read_floats accepts, beside blocks.
inline constexpr std::initializer_list<DType> kFloatTypes = {DType::bf16, DType::f16, DType::f32};
inline bool is_float(DType dtype) {
  return is_block(dtype) || std::ranges::find(kFloatTypes, dtype) != kFloatTypes.end();
}

std::string_view dtype_name(DType dtype);  // as in files: "BF16"

struct TensorView {
  std::string name;
  DType dtype = DType::bf16;
  std::vector<int64_t> shape;       // outermost first; empty for a scalar
  const std::byte* data = nullptr;  // [bytes] in the mapped file, not necessarily aligned
  int64_t bytes = 0;

  int64_t elements() const { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }
  std::span<const std::byte> contents() const { return {data, static_cast<size_t>(bytes)}; }
};

struct Safetensors {
  std::vector<TensorView> tensors;  // in the order of their bytes, without gaps
  std::map<std::string, std::string> metadata;
};

constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// `where` names the file in errors. The tensors point into `file`.
Error parse_safetensors(std::span<const std::byte> file, const std::string& where, Safetensors* out);

std::string shape_text(std::span<const int64_t> shape);  // "[2048, 6144]"

}  // namespace pinion
