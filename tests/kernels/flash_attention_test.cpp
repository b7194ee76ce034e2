// flash_attn_decode against softmax attention in double precision; the same bits for every table, number of workers and
// padding between rows; every wrong argument is an error.
#include "tests/kernels/flash_attention.h"

namespace pinion {
namespace {

template <class T>
void expect_attention(const Attention<T>& a, bool all) {
  const std::vector<float> first = attend(a, {&scalar_kernels()}, Edge::end);
  EXPECT_LE(relative_error(first, definition(a)), sizeof(T) == 4 ? 1e-5 : 5e-4) << a.describe();
  const auto run = [&](const OpOptions& options, Edge edge, const std::string& label) {
    EXPECT_TRUE(same_bits(attend(a, options, edge), first)) << label << ": " << a.describe();
  };
  if (all) {
    for_each_table_and_crew(run);
  } else {
    for_each_table(run);
  }
}

TEST(FlashAttnDecode, HandWorked) {
  // Two heads on one kv head of two positions. Head 0 has scores 0 and 0: the mean. The scores of head 1 differ by ln 3
  // (1.0986...): a quarter and three quarters.
  Attention<float> a = {.seq_len = 2,
                        .head_dim = 2,
                        .kv_heads = 1,
                        .group = 2,
                        .scale = 0.5f,
                        .q = {0, 0, 0, 2.1972246f},
                        .k = {1, 0, 5, 1},
                        .v = {1, 10, 5, 30},
                        .ks = {2, 4},
                        .vs = {2, 4},
                        .default_heads = true};
  const std::vector<float> out = attend(a, {}, Edge::end);
  EXPECT_FLOAT_EQ(out[0], 3);
  EXPECT_FLOAT_EQ(out[1], 20);
  EXPECT_FLOAT_EQ(out[2], 4);
  EXPECT_FLOAT_EQ(out[3], 25);
  expect_attention(a, true);
}

// Every head_dim with every length; group size, kv heads and layout vary along.
TEST(FlashAttnDecode, Shapes) {
  constexpr int64_t kDims[] = {1, 5, 16, 64, 80, 128, 256, 320};
  constexpr int64_t kLengths[] = {1, 15, 16, 17, 255, 256, 257, 1000};
  constexpr int64_t kGroups[] = {1, 2, 7, 20};
  constexpr CacheOrder kLays[] = {CacheOrder::dense, CacheOrder::padded, CacheOrder::heads_inside};
  Random random;
  for (size_t i = 0; i < 64; i += static_cast<size_t>(kStride)) {
    const Shape shape = {.seq_len = kLengths[i / 8],
                         .head_dim = kDims[i % 8],
                         .kv_heads = 1 + static_cast<int64_t>(i % 3),
                         .group = kGroups[(i + i / 8 + i / 32) % 4]};
    expect_attention(random_attention<bf16>(random, shape, kLays[i % 3]), false);
    expect_attention(random_attention<float>(random, shape, kLays[(i + 1) % 3]), false);
  }
}

// More tasks than workers and fewer, and groups larger than one kernel call, for every table and number of workers.
TEST(FlashAttnDecode, AllTablesAndWorkers) {
  Random random;
  for (const Shape& shape : {Shape{300, 16, 3, 20}, {600, 24, 1, 7}, {40, 64, 1, 1}, {2100, 32, 2, 2}}) {
    expect_attention(random_attention<bf16>(random, shape, CacheOrder::padded), true);
    expect_attention(random_attention<float>(random, shape, CacheOrder::heads_inside), true);
  }
}

// The result has the bits of the table's kernels applied to the chunks in order, followed by one division.
TEST(FlashAttnDecode, ChunksAreMergedInOrder) {
  Random random;
  constexpr int64_t kLength = 900, kDim = 16;
  for (int i = 0; i < 10; ++i) {
    const Attention<float> a = random_attention<float>(random, {kLength, kDim, 1, 1}, CacheOrder::dense);
    float max = 0, sum = 0, acc[kDim] = {};
    for (int64_t first = 0; first < kLength; first += kAttentionChunk) {
      const int64_t count = std::min<int64_t>(kAttentionChunk, kLength - first);
      std::vector<float> keys(kAttentionChunk * kDim);
      for (int64_t p = 0; p < count; ++p) {
        for (int64_t d = 0; d < kDim; ++d) {
          keys[key_at<float>(p, d, kDim)] = a.k[(first + p) * kDim + d];
        }
      }
      float next_max, next_sum, next_acc[kDim], scores[kScoreFloats];
      const AttentionSpan span = {0, static_cast<int32_t>(count)};
      std::vector<float> q = a.q;
      scalar_kernels().make_query(q.data(), kDim, a.scale, true);
      scalar_kernels().attend({KvType::f32, keys.data(), &a.v[first * kDim], kDim, kDim}, q.data(), 1, &span, scores,
                              {&next_max, &next_sum, next_acc});
      if (first == 0) {
        max = next_max, sum = next_sum;
        std::copy_n(next_acc, kDim, acc);
      } else {
        scalar_kernels().merge_attention({&max, &sum, acc}, {&next_max, &next_sum, next_acc}, 1, kDim);
      }
    }
    std::vector<float> expected;
    for (float v : acc) expected.push_back(v / sum);
    EXPECT_TRUE(same_bits(attend(a, {}, Edge::end), expected));
  }
}

// One score dominates, at any position; the exponentials of the others underflow.
TEST(FlashAttnDecode, LargeScores) {
  Random random;
  for (int64_t winner : {0, 255, 256, 599}) {
    for (float scale : {100.0f, 1e10f, 1e30f}) {
      Attention<float> a = random_attention<float>(random, {600, 16, 1, 2}, CacheOrder::padded);
      a.scale = scale;
      std::fill(a.q.begin(), a.q.end(), 1.0f);
      std::fill(a.k.begin(), a.k.begin() + 300 * 16, -2.0f);  // whole chunks underflow
      std::fill(a.k.begin() + 300 * 16, a.k.end(), -1.0f);
      std::fill_n(a.k.begin() + winner * 16, 16, 3.0f);
      expect_attention(a, false);
      const std::vector<float> out = attend(a, {}, Edge::end);
      for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], a.v[static_cast<size_t>(winner) * 16 + i % 16]);
    }
  }
  // Equal large scores: the mean.
  Attention<bf16> a = random_attention<bf16>(random, {300, 16, 1, 2}, CacheOrder::dense);
  a.scale = 1e20f;
  std::fill(a.k.begin(), a.k.end(), number<bf16>(-1e10f));
  std::fill(a.q.begin(), a.q.end(), number<bf16>(1));
  expect_attention(a, true);
}

