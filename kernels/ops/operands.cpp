#include "kernels/ops/operands.h"

#include "kernels/ops/tiles.h"

namespace pinion {
namespace {

int8_t widened(int8_t x) { return x; }
float widened(bf16 x) { return to_float(x); }
float widened(f16 x) { return to_float(x); }
float widened(float x) { return x; }

// A GemmMatrix with the type of its elements.
template <class T>
struct Elements {
  const T* data;
  int64_t ld;
  bool transposed;

  explicit Elements(const GemmMatrix& m) : data(static_cast<const T*>(m.data)), ld(m.ld), transposed(m.transposed) {}
  T at(int64_t row, int64_t column) const { return transposed ? data[column * ld + row] : data[row * ld + column]; }
};

// Calls f(T{}) with the C++ type of `type`.
template <class F>
void with_type(GemmType type, F f) {
  if (type == GemmType::s8) return f(int8_t{});
  if (type == GemmType::bf16) return f(bf16{});
  if (type == GemmType::f16) return f(f16{});
  f(float{});
}

void pack_s8_panel(const Elements<int8_t>& b, int64_t column, int64_t columns, int64_t k, int8_t* panel,
                   int32_t* column_sum) {
  std::fill_n(panel, packed_panel_bytes(GemmType::s8, k), int8_t{0});
  std::fill_n(column_sum, kPanelColumns, 0);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < columns; ++c) {
      const int8_t code = b.at(i, column + c);
      panel[w8_offset(i, c)] = code;
      column_sum[c] += code;
    }
  }
}

bf16 panel_number(bf16 x) { return x; }
float panel_number(f16 x) { return to_float(x); }
float panel_number(float x) { return x; }

template <class T, class P>
void pack_float_panel(const Elements<T>& b, int64_t column, int64_t columns, int64_t k, P* panel) {
  for (int64_t i = 0; i < k; ++i, panel += kPanelColumns) {
    for (int64_t c = 0; c < columns; ++c) panel[c] = panel_number(b.at(i, column + c));
    std::fill_n(panel + columns, kPanelColumns - columns, P{});
  }
}

// k of the rows that are copied at a time if Kernels::pack_* cannot read them in place: transposed rows, bf16, f16.
constexpr int64_t kCopiedK = kGroupK;

decltype(Kernels::pack_s8) packer_of(const Kernels& kernels, int8_t) { return kernels.pack_s8; }
decltype(Kernels::pack_f32) packer_of(const Kernels& kernels, float) { return kernels.pack_f32; }

template <class T>
void pack_by_copies(const Kernels& kernels, const Elements<T>& a, int64_t first, int64_t rows, int64_t k, int64_t block,
                    std::byte* packed) {
  using Wide = decltype(widened(T{}));
  Wide copy[kTileRows * kCopiedK];
  auto* to = reinterpret_cast<Wide*>(packed);
  for (int64_t i = 0; i < k; i += kCopiedK, to += kCopiedK * block) {
    const int64_t count = std::min(kCopiedK, k - i);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < count; ++j) copy[r * kCopiedK + j] = widened(a.at(first + r, i + j));
    }
    packer_of(kernels, Wide{})(copy, kCopiedK, rows, count, block, to);
  }
}

}  // namespace

int64_t element_bytes(GemmType type) {
  int64_t bytes = 0;
  with_type(type, [&](auto element) { bytes = sizeof element; });
  return bytes;
}

int64_t packed_k(GemmType type, int64_t k) { return type == GemmType::s8 ? padded_k(k) : k; }

int64_t packed_panel_bytes(GemmType type, int64_t k) {
  const int64_t bytes = type == GemmType::f16 ? element_bytes(GemmType::f32) : element_bytes(type);
  return packed_k(type, k) * kPanelColumns * bytes;
}

void pack_b_panel(GemmType type, const GemmMatrix& b, int64_t n, int64_t k, int64_t index, std::byte* packed) {
  const int64_t column = index * kPanelColumns;
  const int64_t columns = std::min(kPanelColumns, n - column);
  std::byte* panel = packed + index * packed_panel_bytes(type, k);
  with_type(type, [&]<class T>(T) {
    const Elements<T> from(b);
    if constexpr (std::is_same_v<T, int8_t>) {
      auto* sums = reinterpret_cast<int32_t*>(packed + panel_count(n) * packed_panel_bytes(type, k)) + column;
      pack_s8_panel(from, column, columns, k, reinterpret_cast<int8_t*>(panel), sums);
    } else {
      pack_float_panel(from, column, columns, k, reinterpret_cast<decltype(panel_number(T{}))*>(panel));
    }
  });
}

void pack_a_block(const Kernels& kernels, GemmType type, const GemmMatrix& a, int64_t first, int64_t rows, int64_t k,
                  int64_t block_rows, std::byte* packed) {
  with_type(type, [&]<class T>(T) {
    const Elements<T> from(a);
    if constexpr (std::is_same_v<T, int8_t> || std::is_same_v<T, float>) {
      const auto pack = packer_of(kernels, T{});
      if (!a.transposed) return pack(from.data + first * a.ld, a.ld, rows, k, block_rows, reinterpret_cast<T*>(packed));
    }
    pack_by_copies(kernels, from, first, rows, k, block_rows, packed);
  });
}

}  // namespace pinion
