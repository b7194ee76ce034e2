// Sixteen float lanes as one AVX-512 register; scalar.h defines each function.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/half.h"

namespace pinion {
namespace {

struct Lanes {
  __m512 v;

  static constexpr int kRows = 6;
  static constexpr int kWide = 4;
  static constexpr int kRotated = 16;
  static constexpr int64_t kAheadBytes = int64_t{32} << 10;

  static Lanes broadcast(float x) { return {_mm512_set1_ps(x)}; }
  static Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Lanes load_mixed(const bf16* p) { return load(p); }
  Lanes mixed() const { return *this; }
  Lanes unmixed() const { return *this; }
  static Lanes load(const bf16* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16))};
  }
  static Lanes load(const f16* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
  static Lanes load(const int32_t* p) { return {_mm512_cvtepi32_ps(_mm512_loadu_si512(p))}; }
  static Lanes upper(__m512i halves) {
    return {_mm512_castsi512_ps(_mm512_and_si512(halves, _mm512_set1_epi32(-65536)))};
  }
  static Lanes load_first(const bf16_pair* p) { return upper(_mm512_loadu_si512(p)); }
  static Lanes load_second(const bf16_pair* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
  }
  Lanes rounded_to_bf16() const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    return upper(_mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), rounded, quiet));
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_codes(int8_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  void store_digits(int8_t* high, int8_t* low) const {
    const __m512i codes = _mm512_cvtps_epi32(v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm512_cvtepi32_epi8(_mm512_srli_epi32(codes, 7)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(low),
                     _mm512_cvtepi32_epi8(_mm512_and_si512(codes, _mm512_set1_epi32(127))));
  }

  static Lanes add(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
  static Lanes sub(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
  static Lanes mul(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
  static Lanes div(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Lanes if_less(Lanes x, Lanes y, Lanes a, Lanes b) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), b.v, a.v)};
  }
  static Lanes max_magnitude(Lanes a, Lanes b) {
    const __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(b.v), _mm512_set1_epi32(0x7fffffff));
    return {_mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(a.v), magnitude))};
  }
  template <int Distance>
  static Lanes exchange(Lanes a) {
    if constexpr (Distance == 8) return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
    if constexpr (Distance == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
    return {_mm512_permute_ps(a.v, Distance == 2 ? 0x4e : 0xb1)};
  }
  float first() const { return _mm512_cvtss_f32(v); }
  static Lanes shift_to_exponent(Lanes a) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 23))};
  }
  // Codes of four bits become levels, `count` of them, a multiple of 64.
  static void look_up(const int8_t* levels, int8_t* codes, int64_t count) {
    const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels)));
    for (int64_t i = 0; i < count; i += 64) {
      _mm512_storeu_si512(codes + i, _mm512_shuffle_epi8(all, _mm512_loadu_si512(codes + i)));
    }
  }
};

// As in avx2.h.
struct Register {
  using Ints = __m512i;
  using Floats = __m512;
  static constexpr int kColumns = 16;

  static Ints zero() { return _mm512_setzero_si512(); }
  static Ints load(const void* p) { return _mm512_loadu_si512(p); }
  // By one load or two (AccessPattern::load_bytes). clang merges the two into one.
  template <class Access>
  static Ints load_by(const int8_t* p) {
    if constexpr (Access::kPattern.load_bytes != 32) return load(p);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  }
  static void store(Ints x, int32_t* p) { _mm512_storeu_si512(p, x); }
  static Ints broadcast(int32_t x) { return _mm512_set1_epi32(x); }
  static Ints bytes(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static Ints flip(Ints x) { return _mm512_xor_si512(x, bytes(-128)); }
  static Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
  static Ints times_128(Ints x) { return _mm512_slli_epi32(x, 7); }
  template <int Shift, int Mask>
  static Ints bits(Ints x) {
    if constexpr (Shift > 0) x = _mm512_srli_epi16(x, Shift);
    return _mm512_and_si512(x, bytes(Mask));
  }
  static Ints lookup(const int8_t* table, Ints codes) {
    const auto all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(all), codes);
  }

  static Floats load(const float* p) { return _mm512_loadu_ps(p); }
  static Floats load(const f16* p) { return Lanes::load(p).v; }
  static Floats load(const uint8_t* p) {
    return to_floats(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static void store(Floats x, float* p) { _mm512_storeu_ps(p, x); }
  static Floats broadcast(float x) { return _mm512_set1_ps(x); }
  static Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats subtract_product(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
};

}  // namespace
}  // namespace pinion