template <class T>
void expect_any_scale() {
  Random random;
  for (float scale : {0.0f, -1.0f, -0.125f}) {
    for (int64_t seq_len : {1, 5, 16, 300}) {
      Attention<T> a = random_attention<T>(random, {seq_len, 16, 1, 2}, CacheOrder::dense);
      a.scale = scale;
      expect_attention(a, false);
    }
  }
}

TEST(FlashAttnDecode, Scales) {
  expect_any_scale<float>();
  expect_any_scale<bf16>();
}

// bf16 inputs down to denormals: magnitudes below kMinOperand are zero in every table.
TEST(FlashAttnDecode, TinyNumbers) {
  Random random;
  Attention<bf16> a = random_attention<bf16>(random, {300, 48, 1, 2}, CacheOrder::padded);
  const auto shrink = [](std::vector<bf16>* all) {
    for (size_t i = 0; i < all->size(); ++i) {
      bf16& x = (*all)[i];
      x = to_bf16(std::ldexp(to_float(x), -static_cast<int>(i * 7 % 135)));
    }
  };
  shrink(&a.k), shrink(&a.v);
  for_each_table([&, first = attend(a, {&scalar_kernels()}, Edge::end)](const OpOptions& options, Edge edge,
                                                                        const std::string& label) {
    EXPECT_TRUE(same_bits(attend(a, options, edge), first)) << label;
  });
  shrink(&a.q);
  expect_attention(a, false);
}

// With one position the result is its value, for any score.
TEST(FlashAttnDecode, OnePositionGivesItsValue) {
  Random random;
  const Attention<bf16> a = random_attention<bf16>(random, {1, 80, 2, 3}, CacheOrder::padded);
  const std::vector<float> out = attend(a, {}, Edge::end);
  for (size_t h = 0; h < 6; ++h) {
    for (size_t i = 0; i < 80; ++i) EXPECT_EQ(out[h * 80 + i], wide(a.v[h / 3 * 80 + i]));
  }
}

