// 4-bit codes of files that w4 and w4z keep: worked by hand, for shapes around group and panel sizes, and whole files.
#include "loader/quant/stored_weights.h"
#include "tests/crew.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "kernels/base/hash.h"
#include "kernels/half.h"
#include "loader/config/model_config.h"
#include "loader/pack/pack_cache.h"
#include "tests/loader/coded_checkpoint.h"
#include "tests/loader/wide_groups.h"

namespace pinion {
namespace {

Tensor halves(const std::string& name, const std::string& shape, const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(to_f16(value).bits);
  return {name, "F16", shape, bytes(bits)};
}

Tensor narrow(const std::string& name, const std::string& shape, const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(to_bf16(value).bits);
  return {name, "BF16", shape, bytes(bits)};
}

std::string gptq(int group_size, const std::string& more = "") {
  return R"({"quant_method": "gptq", "bits": 4, "group_size": )" + std::to_string(group_size) + more + "}";
}

// A matrix packed with its codes kept, decoded independently of the product by the layout in kernels/layout.h.
struct Packed {
  std::string why_not, failure;
  Arena arena;
  Matrix matrix;

  explicit Packed(const LinearWeight& weight, int threads = 2) {
    Format format = Format::w8;
    why_not = find_w4_format(weight.coded, &format);
    if (!why_not.empty()) return;
    const PackJob job{weight.weight, format, &matrix, {}, reader_of(weight, true)};
    EXPECT_EQ(allocate_arena(packed_bytes({&job, 1}), &arena).message(), "");
    std::memset(arena.data, 0x55, arena.bytes);  // padding must be written
    failure = pack_all(crew(threads), {&job, 1}, arena.data).message();
  }

