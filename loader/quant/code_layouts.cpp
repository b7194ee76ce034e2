#include "loader/quant/code_layouts.h"

#include <algorithm>
#include <array>
#include <cmath>

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

// In which place of its word each of eight columns lies.
constexpr std::array<uint8_t, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

int64_t awq_place(int64_t column) { return kAwqPlaces[static_cast<size_t>(column % 8)]; }

// out [count]: the zero of symmetric codes.
void fill_middle(const CodedMatrix& m, int64_t count, float* out) {
  std::fill_n(out, count, static_cast<float>(1 << (m.scheme.bits - 1)));
}

// Columns of words are read in blocks of lines, so that a row's next codes come from lines still in cache.
constexpr int64_t kBlockLines = 64;

}  // namespace

void read_byte_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(m.codes.data) + first * m.k;
  const uint32_t middle = 1u << (m.scheme.bits - 1);
  // A byte that is no code of this many bits becomes more than the largest code.
  for (int64_t i = 0; i < rows * m.k; ++i) out[i] = static_cast<uint8_t>(codes[i] + middle);
}

void read_packed_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t per_word = m.codes_a_word(), row_words = m.words(m.k), whole = m.k / per_word;
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
  const int64_t per_word = m.codes_a_word(), lines = m.k / per_word, block = kBlockLines / per_word;
  for (int64_t begin = 0; begin < lines; begin += block) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t line = begin; line < std::min(begin + block, lines); ++line) {
        spread(word(m.codes, line * m.n + first + r), m.scheme.bits, out + r * m.k + line * per_word);
      }
    }
  }
}

void read_awq_codes(const CodedMatrix& m, int64_t first, int64_t rows, uint8_t* out) {
  const int64_t row_words = m.words(m.n);
  for (int64_t begin = 0; begin < m.k; begin += kBlockLines) {
    const int64_t lines = std::min(kBlockLines, m.k - begin);
    std::array<uint32_t, kBlockLines> column_words = {};
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t column = first + r, place = awq_place(column);
      if (r == 0 || column % 8 == 0) {
        for (int64_t i = 0; i < lines; ++i) {
          column_words[static_cast<size_t>(i)] = word(m.codes, (begin + i) * row_words + column / 8);
        }
      }
      uint8_t* row = out + r * m.k + begin;
      for (int64_t i = 0; i < lines; ++i) row[i] = code(column_words[static_cast<size_t>(i)], place, 4);
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
  const int64_t groups = m.groups(), per_word = m.codes_a_word();
  if (!m.zero.data) return fill_middle(m, rows * groups, out);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t line = (first + r) / per_word, place = (first + r) % per_word;
    for (int64_t g = 0; g < groups; ++g) {
      out[r * groups + g] = code(word(m.zero, line * groups + g), place, m.scheme.bits);
    }
  }
}

void read_gptq_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t groups = m.groups(), per_word = m.codes_a_word();
  // The first version stores zero - 1, and so a zero of 0 as the largest code. Of that some tools make 0 again, some
  // one more than the largest code, and some spoilt the neighbours when they wrote it.
  const int most = (1 << m.scheme.bits) - 1, less = m.scheme.zeros_less_one ? 1 : 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t column = (first + r) / per_word, place = (first + r) % per_word;
    for (int64_t g = 0; g < groups; ++g) {
      const int zero = code(word(m.zero, g * m.words(m.n) + column), place, m.scheme.bits) + less;
      out[r * groups + g] = zero > most ? NAN : static_cast<float>(zero);
    }
  }
}

void read_awq_zero_points(const CodedMatrix& m, int64_t first, int64_t rows, float* out) {
  const int64_t groups = m.groups(), row_words = m.words(m.n);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t column = first + r;
    for (int64_t g = 0; g < groups; ++g) {
      out[r * groups + g] = code(word(m.zero, g * row_words + column / 8), awq_place(column), m.scheme.bits);
    }
  }
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

}  // namespace pinion