// out may be q.
TEST(FlashAttnDecode, InPlace) {
  Random random;
  const Attention<float> a = random_attention<float>(random, {20, 24, 1, 3}, CacheOrder::dense);
  std::vector<float> q = a.q;
  alignas(64) static std::byte scratch[1 << 20];
  EXPECT_FALSE(flash_attn_decode<float>({.q = q.data(),
                                         .k = a.k.data(),
                                         .v = a.v.data(),
                                         .out = q.data(),
                                         .seq_len = 20,
                                         .head_dim = 24,
                                         .sm_scale = a.scale,
                                         .num_heads = 3,
                                         .num_kv_heads = 1,
                                         .stride_kn = 24,
                                         .stride_vn = 24},
                                        scratch));
  EXPECT_EQ(q, attend(a, {}, Edge::end));
}

// Valid arguments, four heads on two kv heads, four positions, that each test invalidates in one way.
template <class T>
FlashAttnDecode<T> small_attention(const std::vector<T>& x, std::vector<T>* out) {
  return {.q = x.data(),
          .k = x.data(),
          .v = x.data(),
          .out = out->data(),
          .seq_len = 4,
          .head_dim = 16,
          .num_heads = 4,
          .num_kv_heads = 2,
          .stride_kn = 16,
          .stride_vn = 16};
}

TEST(FlashAttnDecode, Errors) {
  const auto refused = [](const std::string& what, const std::function<void(FlashAttnDecode<bf16>&)>& invalidate) {
    std::vector<bf16> x(256), out(256, bf16{7});
    alignas(64) static std::byte scratch[1 << 20];
    FlashAttnDecode<bf16> args = small_attention(x, &out);
    invalidate(args);
    const Error e = flash_attn_decode<bf16>(args, scratch);
    if (what.empty()) {
      EXPECT_FALSE(e) << e.message();
      return;
    }
    expect_refused(e, "flash_attn_decode", what);
    EXPECT_EQ(flash_attn_decode_scratch_bytes(args), 0);
    for (bf16 v : out) EXPECT_EQ(v.bits, 7);
  };
  refused("", [](auto&) {});
  refused("seq_len", [](auto& a) { a.seq_len = 0; });
  refused("seq_len", [](auto& a) { a.seq_len = -5; });
  refused("head_dim", [](auto& a) { a.head_dim = 0; });
  refused("num_kv_heads", [](auto& a) { a.num_kv_heads = 0; });
  refused("num_heads", [](auto& a) { a.num_heads = 5; });
  refused("num_heads", [](auto& a) { a.num_heads = 0; });
  refused("num_heads", [](auto& a) { a.num_heads = 1; });
  refused("stride_kn", [](auto& a) { a.stride_kn = 15; });
  refused("stride_vn", [](auto& a) { a.stride_vn = 15; });
  refused("stride_kh", [](auto& a) { a.stride_kh = -1; });
  refused("stride_vh", [](auto& a) { a.stride_vh = -1; });
  refused("null", [](auto& a) { a.q = nullptr; });
  refused("null", [](auto& a) { a.k = nullptr; });
  refused("null", [](auto& a) { a.v = nullptr; });
  refused("null", [](auto& a) { a.out = nullptr; });
}

TEST(FlashAttnDecode, SmallScratchIsRefused) {
  std::vector<float> x(256), out(64, 7.0f);
  alignas(64) static std::byte scratch[1 << 20];
  const FlashAttnDecode<float> args = small_attention(x, &out);
  const size_t one = static_cast<size_t>(flash_attn_decode_scratch_bytes(args));
  const size_t two = static_cast<size_t>(flash_attn_decode_scratch_bytes(args, {.workers = crew(2)}));
  EXPECT_GT(two, one);
  ASSERT_LE(two, sizeof scratch - 32);
  expect_refused(flash_attn_decode(args, {scratch, one - 1}), "flash_attn_decode", "scratch");
  expect_refused(flash_attn_decode(args, {scratch + 32, one}), "flash_attn_decode", "scratch");
  expect_refused(flash_attn_decode(args, {}), "flash_attn_decode", "scratch");
  expect_refused(flash_attn_decode(args, {scratch, one}, {.workers = crew(2)}), "flash_attn_decode", "scratch");
  EXPECT_EQ(out, std::vector<float>(64, 7.0f));
  EXPECT_FALSE(flash_attn_decode(args, {scratch, one}));
  EXPECT_EQ(out, std::vector<float>(64, 0.0f));
}

}  // namespace
}  // namespace pinion