  bool has_zero_points() const { return matrix.format == Format::w4z; }
  const std::byte* record(int64_t n, int64_t k) const {
    return static_cast<const std::byte*>(matrix.panels) + n / 64 * panel_bytes(matrix.format, matrix.k) +
           k / 32 * (1024 + 128 + (has_zero_points() ? 64 : 0));
  }
  int code(int64_t n, int64_t k) const {
    const auto both = std::to_integer<int>(record(n, k)[k % 32 / 8 * 256 + n % 64 * 4 + k % 4]);
    return k % 8 < 4 ? both & 15 : both >> 4;
  }
  float group_scale(int64_t n, int64_t k) const {
    f16 scale;
    std::memcpy(&scale, record(n, k) + 1024 + n % 64 * 2, sizeof scale);
    return to_float(scale);
  }
  int zero(int64_t n, int64_t k) const {
    return has_zero_points() ? std::to_integer<int>(record(n, k)[1024 + 128 + n % 64]) / kZeroSteps : 8;
  }
  float weight(int64_t n, int64_t k) const {
    return static_cast<float>(code(n, k) - zero(n, k)) * group_scale(n, k) * matrix.scale[n];
  }
  Values weights() const {
    Values all;
    for (int64_t i = 0; i < matrix.n * matrix.k; ++i) all.push_back(weight(i / matrix.k, i % matrix.k));
    return all;
  }
};

// Column n of 8 has the code n, except for the code 15 at k = 37. Two groups of 32 inputs.
std::vector<Tensor> by_hand(uint32_t zeros, const Tensor& scales) {
  std::vector<uint32_t> codes(8 * 8);
  for (uint32_t i = 0; i < 64; ++i) codes[i] = i % 8 * 0x11111111u;
  for (uint32_t n = 0; n < 8; ++n) codes[4 * 8 + n] |= 0xf00000u;  // the word of k 32 to 39
  return {words("m.qweight", "[8, 8]", codes), words("m.qzeros", "[2, 1]", {0x77777777, zeros}), scales};
}

TEST(CodedW4, SymmetricByHand) {
  const Values scales = {1, 2, 3, 4, 5, 6, 7, 8, -0.5f, 0x1p-24f, 0, 1, 1, 1, 1, 65504};
  const Bound bound(gptq(32), 8, 64, by_hand(0x77777777, halves("m.scales", "[2, 8]", scales)));
  ASSERT_EQ(bound.failure, "");
  EXPECT_EQ(bound.weight.stored_as, "GPTQ, 4 bits, groups of 32");
  const Packed packed(bound.weight);
  ASSERT_EQ(packed.why_not + packed.failure, "");
  EXPECT_EQ(packed.matrix.format, Format::w4);
  for (int n = 0; n < 8; ++n) {
    EXPECT_EQ(packed.code(n, 0), n);
    EXPECT_EQ(packed.code(n, 36), n);
    EXPECT_EQ(packed.code(n, 37), 15);
    EXPECT_EQ(packed.code(n, 63), n);
    EXPECT_EQ(packed.group_scale(n, 31), scales[n]);
    EXPECT_EQ(packed.group_scale(n, 32), scales[8 + n]);
    EXPECT_EQ(packed.matrix.scale[n], 1.0f);
  }
  EXPECT_EQ(packed.weight(0, 37), 7 * -0.5f);
  EXPECT_EQ(packed.weight(1, 37), 7 * 0x1p-24f);
  EXPECT_EQ(packed.weight(2, 37), 0.0f);
  EXPECT_EQ(packed.weight(7, 32), -1 * 65504.0f);
}

TEST(CodedW4, ZerosByHand) {
  const Bound bound(gptq(32), 8, 64, by_hand(0xe0123456, halves("m.scales", "[2, 8]", Values(16, 0.5f))));
  const Packed packed(bound.weight);
  ASSERT_EQ(packed.why_not + packed.failure, "");
  EXPECT_EQ(packed.matrix.format, Format::w4z);
  for (int n = 0; n < 8; ++n) EXPECT_EQ(packed.zero(n, 31), 8);
  const int zeros[] = {7, 6, 5, 4, 3, 2, 1, 15};  // stored minus 1
  for (int n = 0; n < 8; ++n) {
    EXPECT_EQ(packed.zero(n, 32), zeros[n]);
    EXPECT_EQ(packed.weight(n, 37), static_cast<float>(15 - zeros[n]) * 0.5f);
  }
  const Bound v2(gptq(32, R"(, "checkpoint_format": "gptq_v2")"), 8, 64,
                 by_hand(0xe0123456, halves("m.scales", "[2, 8]", Values(16, 0.5f))));
  EXPECT_EQ(Packed(v2.weight).zero(6, 32), 0) << "unambiguous in version 2";
}

// Signed integers: row n has the code n - 8, except for a 7 at k = 37; zero points are stored minus 8, too.
TEST(CodedW4, BytesByHand) {
  std::vector<int8_t> codes(16 * 64), zeros(32);
  for (size_t i = 0; i < codes.size(); ++i)
    codes[i] = static_cast<int8_t>(i % 64 == 37 ? 7 : static_cast<int>(i / 64) - 8);
  const Tensor weight = integers("m.weight", "[16, 64]", codes),
               scale = halves("m.weight_scale", "[16, 2]", Values(32, 0.5f));
  const Bound symmetric(bytes_config(4, "group", 32, true), 16, 64, {weight, scale});
  ASSERT_EQ(symmetric.failure, "");
  const Packed plain(symmetric.weight);
  ASSERT_EQ(plain.why_not + plain.failure, "");
  EXPECT_EQ(plain.matrix.format, Format::w4);
  for (int n = 0; n < 16; ++n) {
    EXPECT_EQ(plain.code(n, 36), n);
    EXPECT_EQ(plain.weight(n, 63), static_cast<float>(n - 8) * 0.5f);
    EXPECT_EQ(plain.weight(n, 37), 3.5f);
  }
  const auto packed_with_zeros = [&] {
    return Packed(Bound(bytes_config(4, "group", 32, false), 16, 64,
                        {weight, scale, integers("m.weight_zero_point", "[16, 2]", zeros)})
                      .weight);
  };
  EXPECT_EQ(packed_with_zeros().matrix.format, Format::w4) << "all zero points are 8";
  zeros[2 * 5 + 1] = -8;
  const Packed shifted = packed_with_zeros();
  ASSERT_EQ(shifted.why_not + shifted.failure, "");
  EXPECT_EQ(shifted.matrix.format, Format::w4z);
  EXPECT_EQ(shifted.zero(5, 31), 8);
  EXPECT_EQ(shifted.zero(5, 32), 0);
  EXPECT_EQ(shifted.weight(5, 32), 2.5f);
  EXPECT_EQ(shifted.weight(5, 37), 7.5f);
}

// A group spans several groups of the layout, or all inputs.
TEST(CodedW4, WideGroupsAreRepeated) {
  for (const int group : {64, 128, -1}) {
    const int64_t groups = group == 64 ? 3 : group == 128 ? 2 : 1;
    Values scales;
    for (int64_t g = 0; g < groups; ++g) scales.insert(scales.end(), 8, static_cast<float>(g + 1));
    const std::string rows = "[" + std::to_string(groups);
    const Bound bound(gptq(group), 8, 168,
                      {words("m.qweight", "[21, 8]", std::vector<uint32_t>(168, 0x99999999)),
                       words("m.qzeros", rows + ", 1]", std::vector<uint32_t>(groups, 0x55555555)),
                       halves("m.scales", rows + ", 8]", scales)});
    ASSERT_EQ(bound.failure, "");
    const Packed packed(bound.weight);
    ASSERT_EQ(packed.why_not + packed.failure, "");
    const auto at = [&](int64_t k) { return static_cast<float>(group < 0 ? 1 : k / group + 1); };
    for (int64_t k = 0; k < 168; ++k) ASSERT_EQ(packed.weight(3, k), 3 * at(k)) << k;
    for (int64_t k = 168; k < 192; ++k) ASSERT_EQ(packed.weight(3, k), 0.0f) << "padding";
    for (int64_t n = 8; n < 64; ++n) ASSERT_EQ(packed.matrix.scale[n] + std::fabs(packed.group_scale(n, 0)), 0.0f);
  }
}

TEST(CodedW4, NonF16ScalesGetAColumnScale) {
  // Below the range of f16, above it, 11 significant bits (F32 only), the widest ratio, and columns of zeros.
  const Values first = {0x1p-40f, 0x1p60f, 2047, 0x1p14f, 0, -0x1p-90f, 1, 1},
               second = {0x1.fep-41f, 0x1p58f, -0.5f, 0x1p-15f, 0, 0, 1, 1};
  Values scales = first;
  scales.insert(scales.end(), second.begin(), second.end());
  for (const bool is_f32 : {true, false}) {
    if (!is_f32) scales[2] = 255;
    const Bound bound(gptq(32), 8, 64, by_hand(0x77777777, (is_f32 ? floats : narrow)("m.scales", "[2, 8]", scales)));
    const Packed packed(bound.weight);
    ASSERT_EQ(packed.why_not + packed.failure, "");
    EXPECT_EQ(packed.weights(), bound.rows(0, 8));
    EXPECT_EQ(packed.matrix.scale[0], 0x1p-55f);
    EXPECT_EQ(packed.group_scale(0, 0), 0x1p15f);
    EXPECT_EQ(packed.group_scale(3, 32), 0x1p-14f);
    EXPECT_EQ(packed.weight(4, 37), 0.0f);
  }
}

std::string why_not(const std::string& config, const std::vector<Tensor>& tensors) {
  const Bound bound(config, 8, 64, tensors);
  EXPECT_EQ(bound.failure, "");
  return Packed(bound.weight).why_not;
}

TEST(CodedW4, ReasonsForUnsupportedMatrices) {
  const auto scaled = [&](Values scales) {
    scales.resize(16, 1.0f);
    return why_not(gptq(32), by_hand(0x77777777, floats("m.scales", "[2, 8]", scales)));
  };
  EXPECT_EQ(scaled({0.5f, 3}), "");
  for (const float unfit : {0.1f, 2049.0f, 0x1p-30f, 0x1p-149f, INFINITY, NAN, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(scaled({1, 1, unfit}), "scales that f16 cannot hold") << unfit;
  }
  std::vector<Tensor> tensors = by_hand(0x77777777, halves("m.scales", "[2, 8]", Values(16, 1.0f)));
  std::vector<uint32_t> order(64);
  for (uint32_t i = 0; i < 64; ++i) order[i] = i / 32;
  tensors.push_back(words("m.g_idx", "[64]", order));
  EXPECT_EQ(why_not(gptq(32, R"(, "desc_act": true)"), tensors), "") << "the stored order is consecutive";
  std::swap(order[0], order[63]);
  tensors.back() = words("m.g_idx", "[64]", order);
  EXPECT_EQ(why_not(gptq(32, R"(, "desc_act": true)"), tensors), "reordered inputs (act order)");
  const auto grouped = [&](int size, const std::string& groups, size_t count) {
    return why_not(gptq(size), {words("m.qweight", "[8, 8]", std::vector<uint32_t>(64)),
                                words("m.qzeros", groups + ", 1]", std::vector<uint32_t>(count)),
                                halves("m.scales", groups + ", 8]", Values(count * 8))});
  };
  EXPECT_EQ(grouped(16, "[4", 4), "groups that are no multiple of 32");
  EXPECT_EQ(grouped(48, "[2", 2), "groups that are no multiple of 32");
  EXPECT_EQ(grouped(100, "[1", 1), "") << "all inputs";
}

TEST(CodedW4, InvalidRowsAreErrors) {
  Values scales(16, 1.0f);
  const auto failure = [&](uint32_t zeros) {
    std::vector<Tensor> tensors = by_hand(zeros, halves("m.scales", "[2, 8]", scales));
    if (std::isinf(scales[13])) tensors[2].data.replace(26, 2, "\x00\x7c", 2);
    return Packed(Bound(gptq(32), 8, 64, tensors).weight).failure;
  };
  EXPECT_EQ(
      failure(0x77f77777),
      "m.qzeros column 5: a zero point of 0, which tools read differently: want stored less one: below 15, have 15");
  std::vector<int8_t> codes(3 * 40), zeros(3 * 2);
  const auto bytes_failure = [&] {
    return Packed(Bound(bytes_config(4, "group", 32, false), 3, 40,
                        {integers("m.weight", "[3, 40]", codes), halves("m.weight_scale", "[3, 2]", Values(6, 1.0f)),
                         integers("m.weight_zero_point", "[3, 2]", zeros)})
                      .weight)
        .failure;
  };
  EXPECT_EQ(bytes_failure(), "");
  zeros[3] = 8;
  EXPECT_EQ(bytes_failure(), "m.weight_zero_point row 1: out of range: want -8 to 7, have 8");
  codes[119] = -9;
  zeros[3] = 0;
  EXPECT_EQ(bytes_failure(), "m.weight row 2: out of range: want -8 to 7, have -9");
  scales[13] = INFINITY;
  EXPECT_EQ(failure(0x77777777), "m.qweight row 5: NaN or infinity in the weights");
}

struct Shape {
  int64_t n, k, group;
};

std::vector<uint32_t> random_words(int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::vector<uint32_t> values(count);
  for (uint32_t& value : values) value = static_cast<uint32_t>(random()) & 0x7777'7777;  // no invalid zero point
  return values;
}

std::string list(int64_t a, int64_t b) { return "[" + std::to_string(a) + ", " + std::to_string(b) + "]"; }

std::vector<int8_t> random_integers(int64_t count) {
  std::vector<int8_t> values;
  for (const uint32_t word : random_words(count))
    values.push_back(static_cast<int8_t>(static_cast<int>(word & 15) - 8));
  return values;
}

// One shape as GPTQ, as AWQ, and as pack-quantized and int-quantized, each with and without zero points.
std::vector<std::unique_ptr<Bound>> random_weights(const Shape& s) {
  const int64_t groups = (s.k + s.group - 1) / s.group;
  Values scales(groups * s.n);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0x1p-9f * static_cast<float>(1 + i % 19);
  std::vector<std::unique_ptr<Bound>> all;
  const auto add = [&](const std::string& config, const std::vector<Tensor>& tensors) {
    all.push_back(std::make_unique<Bound>(config, s.n, s.k, tensors));
    EXPECT_EQ(all.back()->failure, "");
  };
  const std::string size = std::to_string(s.group);
  if (s.n % 8 == 0) {
    const Tensor columns = halves("m.scales", list(groups, s.n), scales),
                 zeros = words("m.qzeros", list(groups, s.n / 8), random_words(groups * s.n / 8));
    if (s.k % 8 == 0) {
      add(gptq(static_cast<int>(s.group)),
          {words("m.qweight", list(s.k / 8, s.n), random_words(s.k / 8 * s.n)), columns, zeros});
    }
    add(R"({"quant_method": "awq", "bits": 4, "group_size": )" + size + "}",
        {words("m.qweight", list(s.k, s.n / 8), random_words(s.k * s.n / 8)), columns, zeros});
  }
  const int64_t row_words = (s.k + 7) / 8, zero_words = (s.n + 7) / 8;
  const std::vector<int64_t> shape = {s.n, s.k};
  std::vector<Tensor> packed = {words("m.weight_packed", list(s.n, row_words), random_words(s.n * row_words)),
                                narrow("m.weight_scale", list(s.n, groups), scales),
                                {"m.weight_shape", "I64", "[2]", bytes(shape)}};
  add(packed_config(4, "group", static_cast<int>(s.group), true), packed);
  packed.push_back(words("m.weight_zero_point", list(zero_words, groups), random_words(zero_words * groups)));
  add(packed_config(4, "group", static_cast<int>(s.group), false), packed);
  std::vector<Tensor> in_bytes = {integers("m.weight", list(s.n, s.k), random_integers(s.n * s.k)), packed[1]};
  add(bytes_config(4, "group", static_cast<int>(s.group), true), in_bytes);
  in_bytes.push_back(integers("m.weight_zero_point", list(s.n, groups), random_integers(s.n * groups)));
  add(bytes_config(4, "group", static_cast<int>(s.group), false), in_bytes);
  return all;
}

TEST(CodedW4, ShapesAroundGroupAndPanelSizes) {
  for (const Shape& s : {Shape{1, 1, 32},
                         {8, 32, 32},
                         {15, 31, 32},
                         {16, 40, 32},
                         {17, 64, 64},
                         {64, 72, 64},
                         {65, 33, 96},
                         {72, 200, 128},
                         {136, 256, 128},
                         {80, 100, 100}}) {
    for (const auto& bound : random_weights(s)) {
      SCOPED_TRACE(bound->weight.stored_as + " " + list(s.n, s.k));
      const Packed packed(bound->weight, 1);
      ASSERT_EQ(packed.why_not + packed.failure, "");
      EXPECT_EQ(packed.matrix.format, bound->weight.coded.zero.data ? Format::w4z : Format::w4);
      EXPECT_EQ(packed.weights(), bound->rows(0, s.n));
      for (int64_t n = 0; n < padded_n(s.n); ++n) {
        for (int64_t k = n < s.n ? s.k : 0; k < padded_k(s.k); ++k) ASSERT_EQ(packed.weight(n, k), 0.0f);
      }
      const Packed again(bound->weight, 3);
      EXPECT_EQ(std::memcmp(again.arena.data, packed.arena.data, packed.arena.bytes), 0);
    }
  }
}

TEST(CodedW4, RowRangesEqualTheRows) {
  for (const auto& bound : random_weights({136, 72, 32})) {
    const Packed part(rows_of(bound->weight, 19, 70));
    ASSERT_EQ(part.why_not + part.failure, "");
    EXPECT_EQ(part.weights(), bound->rows(19, 70));
  }
}

TEST(CodedW4, CacheKeyDependsOnKeptCodes) {
  const auto all = random_weights({64, 64, 32});
  const Bound& bound = *all.front();
  std::set<std::string> headers;
  for (const bool as_w4 : {false, true}) {
    Matrix matrix;
    const PackJob job{bound.weight.weight, Format::w4, &matrix, {}, reader_of(bound.weight, as_w4)};
    headers.insert(pack_cache_of("/cache", bound.checkpoint, {&job, 1}).header);
  }
  EXPECT_EQ(headers.size(), 2u);
}

// Calls f(weight, decoded) for every weight that the expected.json of `recorded` lists.
template <class F>
void for_each_coded(const std::filesystem::path& folder, const std::filesystem::path& recorded, F f) {
  Json expected;
  ASSERT_EQ(read_json_file(recorded / "expected.json", &expected).message(), "");
  ModelConfig config;
  Checkpoint checkpoint;
  ASSERT_EQ(read_model_config(folder, &config).message(), "");
  ASSERT_EQ(open_checkpoint(folder, &checkpoint).message(), "");
  ASSERT_EQ(select_tensors(config.tensors, &checkpoint).message(), "");
  for (const auto& [name, decoded] : expected["decoded"].items()) {
    LinearWeight weight;
    ASSERT_EQ(
        bind_linear(checkpoint, config.quantization, name.substr(0, name.rfind('.')), decoded[0], decoded[1], &weight)
            .message(),
        "");
    SCOPED_TRACE(name);
    f(weight, decoded);
  }
}

const std::filesystem::path kFamilies = PINION_TEST_DATA "/families";

// Packed codes decode to the same bits as PyTorch computes.
TEST(CodedW4, WholeFilesMatchTheReference) {
  int matrices = 0;
  for (const char* family : {"llama_gptq", "qwen2_w4a8"}) {
    for_each_coded(kFamilies / family, kFamilies / family, [&](const LinearWeight& weight, const Json& decoded) {
      const Packed packed(weight);
      ASSERT_EQ(packed.why_not + packed.failure, "");
      EXPECT_EQ(packed.matrix.format, Format::w4z);
      const Values weights = packed.weights();
      EXPECT_EQ(hash_bytes(std::as_bytes(std::span(weights))), std::stoull(decoded[2].get<std::string>(), nullptr, 16));
      ++matrices;
    });
  }
  EXPECT_EQ(matrices, 14 + 14);
}

TEST(CodedW4, WholeFilesInGroupsOf32) {
  for (const std::string family : {"phi3_awq", "mixtral_awq", "qwen3_packed"}) {
    for_each_coded(kFamilies / family, kFamilies / family, [](const LinearWeight& weight, const Json&) {
      EXPECT_EQ(Packed(weight).why_not, "groups that are no multiple of 32");
    });
    const TempFolder folder;
    ASSERT_NO_FATAL_FAILURE(write_wide_groups(family, folder));
    int matrices = 0;
    for_each_coded(folder.path, kFamilies / family, [&](const LinearWeight& weight, const Json& decoded) {
      const Packed packed(weight);
      ASSERT_EQ(packed.why_not + packed.failure, "");
      EXPECT_EQ(packed.matrix.format, Format::w4z);
      const Values weights = packed.weights();
      Values values(weights.size());
      read_rows(weight.coded, 0, decoded[0], values.data());
      EXPECT_EQ(weights, values);
      ++matrices;
    });
    EXPECT_GE(matrices, 8) << family;
  }
}

}  // namespace
}  // namespace pinion
