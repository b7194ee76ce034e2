#include "loader/checkpoint/convert.h"

#include <cstring>
#include <span>

#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "kernels/kernels.h"

namespace pinion {
namespace {

template <class Element, class Convert>
void convert_all(std::span<const std::byte> source, float* out, Convert convert) {
  const size_t count = source.size() / sizeof(Element);
  for (size_t i = 0; i < count; i++) {
    Element element;  // copied: the file does not align it
    std::memcpy(&element, source.data() + i * sizeof element, sizeof element);
    out[i] = convert(element);
  }
}

void convert(DType dtype, std::span<const std::byte> source, float* out) {
  if (dtype == DType::bf16) {  // mostly aligned, and then read at the speed of the memory
    if (reinterpret_cast<uintptr_t>(source.data()) % alignof(bf16) == 0) {
      const auto* values = reinterpret_cast<const bf16*>(source.data());
      best_kernels().to_float(values, static_cast<int64_t>(source.size() / sizeof(bf16)), out);
    } else {
      convert_all<bf16>(source, out, [](bf16 value) { return to_float(value); });
    }
  }
  if (dtype == DType::f16) convert_all<f16>(source, out, [](f16 value) { return to_float(value); });
  if (dtype == DType::f32) convert_all<float>(source, out, [](float value) { return value; });
}

}  // namespace

void read_floats(const TensorView& tensor, float* out) { convert(tensor.dtype, tensor.contents(), out); }

void read_floats(const TensorView& tensor, int64_t first, int64_t count, float* out) {
  const size_t size = tensor.dtype == DType::f32 ? sizeof(float) : sizeof(bf16);
  convert(tensor.dtype, tensor.contents().subspan(static_cast<size_t>(first) * size, static_cast<size_t>(count) * size),
          out);
}

void read_row(const TensorView& matrix, int64_t row, float* out) {
  read_floats(matrix, row * matrix.shape[1], matrix.shape[1], out);
}

}  // namespace pinion
