// Arguments of gemm_batch: the packed form of B, the size of the scratch, and errors, which name the wrong argument and
// leave C unchanged.
#include <functional>

#include "tests/kernels/gemm_batch.h"

namespace pinion {
namespace {

TEST(GemmPackB, Layout) {
  Random random;
  constexpr int64_t n = 65, k = 33, ldb = 67;
  const std::vector<int8_t> codes = random.codes(k * ldb, -128);
  std::vector<bf16> floats;
  for (float v : random.floats(k * ldb)) floats.push_back(to_bf16(v));
  for (int32_t workers : kCrews) {
    const int64_t bytes = gemm_packed_b_bytes(GemmType::s8, n, k);
    ASSERT_EQ(bytes, 2 * 64 * 64 + 2 * 64 * 4);
    const Guarded<std::byte> packed(bytes, Edge::end);
    gemm_pack_b(GemmType::s8, {codes.data(), ldb}, n, k, packed.data, crew(workers));
    const auto* code = reinterpret_cast<const int8_t*>(packed.data);
    const auto* sums = reinterpret_cast<const int32_t*>(packed.data + 2 * 64 * 64);
    for (int64_t c = 0; c < 128; ++c) {
      int32_t sum = 0;
      for (int64_t i = 0; i < 64; ++i) {
        const int8_t expected = c < n && i < k ? codes[i * ldb + c] : int8_t{0};
        ASSERT_EQ(code[c / 64 * 64 * 64 + i / 4 * 256 + c % 64 * 4 + i % 4], expected) << c << " " << i;
        sum += expected;
      }
      ASSERT_EQ(sums[c], sum) << c;
    }

    ASSERT_EQ(gemm_packed_b_bytes(GemmType::bf16, n, k), round_up(2 * 64 * k * 2, 64));
    ASSERT_EQ(gemm_packed_b_bytes(GemmType::f32, n, k), round_up(2 * 64 * k * 4, 64));
    ASSERT_EQ(gemm_packed_b_bytes(GemmType::f16, n, k), gemm_packed_b_bytes(GemmType::f32, n, k));
    const Guarded<std::byte> packed_bf16(gemm_packed_b_bytes(GemmType::bf16, n, k), Edge::end);
    gemm_pack_b(GemmType::bf16, {floats.data(), ldb}, n, k, packed_bf16.data, crew(workers));
    const auto* element = reinterpret_cast<const bf16*>(packed_bf16.data);
    for (int64_t c = 0; c < 128; ++c) {
      for (int64_t i = 0; i < k; ++i) {
        const bf16 expected = c < n ? floats[i * ldb + c] : bf16{0};
        ASSERT_EQ(element[c / 64 * 64 * k + i * 64 + c % 64].bits, expected.bits) << c << " " << i;
      }
    }
  }
}

// Most single rows are multiplied unpacked and need no scratch.
TEST(GemmScratch, SingleRowNeedsNone) {
  const auto bytes = [](GemmType type, int64_t k, bool reduce) {
    return gemm_scratch_bytes(nullptr,
                              {.type = type, .batch = 2, .m = 1, .n = 10, .k = k, .reduce = reduce, .b_packed = true});
  };
  EXPECT_EQ(bytes(GemmType::s8, 12, false), 0);
  EXPECT_EQ(bytes(GemmType::f32, 13, false), 0);
  EXPECT_EQ(bytes(GemmType::f32, 13, true), 0);
  EXPECT_GT(bytes(GemmType::s8, 13, false), 0);
  EXPECT_GT(bytes(GemmType::s8, 12, true), 0);
  EXPECT_GT(bytes(GemmType::bf16, 12, false), 0);
  EXPECT_GT(bytes(GemmType::f16, 12, false), 0);
}

// A valid int8 problem with float results that each test invalidates in one way.
struct ValidCall {
  std::vector<int8_t> a = std::vector<int8_t>(64), b = std::vector<int8_t>(64);
  std::vector<float> c = std::vector<float>(64, 7.0f), numbers = std::vector<float>(64, 1.0f);
  alignas(64) std::byte scratch[16384];
  size_t scratch_bytes = sizeof scratch;
  size_t scratch_offset = 0;
  GemmBatch g = {.type = GemmType::s8,
                 .result = GemmResult::f32,
                 .batch = 2,
                 .m = 3,
                 .n = 5,
                 .k = 4,
                 .a = a.data(),
                 .lda = 4,
                 .a_stride = 12,
                 .b = b.data(),
                 .ldb = 5,
                 .b_stride = 20,
                 .c = c.data(),
                 .ldc = 5,
                 .c_stride = 15};

