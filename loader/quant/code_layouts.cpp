#include "loader/quant/code_layouts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "loader/checkpoint/number_formats.h"

namespace pinion {
namespace {

// Code i of a word.
uint8_t code(uint32_t word, int64_t i, int bits) {
  return static_cast<uint8_t>(word >> static_cast<uint32_t>(i) * static_cast<uint32_t>(bits) & ((1u << bits) - 1));
}

// out [32 / bits]: all codes of a word, its lowest bits first.
void spread(uint32_t word, int bits, uint8_t* out) {
  if (bits == 8) {
    std::memcpy(out, &word, sizeof word);
    return;
  }
  uint64_t nibbles = word;
  nibbles = (nibbles | nibbles << 16) & 0x0000ffff0000ffff;
  nibbles = (nibbles | nibbles << 8) & 0x00ff00ff00ff00ff;
  nibbles = (nibbles | nibbles << 4) & 0x0f0f0f0f0f0f0f0f;
  std::memcpy(out, &nibbles, sizeof nibbles);
}

// Index, in its word, of the code of a column.
int64_t awq_index(int64_t column) {
  constexpr uint8_t kIndices[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  return kIndices[column % 8];
}

// out [count]: the zero point of symmetric codes.
void fill_middle(const CodedMatrix& m, int64_t count, float* out) {
  std::fill_n(out, count, static_cast<float>(1 << (m.scheme.bits - 1)));
}

// out [rows][groups]: f(row, group).
template <class F>
void for_each_zero_point(const CodedMatrix& m, int64_t first, int64_t rows, float* out, F f) {
  for (int64_t r = first; r < first + rows; ++r) {
    for (int64_t g = 0; g < m.groups(); ++g) *out++ = f(r, g);
  }
}

// Columns of words are read in slices of this many lines, which stay in cache from one column to the next.
constexpr int64_t kSliceLines = 64;

constexpr std::array<float, 256> kFp8Values = [] {
  std::array<float, 256> values = {};
  for (size_t i = 0; i < values.size(); ++i) values[i] = f8_e4m3_to_float(static_cast<uint8_t>(i));
  return values;
}();

}  // namespace

void read_byte_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.codes.data) + first * m.k;
  const uint32_t middle = 1u << (m.scheme.bits - 1);
  // A byte out of range becomes larger than the largest code.
  for (int64_t i = 0; i < rows * m.k; ++i) out[i] = static_cast<uint8_t>(codes[i] + middle);
}

void read_packed_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t per_word = m.codes_per_word(), row_words = m.words(m.k), whole = m.k / per_word;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row_word = (first + r) * row_words;
    uint8_t* row = out + r * m.k;
    for (int64_t w = 0; w < whole; ++w) spread(word(m.codes, row_word + w), m.scheme.bits, row + w * per_word);
    for (int64_t i = whole * per_word; i < m.k; ++i) {
      row[i] = code(word(m.codes, row_word + whole), i % per_word, m.scheme.bits);
    }
  }
}

void read_gptq_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t per_word = m.codes_per_word(), lines = m.k / per_word, slice = kSliceLines / per_word;
  for (int64_t begin = 0; begin < lines; begin += slice) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t line = begin; line < std::min(begin + slice, lines); ++line) {
        spread(word(m.codes, line * m.n + first + r), m.scheme.bits, out + r * m.k + line * per_word);
      }
    }
  }
}

void read_awq_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t row_words = m.words(m.n);
  for (int64_t begin = 0; begin < m.k; begin += kSliceLines) {
    const int64_t lines = std::min(kSliceLines, m.k - begin);
    std::array<uint32_t, kSliceLines> column_words = {};
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t column = first + r, index = awq_index(column);
      if (r == 0 || column % 8 == 0) {
        for (int64_t i = 0; i < lines; ++i) {
          column_words[i] = word(m.codes, (begin + i) * row_words + column / 8);
        }
      }
      uint8_t* row = out + r * m.k + begin;
      for (int64_t i = 0; i < lines; ++i) row[i] = code(column_words[i], index, 4);
    }
  }
}

