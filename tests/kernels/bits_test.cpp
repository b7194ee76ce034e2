// One hash per kernel for fixed inputs, which must be the same for every table, machine and compiler. The other tests
// compare the tables of one machine with its scalar table, over many shapes.
#include "kernels/base/math.h"
#include "tests/kernels/attention.h"

namespace pinion {
namespace {

// FNV-1a over the bytes of the result.
uint64_t hash(const Result& result) {
  uint64_t h = 0xcbf29ce484222325u;
  const auto mix = [&h](const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  };
  mix(result.codes.data(), result.codes.size());
  mix(result.sums.data(), result.sums.size() * sizeof(int32_t));
  mix(result.floats.data(), result.floats.size() * sizeof(float));
  return h;
}

Result quantized(const Kernels& k, Random& random) {
  Result result = {.codes = std::vector<int8_t>(320), .floats = {0}};
  const std::vector<float> x = random.floats(300, -5, 3);
  k.quantize(x.data(), 300, result.codes.data(), result.floats.data());
  return result;
}

Result int8_matmul(const Kernels& k, Random& random) {
  const std::vector<int8_t> a = random.codes(3 * 96), panel = random.codes(96 * kPanelColumns, -128);
  std::vector<int32_t> column_sum(kPanelColumns);
  for (size_t i = 0; i < panel.size(); ++i) column_sum[i / 4 % 64] += panel[i];
  Result result = {.sums = std::vector<int32_t>(3 * kPanelColumns)};
  std::vector<int8_t> packed(4 * 96);
  k.pack_s8(a.data(), 96, 3, 96, 4, packed.data());
  const GemmTerm term = {packed.data(), panel.data(), 96};
  k.gemm_s8(&term, 1, {4, 4 * 96}, 3, column_sum.data(), result.sums.data());
  return result;
}

// Three groups of codes by one row and by three.
void multiply_groups(const Kernels& k, Random& random, Format format, Result* result) {
  const int64_t depth = 3 * traits_of(format).group_k;
  std::vector<uint8_t> records(3 * record_bytes(format));
  for (uint8_t& byte : records) byte = static_cast<uint8_t>(random.next());
  for (int64_t group = 0; group < 3; ++group) {
    uint8_t* scales = records.data() + group * record_bytes(format) + code_bytes(format);
    for (int64_t c = 0; c < kPanelColumns && format != Format::w8h;
         ++c) {  // scales: halves from 1 to 2; zero points: 0 to 15
      scales[2 * c + 1] = static_cast<uint8_t>(0x3c | (scales[2 * c + 1] & 3));
      uint8_t* zero = scales + 2 * kPanelColumns + c;
      if (format == Format::w4z) *zero = static_cast<uint8_t>((*zero & 15) * kZeroSteps);
    }
  }
  const std::vector<int8_t> a = random.codes(3 * depth);
  const GroupedPanel panel = {reinterpret_cast<const std::byte*>(records.data()), depth, format};
  std::vector<float> one(kPanelColumns), several(3 * kPanelColumns);
  k.gemv_grouped(a.data(), panel, 1, one.data());
  std::vector<int8_t> packed(4 * depth);
  k.pack_s8(a.data(), depth, 3, depth, 4, packed.data());
  k.gemm_grouped(packed.data(), {4, 4 * depth}, 3, panel, several.data());
  append(result->floats, one);
  append(result->floats, several);
}

Result four_bit_matmul(const Kernels& k, Random& random) {
  Result result;
  for (const Format format : {Format::w4, Format::w4z}) multiply_groups(k, random, format, &result);
  return result;
}

template <Format F>
Result grouped_matmul(const Kernels& k, Random& random) {
  Result result;
  multiply_groups(k, random, F, &result);
  return result;
}

Result int8_row(const Kernels& k, Random& random) {
  const std::vector<int8_t> a = random.codes(100), panel = random.codes(100 * kPanelColumns, -128);
  Result result = {.sums = std::vector<int32_t>(kPanelColumns)};
  k.gemv_s8(a.data(), panel.data(), 4 * kPanelColumns, 100, result.sums.data());
  return result;
}

Result bf16_matmul(const Kernels& k, Random& random) {
  const std::vector<float> a = random.floats(3 * 100);
  std::vector<bf16> panel;
  for (float v : random.floats(100 * kPanelColumns)) panel.push_back(to_bf16(v));
  Result result = {.floats = std::vector<float>(3 * kPanelColumns)};
  std::vector<float> packed(3 * 100);
  k.pack_f32(a.data(), 100, 3, 100, 3, packed.data());
  const GemmTerm term = {packed.data(), panel.data(), 100};
  k.gemm_bf16(&term, 1, {3, 3 * 100 * 4}, 3, result.floats.data());
  return result;
}

Result dequantized(const Kernels& k, Random& random) {
  std::vector<int32_t> acc(2 * kPanelColumns);
  for (int32_t& v : acc) v = static_cast<int32_t>(random.next());
  const std::vector<float> row_scale = random.floats(2), column_scale = random.floats(kPanelColumns);
  const std::vector<float> bias = random.floats(50);
  Result result = {.floats = random.floats(2 * 50)};
  const Epilogue ops = {
      .row_scale = row_scale.data(), .column_scale = column_scale.data(), .bias = bias.data(), .beta = 1};
  k.epilogue_s32(acc.data(), 2, 50, ops, result.floats.data(), 50);
  return result;
}

Result activated(const Kernels& k, Random& random) {
  const std::vector<float> gate = random.floats(2000, -95, 95), up = random.floats(2000);
  Result result = {.floats = std::vector<float>(2000)};
  k.silu_mul(gate.data(), up.data(), 2000, result.floats.data());
  return result;
}

Result gelu_gated(const Kernels& k, Random& random) {
  const std::vector<float> sums = random.floats(20 * kPanelColumns, -9, 9), gate = random.floats(20 * 50, -9, 9);
  Result result = {.floats = std::vector<float>(20 * 50)};
  const Epilogue ops = {.cap = 4, .gate = gate.data(), .gate_stride = 50, .activation = Activation::gelu_tanh};
  k.epilogue_f32(sums.data(), 20, 50, ops, result.floats.data(), 50);
  return result;
}

Result gelu_activated(const Kernels& k, Random& random) {
  const std::vector<float> sums = random.floats(20 * kPanelColumns, -9, 9);
  Result result = {.floats = std::vector<float>(20 * 50)};
  const Epilogue ops = {.activates = true, .activation = Activation::gelu};
  k.epilogue_f32(sums.data(), 20, 50, ops, result.floats.data(), 50);
  return result;
}

Result clamped_gated(const Kernels& k, Random& random) {
  const std::vector<float> sums = random.floats(20 * kPanelColumns, -9, 9), gate = random.floats(20 * 50, -9, 9);
  Result result = {.floats = std::vector<float>(20 * 50)};
  const Epilogue ops = {.gate = gate.data(), .gate_stride = 50, .activation = Activation::clamped_swiglu, .limit = 7};
  k.epilogue_f32(sums.data(), 20, 50, ops, result.floats.data(), 50);
  return result;
}

Result xielu_activated(const Kernels& k, Random& random) {
  const std::vector<float> sums = random.floats(20 * kPanelColumns, -9, 9);
  Result result = {.floats = std::vector<float>(20 * 50)};
  const Epilogue ops = {.activates = true, .activation = Activation::xielu, .xielu = {0.75f, 1.25f, 0.5f, -1e-6f}};
  k.epilogue_f32(sums.data(), 20, 50, ops, result.floats.data(), 50);
  return result;
}

Result layer_normalised(const Kernels& k, Random& random) {
  const std::vector<float> x = random.floats(333, -2, 5), weight = random.floats(333), bias = random.floats(333);
  Result result = {.floats = std::vector<float>(333)};
  k.layer_norm(x.data(), weight.data(), bias.data(), 333, 1e-5f, result.floats.data());
  return result;
}

Result rms_normalised(const Kernels& k, Random& random) {
  const std::vector<float> x = random.floats(333, -2, 2), weight = random.floats(333);
  Result result = {.floats = std::vector<float>(333)};
  k.rms_norm(x.data(), weight.data(), 333, 1e-5f, result.floats.data());
  return result;
}

Result rotated(const Kernels& k, Random& random) {
  const std::vector<float> cosines = random.floats(40), sines = random.floats(40);
  Result result = {.floats = random.floats(80)};
  k.rope(result.floats.data(), cosines.data(), sines.data(), 40);
  return result;
}

Result attended_with_cap(float cap, const Kernels& k, Random& random) {
  AttentionCase first = random_attention(random, 48, KvType::bf16, {{0, 256}, {3, 256}, {200, 256}});
  AttentionCase second = random_attention(random, 48, KvType::f32, {{0, 30}, {0, 31}, {0, 32}});
  first.cap = second.cap = cap;
  return merge(k, Edge::end, split(attend(k, Edge::end, first), 3), split(attend(k, Edge::end, second), 3));
}

Result attended_codes(const Kernels& k, Random& random) {
  AttentionCase c = random_attention(random, 80, KvType::q8, {{0, 256}, {3, 256}, {200, 256}, {17, 100}});
  c.cap = 4;
  return attend(k, Edge::end, c);
}
Result unrotated(const Kernels& k, Random& random) {
  Result result = {.floats = random.floats(512, -3, 3)};
  k.unrotate(result.floats.data(), 512, 128, result.floats.data());
  return result;
}
Result attended(const Kernels& k, Random& random) { return attended_with_cap(0, k, random); }
Result attended_capped(const Kernels& k, Random& random) { return attended_with_cap(1.5f, k, random); }

Result convolved(const Kernels& k, Random& random) {
  const std::vector<float> x = random.floats(4 * 50, -3, 3), weight = random.floats(4 * 50),
                           gate = random.floats(50, -9, 9);
  const float* rows[] = {x.data(), x.data() + 50, x.data() + 100, x.data() + 150};
  Result result = {.floats = std::vector<float>(50)};
  k.convolve(rows, {weight.data(), nullptr, 50, 4, true}, 50, result.floats.data());
  k.sigmoid_mul(gate.data(), result.floats.data(), 50, result.floats.data());
  return result;
}

Result convolved_without_activation(const Kernels& k, Random& random) {
  const std::vector<float> x = random.floats(3 * 50, -3, 3), weight = random.floats(3 * 50), bias = random.floats(50);
  const float* rows[] = {x.data(), x.data() + 50, x.data() + 100};
  Result result = {.floats = std::vector<float>(50)};
  k.convolve(rows, {weight.data(), bias.data(), 50, 3, false}, 50, result.floats.data());
  return result;
}

Result advanced_by(bool delta_rule, bool key_decays, const Kernels& k, Random& random) {
  const std::vector<float> q = random.floats(9 * 30), key = random.floats(9 * 30, -0.2f, 0.2f),
                           decay = random.floats(key_decays ? 9 * 30 : 9, 0, 1), beta = random.floats(9, 0, 1);
  std::vector<float> v = random.floats(9 * 40), state(48 * 30);
  k.advance_state(
      {9, 30, 40, q.data(), key.data(), v.data(), decay.data(), beta.data(), v.data(), delta_rule, nullptr, key_decays},
      state.data());
  append(v, state);
  return {.floats = v};
}
Result advanced(const Kernels& k, Random& random) { return advanced_by(true, false, k, random); }
Result advanced_without_delta_rule(const Kernels& k, Random& random) { return advanced_by(false, false, k, random); }
Result advanced_by_key(const Kernels& k, Random& random) { return advanced_by(true, true, k, random); }

Result decayed(const Kernels& k, Random& random) {
  const std::vector<float> x = random.floats(50, -20, 20);
  Result result = {.floats = std::vector<float>(100)};
  k.decay(x.data(), 50, 0.3f, 0.0f, result.floats.data());
  k.decay(x.data(), 50, 0.3f, -5.0f, result.floats.data() + 50);
  return result;
}

// Results of the portable functions; doubles as pairs of integers.
Result portable_numbers(const Kernels&, Random& random) {
  std::vector<double> all;
  for (float x : random.floats(1000, 0, 700)) {
    double sine, cosine;
    portable_sincos(x * 1000.0, &sine, &cosine);
    all.insert(all.end(), {sine, cosine, portable_exp(x - 350.0), portable_log(x + 0.001)});
  }
  Result result = {.sums = std::vector<int32_t>(2 * all.size())};
  std::memcpy(result.sums.data(), all.data(), all.size() * sizeof(double));
  return result;
}

Result hadamard_rotated(const Kernels& k, Random& random) {
  Result result = {.floats = random.floats(1536, -5, 3)};
  k.rotate(result.floats.data(), 1536, 512, result.floats.data());
  return result;
}

struct Golden {
  const char* name;
  Result (*run)(const Kernels& kernels, Random& random);
  uint64_t hash;
};

constexpr Golden kGolden[] = {
    {"quantize", quantized, 0x13369a5b0813552au},
    {"rotate", hadamard_rotated, 0xac1a69841fb2c0fcu},
    {"gemm_s8", int8_matmul, 0x8e207ab7eedcea33u},
    {"gemv_s8", int8_row, 0x800bd8995315adaau},
    {"gemv_grouped and gemm_grouped of w4", four_bit_matmul, 0x51a4b4f50beea7b8u},
    {"gemv_grouped and gemm_grouped of w2", grouped_matmul<Format::w2>, 0x11a99b416a31b1c0u},
    {"gemv_grouped and gemm_grouped of mxfp4", grouped_matmul<Format::mxfp4>, 0x45c5f6f93c2a9dd5u},
    {"gemv_grouped and gemm_grouped of w4n", grouped_matmul<Format::w4n>, 0xaf48e311ffa579e8u},
    {"gemv_grouped and gemm_grouped of w8h", grouped_matmul<Format::w8h>, 0x20b7ae902e350a91u},
    {"gemm_bf16", bf16_matmul, 0x226a3a29e9005685u},
    {"epilogue_s32", dequantized, 0x345d91ea34d6a572u},
    {"silu_mul", activated, 0xceac31c1c308bd80u},
    {"cap and gelu_tanh", gelu_gated, 0x2f0ac9a9d859ce55u},
    {"gelu", gelu_activated, 0x233abdcf974029fau},
    {"clamped_swiglu", clamped_gated, 0x97c0477ca37174b7u},
    {"rms_norm", rms_normalised, 0x982e3e5c6573bd7cu},
    {"xielu", xielu_activated, 0xc96f89b329675cu},
    {"layer_norm", layer_normalised, 0x7d5b23961946c620u},
    {"rope", rotated, 0x45e47466c825e75au},
    {"attend and merge_attention", attended, 0x337811eadfdc15e6u},
    {"attend_s8", attended_codes, 0xceb5fcb998e34e6bu},
    {"unrotate", unrotated, 0x123f12d18f6b905fu},
    {"attend with a cap", attended_capped, 0x8b09630f1f4fdac0u},
    {"convolve and sigmoid_mul", convolved, 0x6b47d3129de025abu},
    {"convolve with a bias", convolved_without_activation, 0xb6c7f087cd717c80u},
    {"advance_state", advanced, 0x81e8b58979372015u},
    {"advance_state without the delta rule", advanced_without_delta_rule, 0xbb7d10add93fba17u},
    {"advance_state with decays of keys", advanced_by_key, 0x9425f26693ce2a70u},
    {"decay", decayed, 0xfa798dabc2f613c9u},
    {"the portable functions", portable_numbers, 0x51d78d08c4fca143u},
};

TEST(Bits, MatchTheGoldenHashes) {
  for (const Golden& golden : kGolden) {
    for (const Kernels* kernels : available_kernels()) {
      Random random;
      EXPECT_EQ(hash(golden.run(*kernels, random)), golden.hash) << golden.name << " of " << kernels->name;
    }
  }
}

}  // namespace
}  // namespace pinion
