// The choice of a kernel table: by the CPU, by name, by environment variable.
#include <cstdlib>
#include <set>

#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

bool available(const Variant& variant) { return (variant.needs & ~cpu_features()) == 0; }

// Restores PINION_KERNELS at the end of the scope.
class Select : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* value = std::getenv("PINION_KERNELS")) before_ = value;
    unsetenv("PINION_KERNELS");
  }
  void TearDown() override {
    if (!before_.empty()) setenv("PINION_KERNELS", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST_F(Select, TheForcedTableIsTheOneThatRuns) {
  for (const Variant& variant : kernel_variants()) {
    if (!available(variant)) continue;
    const Kernels* by_name = nullptr;
    EXPECT_FALSE(select_kernels(variant.name, &by_name)) << variant.name;
    EXPECT_EQ(by_name, &variant.table());
    EXPECT_STREQ(by_name->name, variant.name);

    setenv("PINION_KERNELS", variant.name, 1);
    const Kernels* by_environment = nullptr;
    EXPECT_FALSE(select_kernels("", &by_environment)) << variant.name;
    EXPECT_EQ(by_environment, by_name);
    unsetenv("PINION_KERNELS");
  }
}

TEST_F(Select, TheCpusBestByDefault) {
  const Kernels* chosen = nullptr;
  EXPECT_FALSE(select_kernels("", &chosen));
  EXPECT_EQ(chosen, available_kernels().front());
  setenv("PINION_KERNELS", "", 1);
  const Kernels* again = nullptr;
  EXPECT_FALSE(select_kernels("", &again));
  EXPECT_EQ(again, chosen);
}

TEST_F(Select, ANameComesBeforeTheEnvironment) {
  setenv("PINION_KERNELS", "no_such", 1);
  const Kernels* chosen = nullptr;
  EXPECT_FALSE(select_kernels("scalar", &chosen));
  EXPECT_EQ(chosen, &scalar_kernels());
}

TEST_F(Select, UnknownNamesAreErrors) {
  const Kernels* chosen = nullptr;
  const Error by_name = select_kernels("no_such", &chosen);
  ASSERT_TRUE(by_name);
  EXPECT_NE(by_name.message().find("no_such"), std::string::npos);
  for (const Variant& variant : kernel_variants()) {
    EXPECT_NE(by_name.message().find(variant.name), std::string::npos) << by_name.message();
  }
  EXPECT_EQ(by_name.message().find('\n'), std::string::npos);
  EXPECT_TRUE(select_kernels("scala", &chosen));
  EXPECT_TRUE(select_kernels("scalar ", &chosen));

  setenv("PINION_KERNELS", "no_such", 1);
  const Error by_environment = select_kernels("", &chosen);
  EXPECT_EQ(by_environment.message(), by_name.message());
  EXPECT_EQ(chosen, nullptr);
}

TEST_F(Select, NamesTheCpuLacksAreErrors) {
  for (const Variant& variant : kernel_variants()) {
    if (available(variant)) continue;
    const Kernels* chosen = nullptr;
    const Error e = select_kernels(variant.name, &chosen);
    ASSERT_TRUE(e) << variant.name;
    EXPECT_EQ(chosen, nullptr);
    EXPECT_NE(e.message().find(feature_names(variant.needs & ~cpu_features())), std::string::npos) << e.message();
  }
}

TEST(Tables, HaveNoNullEntries) {
  std::set<std::string> names;
  for (const Variant& variant : kernel_variants()) EXPECT_TRUE(names.insert(variant.name).second) << variant.name;
  EXPECT_EQ(kernel_variants().back().needs, 0u);
  EXPECT_STREQ(kernel_variants().back().name, "scalar");

  std::set<std::pair<decltype(Kernels::gemm_s8), decltype(Kernels::attend)>> products;
  for (const Kernels* k : available_kernels()) {
    EXPECT_TRUE(k->quantize && k->gemv_s8 && k->pack_s8 && k->gemm_s8 && k->pack_f32 && k->gemm_bf16) << k->name;
    EXPECT_TRUE(k->gemm_f32 && k->epilogue_s32 && k->epilogue_f32 && k->to_bf16 && k->to_float && k->silu_mul)
        << k->name;
    EXPECT_TRUE(k->rotate && k->unrotate && k->make_query_s8 && k->attend_s8 && k->sigmoid_mul && k->convolve &&
                k->advance_state && k->decay)
        << k->name;
    EXPECT_TRUE(k->rms_norm && k->layer_norm && k->rope && k->make_query && k->attend && k->merge_attention &&
                k->argmax)
        << k->name;
    EXPECT_TRUE(products.insert({k->gemm_s8, k->attend}).second) << k->name << " has no products of its own";
  }
}

TEST(Features, Names) {
  EXPECT_EQ(feature_names(0), "");
  EXPECT_EQ(feature_names(kCpuAvx2), "avx2");
  EXPECT_EQ(feature_names(kCpuAvx512Vnni | kCpuAvx512), "avx512 avx512_vnni");
  EXPECT_EQ(feature_names(kCpuAvx512Bf16), "avx512_bf16");
  EXPECT_EQ(feature_names(kCpuNeon | kCpuDotprod | kCpuI8mm), "neon dotprod i8mm");
}

}  // namespace
}  // namespace pinion