void read_bitnet_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t quarter = m.n / 4;
  for (int64_t r = first; r < first + rows; ++r, out += m.k) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(m.codes.data) + r % quarter * m.k;
    const int64_t shift = r / quarter * 2;
    for (int64_t i = 0; i < m.k; ++i) out[i] = static_cast<uint8_t>(bytes[i] >> shift & 3);
  }
}

void read_byte_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t count = rows * m.groups();
  if (!m.zero.data) return fill_middle(m, count, out);
  const auto* zero_points = reinterpret_cast<const int8_t*>(m.zero.data) + first * m.groups();
  const int middle = 1 << (m.scheme.bits - 1);
  for (int64_t i = 0; i < count; ++i) {
    const int zero = zero_points[i] + middle;
    out[i] = zero < 0 || zero >= 2 * middle ? NAN : static_cast<float>(zero);
  }
}

void read_packed_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t groups = m.groups(), per_word = m.codes_per_word();
  if (!m.zero.data) return fill_middle(m, rows * groups, out);
  for_each_zero_point(m, first, rows, out, [&](int64_t row, int64_t g) {
    return code(word(m.zero, row / per_word * groups + g), row % per_word, m.scheme.bits);
  });
}

void read_gptq_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t row_words = m.words(m.n), per_word = m.codes_per_word();
  // The first version stores the zero point minus 1, and so 0 as the largest code. Some tools read that as 0, some as
  // one more than the largest code, and some corrupted the neighbours when they wrote it.
  const int largest = (1 << m.scheme.bits) - 1, offset = m.scheme.zeros_less_one ? 1 : 0;
  for_each_zero_point(m, first, rows, out, [&](int64_t row, int64_t g) {
    const int zero = code(word(m.zero, g * row_words + row / per_word), row % per_word, m.scheme.bits) + offset;
    return zero > largest ? NAN : static_cast<float>(zero);
  });
}

void read_awq_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t row_words = m.words(m.n);
  for_each_zero_point(m, first, rows, out, [&](int64_t column, int64_t g) {
    return code(word(m.zero, g * row_words + column / 8), awq_index(column), m.scheme.bits);
  });
}

void read_bitnet_zero_points(const CodedMatrix& m, int64_t /*first*/, int64_t rows, float* out) {
  std::fill_n(out, rows * m.groups(), 1.0f);
}

bool zeros_are_middle(const CodedMatrix& m) {
  if (!m.zero.data) return true;
  if (m.scheme.stored_as == StoredAs::bytes) {
    return std::ranges::all_of(m.zero.contents(), [](std::byte zero) { return zero == std::byte{0}; });
  }
  const bool less_one = m.scheme.stored_as == StoredAs::gptq && m.scheme.zeros_less_one;
  const uint32_t middle = less_one ? 0x77777777u : 0x88888888u;
  for (int64_t i = 0; i < m.zero.elements(); ++i) {
    if (word(m.zero, i) != middle) return false;
  }
  return true;
}

void read_fp8_row(const CodedMatrix& m, int64_t row, const float* scales, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.codes.data) + row * m.k;
  for (int64_t g = 0; g < m.groups(); ++g) {
    const int64_t end = std::min(m.k, (g + 1) * m.group_size());
    const float scale = scales[g];
    for (int64_t i = g * m.group_size(); i < end; ++i) out[i] = kFp8Values[codes[i]] * scale;
  }
}

void read_nvfp4_row(const CodedMatrix& m, int64_t row, const float* scales, float* out) {
  const auto* pairs = reinterpret_cast<const uint8_t*>(m.codes.data) + row * (m.k / 2);
  for (int64_t i = 0; i < m.k; i += 2) {
    const float scale = scales[i / kNvGroup];
    const uint8_t pair = pairs[i / 2];
    out[i] = kE2m1Numbers[pair & 15] * scale;
    out[i + 1] = kE2m1Numbers[pair >> 4] * scale;
  }
}

void read_fp8_scales(const CodedMatrix& m, int64_t first, int64_t count, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.scale.data) + first;
  for (int64_t i = 0; i < count; ++i) out[i] = kFp8Values[codes[i]] / m.scale_divisor;
}

}  // namespace pinion
