#include "loader/checkpoint/number_formats.h"

#include <cstring>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "loader/gguf/gguf.h"

namespace pinion {
namespace {

template <class Element>
void convert_unaligned(std::span<const std::byte> source, float* out) {
  const size_t count = source.size() / sizeof(Element);
  for (size_t i = 0; i < count; i++) {
    Element element;
    std::memcpy(&element, source.data() + i * sizeof element, sizeof element);
    out[i] = to_float(element);
  }
}

// E8M0, an exponent alone. 2^-127 is subnormal in fp32.
float power_of_two(std::byte scale) {
  const auto exponent = std::to_integer<uint32_t>(scale);
  if (exponent == 255) return std::numeric_limits<float>::quiet_NaN();
  return exponent == 0 ? 0x1p-127f : std::bit_cast<float>(exponent << 23);
}

}  // namespace

void read_floats(const TensorView& tensor, float* out) {
  read_floats(tensor, 0, tensor.data ? tensor.elements() : 0, out);
}

void read_floats(const TensorView& tensor, int64_t first, int64_t count, float* out) {
  const BlockFormat* format = block_format(tensor.dtype);
  const int64_t elements = format ? format->elements : 1;
  const int64_t size = format ? format->bytes : tensor.dtype == DType::f32 ? sizeof(float) : sizeof(bf16);
  const std::span<const std::byte> source = tensor.contents().subspan(first / elements * size, count / elements * size);
  if (format) return format->read(source.data(), count / elements, out);
  if (tensor.dtype == DType::f32 && count > 0) std::memcpy(out, source.data(), source.size());
  if (tensor.dtype == DType::f16) convert_unaligned<f16>(source, out);
  if (tensor.dtype != DType::bf16) return;
  const bool is_aligned = reinterpret_cast<uintptr_t>(source.data()) % alignof(bf16) == 0;
  if (!is_aligned) return convert_unaligned<bf16>(source, out);
  // Most BF16 tensors are aligned; the kernel converts them at the speed of memory.
  best_kernels().to_float(reinterpret_cast<const bf16*>(source.data()), count, out);
}

void read_row(const TensorView& matrix, int64_t row, float* out) {
  read_floats(matrix, row * matrix.shape[1], matrix.shape[1], out);
}

void read_mxfp4(const std::byte* codes, const std::byte* scales, int64_t groups, float* out) {
  for (int64_t group = 0; group < groups; group++) {
    const float scale = power_of_two(scales[group]);
    for (int64_t i = 0; i < kMxGroupBytes; i++, out += 2) {
      const auto pair = std::to_integer<uint32_t>(codes[group * kMxGroupBytes + i]);
      out[0] = kE2m1Numbers[pair & 15] * scale;
      out[1] = kE2m1Numbers[pair >> 4] * scale;
    }
  }
}

}  // namespace pinion
