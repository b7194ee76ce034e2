// Values must equal those of gguf-py's quants.py, so the order of operations is fixed: scales are multiplied first, in
// fp32, and a minimum is added last.
#include "loader/gguf/gguf.h"

#include <array>
#include <cstring>
#include <iterator>

#include "kernels/kernels.h"
#include "loader/checkpoint/number_formats.h"

namespace pinion {
namespace {

// Some bits of all codes of a block. Each run of `span` bytes holds span numbers in its lowest bits, the next ones in
// the bits above, and so on.
struct Bits {
  int at = 0;    // the first byte in the block
  int bits = 0;  // of a code; 0: none
  int span = 1;
};

struct Scale {
  float scale, min;
};

using Levels = int8_t[16];

constexpr Levels kSigns = {-1, 1};

// scale * (code - zero); the same with codes of 8 bits; the same + min; scale * level of the code.
enum Kind { kPlain, kSigned, kMin, kLevels };

struct Layout {
  int group;  // consecutive numbers with one scale; a divisor of the spans, so that the loop over a group vectorises
  Bits low, high;
  int zero;
  Kind kind = kPlain;
  const Levels* levels = &kSigns;
};

// Code `first + i`, where `first` begins a group.
template <Bits kBits>
int code_at(const uint8_t* block, int first, int i) {
  if (kBits.bits == 0) return 0;
  constexpr int kPerByte = kBits.bits ? 8 / kBits.bits : 1, kRun = kBits.span * kPerByte, kMask = (1 << kBits.bits) - 1;
  if constexpr (kBits.span == 1)
    return block[kBits.at + (first + i) / kPerByte] >> (first + i) % kPerByte * kBits.bits & kMask;
  const uint8_t* bytes = block + kBits.at + first / kRun * kBits.span + first % kBits.span;
  return bytes[i] >> first % kRun / kBits.span * kBits.bits & kMask;
}

template <int kElements, Layout kLayout, Scale (*kScale)(const uint8_t* block, int group)>
void decode(const uint8_t* block, float* out) {
  for (int group = 0; group < kElements / kLayout.group; ++group) {
    const int first = group * kLayout.group;
    const auto [scale, min] = kScale(block, group);
    for (int i = 0; i < kLayout.group; ++i) {
      const int low = code_at<kLayout.low>(block, first, i), high = code_at<kLayout.high>(block, first, i);
      const int code = low | high << kLayout.low.bits;
      const int number = kLayout.kind == kSigned ? static_cast<int8_t>(code) : code - kLayout.zero;
      const auto level = static_cast<float>(kLayout.kind == kLevels ? (*kLayout.levels)[code] : number);
      out[first + i] = kLayout.kind == kMin ? scale * level + min : scale * level;
    }
  }
}

float half_at(const uint8_t* bytes) {
  f16 value;
  std::memcpy(&value, bytes, sizeof value);
  return to_float(value);
}

template <int kAt>
Scale one_scale(const uint8_t* block, int) {
  return {half_at(block + kAt), 0};
}

Scale scale_and_min(const uint8_t* block, int) { return {half_at(block), half_at(block + 2)}; }

// Nibbles: scales, and minima above them.
Scale q2_k_scale(const uint8_t* block, int group) {
  return {half_at(block + 80) * static_cast<float>(block[group] & 15),
          -(half_at(block + 82) * static_cast<float>(block[group] >> 4))};
}

Scale q3_k_scale(const uint8_t* block, int group) {
  const uint8_t* scales = block + 96;  // low nibbles [8], pairs of high bits [4]
  const int low = scales[group % 8] >> group / 8 * 4 & 15, high = scales[8 + group % 4] >> group / 4 * 2 & 3;
  return {half_at(block + 108) * static_cast<float>((low | high << 4) - 32), 0};
}

// Groups 0 to 3 have scales and minima of six bits in bytes 0 to 7. The others have four bits in bytes 8 to 11 and two
// above those of groups 0 to 3.
Scale k_scale(const uint8_t* block, int group) {
  const uint8_t* scales = block + 4;
  const int low = scales[group + 4];
  const int scale = group < 4 ? scales[group] & 63 : (low & 15) | (scales[group - 4] >> 2 & 48);
  const int min = group < 4 ? low & 63 : low >> 4 | (scales[group] >> 2 & 48);
  return {half_at(block) * static_cast<float>(scale), -(half_at(block + 2) * static_cast<float>(min))};
}

Scale q6_k_scale(const uint8_t* block, int group) {
  return {half_at(block + 208) * static_cast<float>(static_cast<int8_t>(block[192 + group])), 0};
}

// Pairs of high bits [2], low nibbles [4], each for 32 numbers.
Scale iq4_xs_scale(const uint8_t* block, int group) {
  const int high = block[2 + group / 8] >> group / 2 % 4 * 2 & 3, low = block[4 + group / 4] >> group / 2 % 2 * 4 & 15;
  return {half_at(block) * static_cast<float>((low | high << 4) - 32), 0};
}

// Half of an exponent's power of two; subnormal below 2. 255 is 2^128, although MXFP4 has NaN there.
Scale mxfp4_scale(const uint8_t* block, int) {
  const uint32_t exponent = block[0];
  return {std::bit_cast<float>(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23), 0};
}

// Half of an E4M3 number. The sign is ignored; 0x7f is zero and 0xff is 480.
Scale nvfp4_scale(const uint8_t* block, int group) {
  const uint8_t byte = block[group / 2];
  return {0.5f * (byte == 0x7f ? 0 : byte == 0xff ? 480 : f8_e4m3_to_float(byte & 0x7f)), 0};
}

// Ternary digits, five or four a byte. A byte is a fraction of 256; a product with 3^j brings digit j to its front.
void decode_tq1_0(const uint8_t* block, float* out) {
  const float scale = half_at(block + 52);
  for (const auto& [at, bytes, digits] : {std::array{0, 32, 5}, {32, 16, 5}, {48, 4, 4}}) {
    for (int digit = 0, power = 1; digit < digits; ++digit, power *= 3, out += bytes) {
      for (int i = 0; i < bytes; ++i) out[i] = scale * static_cast<float>((block[at + i] * power & 255) * 3 / 256 - 1);
    }
  }
}

constexpr DType block_type(uint32_t id) { return DType(static_cast<uint32_t>(DType::first_block) + id); }

template <int kElements, int kBytes, void (*kDecode)(const uint8_t* block, float* out)>
void read_blocks(const std::byte* blocks, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint8_t block[kBytes];  // a copy, so that the compiler sees that `out` is other memory
    std::memcpy(block, blocks + i * kBytes, kBytes);
    kDecode(block, out + i * kElements);
  }
}

template <int kElements, int kBytes, Scale (*kScale)(const uint8_t* block, int group), Layout kLayout>
void take_codes(const std::byte* blocks, int64_t count, uint8_t* codes, W4Block* groups) {
  for (int64_t i = 0; i < count; ++i, blocks += kBytes) {
    const auto* block = reinterpret_cast<const uint8_t*>(blocks);
    for (int first = 0; first < kElements; first += kGroupK, codes += kGroupK, ++groups) {
      const auto [scale, min] = kScale(block, first / kLayout.group);
      *groups = {scale, kLayout.kind == kMin ? min : -scale * static_cast<float>(kLayout.zero)};
      for (int k = 0; k < kGroupK; ++k) {
        const int in_group = k % kLayout.group;
        codes[k] = static_cast<uint8_t>(code_at<kLayout.low>(block, first + k - in_group, in_group));
      }
    }
  }
}

template <int kElements, int kBytes, Scale (*kScale)(const uint8_t* block, int group), Layout kLayout>
constexpr BlockFormat blocks(uint32_t id, std::string_view name, std::optional<Format> kept = {}) {
  constexpr auto kRead = read_blocks<kElements, kBytes, decode<kElements, kLayout, kScale>>;
  constexpr auto kReadCodes = take_codes<kElements, kBytes, kScale, kLayout>;
  return {id, name, block_type(id), kElements, kBytes, kRead, kept ? kReadCodes : nullptr, kept};
}

constexpr BlockFormat kBlockTypes[] = {
    blocks<32, 18, one_scale<0>, Layout{16, {2, 4, 16}, {}, 8}>(2, "Q4_0", Format::w4),
    blocks<32, 20, scale_and_min, Layout{16, {4, 4, 16}, {}, 0, kMin}>(3, "Q4_1", Format::w4z),
    blocks<32, 22, one_scale<0>, Layout{16, {6, 4, 16}, {2, 1}, 16}>(6, "Q5_0"),
    blocks<32, 24, scale_and_min, Layout{16, {8, 4, 16}, {4, 1}, 0, kMin}>(7, "Q5_1"),
    blocks<32, 34, one_scale<0>, Layout{32, {2, 8, 32}, {}, 0, kSigned}>(kQ8_0, "Q8_0"),
    blocks<256, 84, q2_k_scale, Layout{16, {16, 2, 32}, {}, 0, kMin}>(10, "Q2_K"),
    blocks<256, 110, q3_k_scale, Layout{16, {32, 2, 32}, {0, 1, 32}, 4}>(11, "Q3_K"),
    blocks<256, 144, k_scale, Layout{32, {16, 4, 32}, {}, 0, kMin}>(12, "Q4_K", Format::w4z),
    blocks<256, 176, k_scale, Layout{32, {48, 4, 32}, {16, 1, 32}, 0, kMin}>(13, "Q5_K"),
    blocks<256, 210, q6_k_scale, Layout{16, {0, 4, 64}, {128, 2, 32}, 32}>(14, "Q6_K"),
    blocks<32, 18, one_scale<0>, Layout{16, {2, 4, 16}, {}, 0, kLevels, &kW4nLevels}>(20, "IQ4_NL", Format::w4n),
    blocks<256, 136, iq4_xs_scale, Layout{16, {8, 4, 16}, {}, 0, kLevels, &kW4nLevels}>(23, "IQ4_XS", Format::w4n),
    {34, "TQ1_0", block_type(34), 256, 54, read_blocks<256, 54, decode_tq1_0>},
    blocks<256, 66, one_scale<64>, Layout{32, {0, 2, 32}, {}, 1}>(35, "TQ2_0"),
    blocks<32, 17, mxfp4_scale, Layout{16, {1, 4, 16}, {}, 0, kLevels, &kMxfp4Levels}>(39, "MXFP4", Format::mxfp4),
    blocks<64, 36, nvfp4_scale, Layout{8, {4, 4, 8}, {}, 0, kLevels, &kMxfp4Levels}>(40, "NVFP4"),
    blocks<128, 18, one_scale<0>, Layout{32, {2, 1}, {}, 0, kLevels, &kSigns}>(41, "Q1_0"),
};

constexpr BlockFormat kPlainTypes[] = {
    {0, "F32", DType::f32, 1, 4},  {1, "F16", DType::f16, 1, 2},    {24, "I8", DType::i8, 1, 1},
    {25, "I16", DType::i16, 1, 2}, {26, "I32", DType::i32, 1, 4},   {27, "I64", DType::i64, 1, 8},
    {28, "F64", DType::f64, 1, 8}, {30, "BF16", DType::bf16, 1, 2},
};

constexpr BlockFormat kUnreadTypes[] = {
    {9, "Q8_1"},      {15, "Q8_K"},     {16, "IQ2_XXS"},    {17, "IQ2_XS"},     {18, "IQ3_XXS"},
    {19, "IQ1_S"},    {21, "IQ3_S"},    {22, "IQ2_S"},      {29, "IQ1_M"},      {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"}, {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

}  // namespace

void write_q8_0(const float* numbers, int64_t count, std::byte* blocks) {
  const Kernels& kernels = best_kernels();
  for (; count > 0; --count, numbers += kGroupK, blocks += sizeof(f16) + kGroupK) {
    const f16 scale = to_f16(code_scale(kernels.max_magnitude(numbers, kGroupK)));
    std::memcpy(blocks, &scale, sizeof scale);
    kernels.encode(numbers, kGroupK, to_float(scale), reinterpret_cast<int8_t*>(blocks + sizeof scale));
  }
}

const BlockFormat* block_format(DType dtype) {
  const auto row = std::ranges::find(kBlockTypes, dtype, &BlockFormat::dtype);
  return row == std::end(kBlockTypes) ? nullptr : row;
}

const BlockFormat* ggml_type(uint32_t id) {
  for (const auto& types : {std::span<const BlockFormat>(kBlockTypes), {kPlainTypes}, {kUnreadTypes}}) {
    for (const BlockFormat& type : types) {
      if (type.id == id) return &type;
    }
  }
  return nullptr;
}

}  // namespace pinion
