// flash_attn_decode over codes, against softmax attention of the dequantised numbers; the same bits for every table and
// number of workers.
#include "tests/kernels/flash_attention.h"

namespace pinion {
namespace {

// Codes and scales; `wide` holds the same numbers dequantised.
struct CodedAttention {
  std::vector<bf16> q;
  std::vector<int8_t> k, v;
  std::vector<float> k_scale, v_scale;
  Attention<float> wide;
};

CodedAttention random_codes(Random& random, const Shape& s) {
  const int64_t positions = s.kv_heads * s.seq_len;
  CodedAttention a = {.q = numbers<bf16>(random.floats(s.kv_heads * s.group * s.head_dim, -2, 2)),
                      .k = random.codes(positions * s.head_dim),
                      .v = random.codes(positions * s.head_dim),
                      .k_scale = random.floats(positions, 0.005f, 0.02f),
                      .v_scale = random.floats(positions, -0.005f, 0.01f),
                      .wide = random_attention<float>(random, s, CacheOrder::dense)};
  const auto d = static_cast<size_t>(s.head_dim);
  for (size_t i = 0; i < a.q.size(); ++i) a.wide.q[i] = to_float(a.q[i]);
  for (size_t i = 0; i < a.k.size(); ++i)
    a.wide.k[i] = a.k[i] * a.k_scale[i / d], a.wide.v[i] = a.v[i] * a.v_scale[i / d];
  return a;
}

FlashAttnDecode<int8_t> arguments(const CodedAttention& a, bf16* out) {
  return {.q = a.q.data(),
          .k = a.k.data(),
          .v = a.v.data(),
          .out = out,
          .seq_len = a.wide.seq_len,
          .head_dim = a.wide.head_dim,
          .sm_scale = a.wide.scale,
          .num_heads = a.wide.heads(),
          .num_kv_heads = a.wide.kv_heads,
          .stride_kn = a.wide.head_dim,
          .stride_vn = a.wide.head_dim,
          .k_scale = a.k_scale.data(),
          .v_scale = a.v_scale.data()};
}

std::vector<float> attend(const CodedAttention& a, const OpOptions& options, Edge edge) {
  const Guarded<bf16> out(std::ssize(a.q), edge);
  const FlashAttnDecode<int8_t> args = arguments(a, out.data);
  const int64_t bytes = flash_attn_decode_scratch_bytes(args, options);
  const Guarded<std::byte> scratch(bytes, edge);
  std::memset(scratch.data, 0xff, bytes);
  EXPECT_EQ(flash_attn_decode(args, {scratch.data, static_cast<size_t>(bytes)}, options).message(), "");
  return floats(out.copy());
}

TEST(FlashAttnDecode, Codes) {
  Random random;
  for (const Shape& shape :
       {Shape{1, 1, 1, 1}, {255, 16, 1, 2}, {257, 64, 2, 4}, {600, 80, 1, 17}, {300, 128, 2, 1}, {20, 300, 1, 3}}) {
    const CodedAttention a = random_codes(random, shape);
    const std::vector<float> first = attend(a, {&scalar_kernels()}, Edge::end);
    EXPECT_LE(relative_error(first, definition(a.wide)), 2e-2) << a.wide.describe();
    for_each_table([&](const OpOptions& options, Edge edge, const std::string& label) {
      EXPECT_TRUE(same_bits(attend(a, options, edge), first)) << label << ": " << a.wide.describe();
    });
  }
}

TEST(FlashAttnDecode, CodesNeedScales) {
  Random random;
  const CodedAttention a = random_codes(random, {3, 16, 1, 1});
  std::vector<bf16> out(16);
  FlashAttnDecode<int8_t> args = arguments(a, out.data());
  args.v_scale = nullptr;
  EXPECT_EQ(flash_attn_decode(args, {}).message(),
            "flash_attn_decode: wrong argument: want pointers that are not null");
  EXPECT_EQ(flash_attn_decode_scratch_bytes(args), 0);
}

}  // namespace
}  // namespace pinion
