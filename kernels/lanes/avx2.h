// Sixteen float lanes as two AVX registers; scalar.h defines each function.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/half.h"

namespace pinion {
namespace {

struct Lanes {
  __m256 lo, hi;

  static constexpr int kRows = 4;
  static constexpr int kWide = 1;
  static constexpr int kRotated = 4;
  static constexpr int64_t kAheadBytes = int64_t{32} << 10;

  static Lanes broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static __m256 widen(const bf16* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static Lanes load(const bf16* p) { return {widen(p), widen(p + 8)}; }
  // Even elements, then odd ones: a shift and a mask, whereas the natural order takes two conversions and two shifts.
  static Lanes load_mixed(const bf16* p) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)))};
  }
  Lanes mixed() const {
    const __m256 left = _mm256_permute2f128_ps(lo, hi, 0x20), right = _mm256_permute2f128_ps(lo, hi, 0x31);
    return {_mm256_shuffle_ps(left, right, 0x88), _mm256_shuffle_ps(left, right, 0xdd)};
  }
  Lanes unmixed() const {
    const __m256 low = _mm256_unpacklo_ps(lo, hi), high = _mm256_unpackhi_ps(lo, hi);
    return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
  }
  static __m256 widen(const f16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static Lanes load(const f16* p) { return {widen(p), widen(p + 8)}; }
  static Lanes load(const int32_t* p) {
    return {_mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
            _mm256_cvtepi32_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8)))};
  }
  static __m256i load_halves(const bf16_pair* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static __m256 upper(__m256i halves) {
    return _mm256_castsi256_ps(_mm256_and_si256(halves, _mm256_set1_epi32(-65536)));
  }
  static Lanes load_first(const bf16_pair* p) { return {upper(load_halves(p)), upper(load_halves(p + 8))}; }
  static Lanes load_second(const bf16_pair* p) {
    asm("" : "+r"(p));  // else GCC keeps the vectors of load_first in registers and spills sums
    return {_mm256_castsi256_ps(_mm256_slli_epi32(load_halves(p), 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(load_halves(p + 8), 16))};
  }
  static __m256 rounded_to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256 rounded = upper(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd));
    const __m256 quiet = upper(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)));
    return _mm256_blendv_ps(rounded, quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  Lanes rounded_to_bf16() const { return {rounded_to_bf16(lo), rounded_to_bf16(hi)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  // Narrows sixteen codes to bytes.
  static void store_bytes(__m256i first, __m256i second, int8_t* p) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(first, second), 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
  void store_codes(int8_t* p) const { store_bytes(_mm256_cvtps_epi32(lo), _mm256_cvtps_epi32(hi), p); }
  void store_digits(int8_t* high, int8_t* low) const {
    const __m256i a = _mm256_cvtps_epi32(lo), b = _mm256_cvtps_epi32(hi), seven = _mm256_set1_epi32(127);
    store_bytes(_mm256_srli_epi32(a, 7), _mm256_srli_epi32(b, 7), high);
    store_bytes(_mm256_and_si256(a, seven), _mm256_and_si256(b, seven), low);
  }

  static Lanes add(Lanes a, Lanes b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  static Lanes sub(Lanes a, Lanes b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  static Lanes mul(Lanes a, Lanes b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  static Lanes div(Lanes a, Lanes b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  static Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  static Lanes min(Lanes a, Lanes b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  static __m256 if_less(__m256 x, __m256 y, __m256 a, __m256 b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_LT_OQ));
  }
  static Lanes if_less(Lanes x, Lanes y, Lanes a, Lanes b) {
    return {if_less(x.lo, y.lo, a.lo, b.lo), if_less(x.hi, y.hi, a.hi, b.hi)};
  }
  static __m256 larger_magnitude(__m256 a, __m256 b) {
    const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(b), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(a), magnitude));
  }
  static Lanes max_magnitude(Lanes a, Lanes b) { return {larger_magnitude(a.lo, b.lo), larger_magnitude(a.hi, b.hi)}; }
  template <int Distance>
  static Lanes exchange(Lanes a) {
    if constexpr (Distance == 8) return {a.hi, a.lo};
    if constexpr (Distance == 4) return {_mm256_permute2f128_ps(a.lo, a.lo, 1), _mm256_permute2f128_ps(a.hi, a.hi, 1)};
    constexpr int kOrder = Distance == 2 ? 0x4e : 0xb1;
    return {_mm256_permute_ps(a.lo, kOrder), _mm256_permute_ps(a.hi, kOrder)};
  }
  float first() const { return _mm256_cvtss_f32(lo); }
  static Lanes shift_to_exponent(Lanes a) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.lo), 23)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.hi), 23))};
  }
  // Codes of four bits become levels, `count` of them, a multiple of 64.
  static void look_up(const int8_t* levels, int8_t* codes, int64_t count) {
    const __m256i all = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
    for (int64_t i = 0; i < count; i += 32) {
      auto* at = reinterpret_cast<__m256i*>(codes + i);
      _mm256_storeu_si256(at, _mm256_shuffle_epi8(all, _mm256_loadu_si256(at)));
    }
  }
};

// One register, for the integer kernels (isa/rows_x86.h). Dot: see there.
struct Register {
  using Ints = __m256i;
  using Floats = __m256;
  static constexpr int kColumns = 8;  // sums of 32 bits

  static Ints zero() { return _mm256_setzero_si256(); }
  static Ints load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  template <class Access>
  static Ints load_by(const int8_t* p) {
    return load(p);
  }
  static void store(Ints x, int32_t* p) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  static Ints broadcast(int32_t x) { return _mm256_set1_epi32(x); }
  static Ints bytes(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static Ints flip(Ints x) { return _mm256_xor_si256(x, bytes(-128)); }
  static Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
  static Ints subtract(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
  static Ints times_128(Ints x) { return _mm256_slli_epi32(x, 7); }
  // The bits Mask << Shift of every byte, shifted down.
  template <int Shift, int Mask>
  static Ints bits(Ints x) {
    if constexpr (Shift > 0) x = _mm256_srli_epi16(x, Shift);
    return _mm256_and_si256(x, bytes(Mask));
  }
  // table[code] of every byte, a code of 4 bits.
  static Ints lookup(const int8_t* table, Ints codes) {
    const auto all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(all), codes);
  }
  // weight * sum of K codes of a row, in every lane.
  template <class Dot, int64_t K>
  static Ints sum_by(int weight, const int8_t* a) {
    Ints sum = zero();
    for (int64_t i = 0; i < K; i += 32) sum = Dot::add_codes(sum, bytes(weight), load(a + i));
    sum = Dot::total(sum);
    sum = add(sum, _mm256_permute2x128_si256(sum, sum, 1));
    sum = add(sum, _mm256_shuffle_epi32(sum, 0x4e));
    return add(sum, _mm256_shuffle_epi32(sum, 0xb1));
  }

  static Floats load(const float* p) { return _mm256_loadu_ps(p); }
  static Floats load(const f16* p) { return Lanes::widen(p); }
  static Floats load(const uint8_t* p) {
    return to_floats(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static void store(Floats x, float* p) { _mm256_storeu_ps(p, x); }
  static Floats broadcast(float x) { return _mm256_set1_ps(x); }
  static Floats to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats subtract_product(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a * b
};

}  // namespace
}  // namespace pinion