  Error multiply() { return gemm_batch(nullptr, {}, g, {scratch + scratch_offset, scratch_bytes}); }
};

void expect_refused(const std::string& argument, const std::function<void(ValidCall&)>& invalidate) {
  ValidCall s;
  invalidate(s);
  const Error e = s.multiply();
  ASSERT_TRUE(e) << argument;
  EXPECT_EQ(e.where.substr(0, 12), "gemm_batch: ") << e.message();
  EXPECT_NE(e.where.find(argument), std::string::npos) << "want " << argument << " in: " << e.message();
  EXPECT_EQ(s.c, std::vector<float>(64, 7.0f)) << e.message();
}

TEST(GemmErrors, ValidProblemIsAccepted) {
  ValidCall s;
  EXPECT_EQ(s.multiply().message(), "");
  EXPECT_EQ(s.c[0], 0);
  EXPECT_EQ(s.c[29], 0);
  EXPECT_EQ(s.c[30], 7);
}

TEST(GemmErrors, Sizes) {
  expect_refused("batch", [](ValidCall& s) { s.g.batch = -1; });
  expect_refused("m", [](ValidCall& s) { s.g.m = -1; });
  expect_refused("n", [](ValidCall& s) { s.g.n = -1; });
  expect_refused("k", [](ValidCall& s) { s.g.k = -1; });
  expect_refused("lda", [](ValidCall& s) { s.g.lda = 3; });
  expect_refused("ldb", [](ValidCall& s) { s.g.ldb = 4; });
  expect_refused("lda", [](ValidCall& s) { s.g.a_transposed = true, s.g.lda = 2; });
  expect_refused("ldb", [](ValidCall& s) { s.g.b_transposed = true, s.g.ldb = 3; });
  expect_refused("b_offsets", [](ValidCall& s) {
    static constexpr int64_t kOffsets[] = {0, 32};
    s.g.b = s.scratch, s.g.b_packed = true, s.g.b_offsets = kOffsets;
  });
  expect_refused("ldc", [](ValidCall& s) { s.g.ldc = 4; });
  expect_refused("c_stride", [](ValidCall& s) { s.g.c_stride = 14; });
  expect_refused("c_stride", [](ValidCall& s) { s.g.c_stride = -14; });
  expect_refused("b_stride", [](ValidCall& s) { s.g.b = s.scratch, s.g.b_packed = true, s.g.b_stride = 32; });
  expect_refused("gate_stride", [](ValidCall& s) { s.g.gate = s.numbers.data(), s.g.gate_stride = 4; });
  expect_refused("k", [](ValidCall& s) { s.g.k = s.g.lda = kMaxK + 1; });
  expect_refused("k", [](ValidCall& s) { s.g.reduce = true, s.g.k = s.g.lda = kMaxK / 2 + 1; });
  expect_refused("batch", [](ValidCall& s) { s.g.reduce = true, s.g.batch = kMaxGemmTerms + 1; });
}

TEST(GemmErrors, Pointers) {
  expect_refused("a", [](ValidCall& s) { s.g.a = nullptr; });
  expect_refused("b", [](ValidCall& s) { s.g.b = nullptr; });
  expect_refused("b", [](ValidCall& s) { s.g.b = s.scratch + 4, s.g.b_packed = true, s.g.b_stride = 4096; });
  expect_refused("row_scale", [](ValidCall& s) { s.g.row_scale = s.numbers.data(); });
  expect_refused("column_scale", [](ValidCall& s) { s.g.column_scale = s.numbers.data(); });
  expect_refused("c", [](ValidCall& s) { s.g.c = nullptr; });
  expect_refused("c", [](ValidCall& s) { s.g.c = nullptr, s.g.k = 0; });
  expect_refused(
      "c", [](ValidCall& s) { s.g.c = nullptr, s.g.batch = 0, s.g.reduce = true; });  // C is written even without terms
}

TEST(GemmErrors, Scratch) {
  ValidCall s;
  const int64_t bytes = gemm_scratch_bytes(nullptr, s.g);
  s.scratch_bytes = static_cast<size_t>(bytes);
  EXPECT_EQ(s.multiply().message(), "");
  expect_refused("scratch", [&](ValidCall& t) { t.scratch_bytes = static_cast<size_t>(bytes - 1); });
  expect_refused("scratch", [](ValidCall& t) { t.scratch_bytes = 0; });
  expect_refused("scratch", [](ValidCall& t) { t.scratch_offset = 32, t.scratch_bytes -= 32; });
}

TEST(GemmErrors, Int32ResultsArePlain) {
  const auto refused = [](const char* argument, const std::function<void(ValidCall&)>& invalidate) {
    expect_refused(argument, [&](ValidCall& s) {
      s.g.result = GemmResult::s32;
      invalidate(s);
    });
  };
  refused("alpha", [](ValidCall& s) { s.g.alpha = 2; });
  refused("beta", [](ValidCall& s) { s.g.beta = 0.5f; });
  refused("beta", [](ValidCall& s) { s.g.beta = kNan; });
  refused("epilogue", [](ValidCall& s) { s.g.row_scale = s.g.column_scale = s.numbers.data(); });
  refused("epilogue", [](ValidCall& s) { s.g.bias = s.numbers.data(); });
  refused("epilogue", [](ValidCall& s) { s.g.gate = s.numbers.data(), s.g.gate_stride = 5; });
  refused("epilogue", [](ValidCall& s) { s.g.low = 0; });
  refused("epilogue", [](ValidCall& s) { s.g.high = 0; });
  refused("result", [](ValidCall& s) { s.g.type = GemmType::f32; });
  refused("result", [](ValidCall& s) { s.g.type = GemmType::bf16; });
}

// Pointers may be null if nothing is read through them.
TEST(GemmErrors, UnreadPointersMayBeNull) {
  ValidCall s;
  s.g.a = s.g.b = nullptr, s.g.k = 0;
  EXPECT_EQ(s.multiply().message(), "");
  s.g.c = nullptr, s.g.m = 0;
  EXPECT_EQ(gemm_batch(nullptr, {}, s.g, {s.scratch, s.scratch_bytes}).message(), "");
  s.g.m = 3, s.g.batch = 0;
  EXPECT_EQ(gemm_batch(nullptr, {}, s.g, {}).message(), "");
}

}  // namespace
}  // namespace pinion
