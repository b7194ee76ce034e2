// Kernels must preserve the callee-saved registers, the floating-point modes and, on Arm64, streaming mode and ZA,
// which are off. Assembly calls every entry of every variant with canaries in the registers and compares them
// afterwards.
#include <algorithm>

#include "kernels/ops/tiles.h"
#include "tests/kernels/guarded.h"

namespace pinion {
namespace {

// A call by the assembly below: up to six integers or pointers and one float.
struct Call {
  void* function;
  uint64_t arguments[6];
  float real;
};

#if defined(__aarch64__)

// x19 to x28, d8 to d15, FPCR, SVCR (bit 0 streaming mode, bit 1 ZA).
constexpr size_t kCanaries = 18;
constexpr size_t kRegisters = kCanaries + 2;
constexpr const char* kNames[kRegisters] = {"x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",  "x28",
                                            "d8",  "d9",  "d10", "d11", "d12", "d13", "d14", "d15", "FPCR", "SVCR"};

// Only CPUs with SME have SVCR. It is read by number, because older assemblers lack its name.
asm(R"(
  .text
  .p2align 4
call_between_canaries:  // (const Call*, uint64_t* registers, has SME)
  stp x29, x30, [sp, #-192]!
  stp x19, x20, [sp, #16]
  stp x21, x22, [sp, #32]
  stp x23, x24, [sp, #48]
  stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  stp x1, x2, [sp, #160]
  ldp x19, x20, [x1]
  ldp x21, x22, [x1, #16]
  ldp x23, x24, [x1, #32]
  ldp x25, x26, [x1, #48]
  ldp x27, x28, [x1, #64]
  ldp d8, d9, [x1, #80]
  ldp d10, d11, [x1, #96]
  ldp d12, d13, [x1, #112]
  ldp d14, d15, [x1, #128]
  mov x9, x0
  ldr x10, [x9]
  ldr s0, [x9, #56]
  ldp x0, x1, [x9, #8]
  ldp x2, x3, [x9, #24]
  ldp x4, x5, [x9, #40]
  blr x10
  ldp x1, x2, [sp, #160]
  stp x19, x20, [x1]
  stp x21, x22, [x1, #16]
  stp x23, x24, [x1, #32]
  stp x25, x26, [x1, #48]
  stp x27, x28, [x1, #64]
  stp d8, d9, [x1, #80]
  stp d10, d11, [x1, #96]
  stp d12, d13, [x1, #112]
  stp d14, d15, [x1, #128]
  mrs x3, fpcr
  mov x4, #0
  cbz x2, 1f
  mrs x4, S3_3_C4_C2_2
1:
  stp x3, x4, [x1, #144]
  ldp x19, x20, [sp, #16]
  ldp x21, x22, [sp, #32]
  ldp x23, x24, [sp, #48]
  ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x29, x30, [sp], #192
  ret
)");

#elif defined(__x86_64__)

// rbx, rbp, r12 to r15, the control bits of MXCSR, the direction flag.
constexpr size_t kCanaries = 6;
constexpr size_t kRegisters = kCanaries + 3;
constexpr const char* kNames[kRegisters] = {"rbx", "rbp",   "r12",      "r13",           "r14",
                                            "r15", "MXCSR", "x87 mode", "direction flag"};

asm(R"(
  .text
  .p2align 4
call_between_canaries:  # (const Call*, uint64_t* registers, has SME)
  push %rbx
  push %rbp
  push %r12
  push %r13
  push %r14
  push %r15
  push %rsi
  mov (%rsi), %rbx
  mov 8(%rsi), %rbp
  mov 16(%rsi), %r12
  mov 24(%rsi), %r13
  mov 32(%rsi), %r14
  mov 40(%rsi), %r15
  mov %rdi, %rax
  movss 56(%rax), %xmm0
  mov 8(%rax), %rdi
  mov 16(%rax), %rsi
  mov 24(%rax), %rdx
  mov 32(%rax), %rcx
  mov 40(%rax), %r8
  mov 48(%rax), %r9
  call *(%rax)
  pop %rsi
  mov %rbx, (%rsi)
  mov %rbp, 8(%rsi)
  mov %r12, 16(%rsi)
  mov %r13, 24(%rsi)
  mov %r14, 32(%rsi)
  mov %r15, 40(%rsi)
  pushf
  pop %rax
  and $0x400, %eax
  mov %rax, 64(%rsi)
  cld
  movq $0, 48(%rsi)
  stmxcsr 48(%rsi)
  andl $0xffc0, 48(%rsi)
  movq $0, 56(%rsi)
  fnstcw 56(%rsi)
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbp
  pop %rbx
  ret
)");

#endif

extern "C" void call_between_canaries(const Call*, uint64_t* registers, uint64_t has_sme);

uint64_t has_sme() { return cpu_features() & kCpuSme2; }

template <class T>
uint64_t as_word(T value) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<uintptr_t>(value);
  else
    return static_cast<uint64_t>(value);
}

void expect_preserved(const Call& call, const std::string& label) {
  // The expected modes are those of a new thread, which an empty function preserves.
  static constexpr auto kNothing = +[] {};
  uint64_t modes[kRegisters] = {};
  const Call nothing = {reinterpret_cast<void*>(kNothing), {}, 0};
  call_between_canaries(&nothing, modes, has_sme());

  uint64_t before[kRegisters], after[kRegisters];
  for (size_t i = 0; i < kRegisters; ++i) before[i] = i < kCanaries ? 0x9e3779b97f4a7c15u * (i + 1) : modes[i];
  std::copy_n(before, kRegisters, after);
  call_between_canaries(&call, after, has_sme());
  for (size_t i = 0; i < kRegisters; ++i) EXPECT_EQ(after[i], before[i]) << label << ": " << kNames[i];
}

// References are pointers in the ABI, and a float argument has a register class of its own.
template <class R, class... P, class... A>
void expect_preserved(const std::string& label, R (*kernel)(P...), A... arguments) {
  static_assert(sizeof...(P) == sizeof...(A));
  Call call = {reinterpret_cast<void*>(kernel), {}, 0};
  size_t n = 0;
  const auto add = [&](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), float>)
      call.real = argument;
    else
      call.arguments[n++] = as_word(argument);
  };
  (add(arguments), ...);
  expect_preserved(call, label);
}

TEST(State, IsPreserved) {
  constexpr int64_t kRows = 40, k = 128, kHeadDim = 32;  // rows: above the tile of every variant, and no multiple of it
  Random random;
  const std::vector<int8_t> codes = random.codes(kRows * k), weights = random.codes(k * kPanelColumns);
  const std::vector<float> x = random.floats(kRows * k), w = random.floats(k * kPanelColumns);
  std::vector<bf16> w16(w.size()), out16(k);
  std::vector<float> out(kRows * k), scores(2 * kScoreFloats), query = x;
  std::vector<int8_t> quantized(k);
  std::vector<int32_t> sums(kRows * kPanelColumns), column_sum(kPanelColumns);
  const Epilogue ops = {.row_scale = x.data(),
                        .column_scale = w.data(),
                        .alpha = 2,
                        .bias = w.data(),
                        .gate = x.data(),
                        .gate_stride = 1,
                        .activates = true,
                        .activation = Activation::xielu,
                        .xielu = {1, 1, 1, -0.01f},
                        .beta = 1,
                        .low = -1,
                        .high = 1};
  const auto* records = reinterpret_cast<const std::byte*>(weights.data());  // arbitrary bytes
  const GroupedPanel panels[] = {{records, k, Format::w4},
                                 {records, k, Format::w4z},
                                 {records, k, Format::w2},
                                 {records, k, Format::mxfp4},
                                 {records, k, Format::w4n}};
  const std::vector<float> cache = random.floats(2 * kKeyLanes * kHeadDim);
  std::vector<bf16> cache16;
  for (const float v : cache) cache16.push_back(to_operand(v));
  const std::vector<int8_t> codes8(q8_chunk_bytes(kHeadDim), 1);
  const AttentionChunk chunks[] = {
      {KvType::f32, cache.data(), cache.data(), kHeadDim, kHeadDim},
      {KvType::bf16, cache16.data(), cache16.data(), kHeadDim, kHeadDim},
      {KvType::q8, codes8.data(), codes8.data() + kAttentionChunk * kHeadDim, kHeadDim, kHeadDim}};
  const AttentionSpan spans[2] = {{0, 9}, {3, 20}};
  float max[2], sum[2], max2[2] = {0, 1}, sum2[2] = {1, 1};
  std::vector<float> acc(2 * kHeadDim), acc2(2 * kHeadDim);
  const AttentionState state = {max, sum, acc.data()}, next = {max2, sum2, acc2.data()};
  const float* inputs[] = {x.data(), x.data() + 50, x.data() + 100, x.data() + 150};
  std::vector<float> memory(48 * 30);
  const Convolution convolution = {w.data(), nullptr, 50, 4, true};
  const StateSteps steps = {3, 30, 40, x.data(), w.data(), x.data(), w.data(), x.data(), out.data()};

  for (const Kernels* t : available_kernels()) {
    const std::string name = std::string(t->name) + ": ";
    expect_preserved(name + "quantize", t->quantize, x.data(), k, quantized.data(), out.data());
    expect_preserved(name + "max_magnitude", t->max_magnitude, x.data(), k);
    expect_preserved(name + "encode", t->encode, x.data(), k, 0.01f, quantized.data());
    expect_preserved(name + "gemv_s8", t->gemv_s8, codes.data(), weights.data(), 256, k, sums.data());
    for (const GroupedPanel& panel : panels) {
      expect_preserved(name + "gemv_grouped", t->gemv_grouped, codes.data(), &panel, 1, out.data());
    }
    for (int64_t rows = 2; rows <= t->few_rows; ++rows) {
      const std::string few = ", rows " + std::to_string(rows);
      expect_preserved(name + "rows_s8" + few, t->rows_s8, codes.data(), k, rows, weights.data(), k, sums.data());
      for (const GroupedPanel& panel : panels) {
        expect_preserved(name + "rows_grouped" + few, t->rows_grouped, codes.data(), k, rows, &panel, 1, out.data());
      }
    }
    for (int64_t rows : {int64_t{1}, int64_t{2}, int64_t{9}, kRows}) {
      const std::string tile = ", rows " + std::to_string(rows);
      const int64_t block = block_rows(t->s8_shape, rows), float_block = block_rows(t->f32_shape, rows);
      std::vector<int8_t> packed(packed_rows(t->s8_shape, rows) * k);
      std::vector<float> packed_floats(packed_rows(t->f32_shape, rows) * k);
      const GemmTerm s8 = {packed.data(), weights.data(), k}, f32 = {packed_floats.data(), w.data(), k},
                     b16 = {packed_floats.data(), w16.data(), k};
      const RowBlocks blocks = {block, block * k}, float_blocks = {float_block, float_block * k * 4};
      expect_preserved(name + "pack_s8" + tile, t->pack_s8, codes.data(), k, rows, k, block, packed.data());
      expect_preserved(name + "gemm_s8" + tile, t->gemm_s8, &s8, 1, &blocks, rows, column_sum.data(), sums.data());
      for (const GroupedPanel& panel : panels) {
        expect_preserved(name + "gemm_grouped" + tile, t->gemm_grouped, packed.data(), &blocks, rows, &panel,
                         out.data());
      }
      expect_preserved(name + "pack_f32" + tile, t->pack_f32, x.data(), k, rows, k, float_block, packed_floats.data());
      expect_preserved(name + "gemm_bf16" + tile, t->gemm_bf16, &b16, 1, &float_blocks, rows, out.data());
      expect_preserved(name + "gemm_f32" + tile, t->gemm_f32, &f32, 1, &float_blocks, rows, out.data());
    }
    expect_preserved(name + "epilogue_s32", t->epilogue_s32, sums.data(), 3, 50, &ops, out.data(), 50);
    expect_preserved(name + "epilogue_f32", t->epilogue_f32, x.data(), 3, 50, &ops, out.data(), 50);
    expect_preserved(name + "to_bf16", t->to_bf16, w.data(), std::ssize(w), w16.data());
    expect_preserved(name + "to_float", t->to_float, w16.data(), k, out.data());
    expect_preserved(name + "silu_mul", t->silu_mul, x.data(), w.data(), 50, out.data());
    expect_preserved(name + "rms_norm", t->rms_norm, x.data(), w.data(), 50, 1e-5f, out.data());
    expect_preserved(name + "layer_norm", t->layer_norm, x.data(), w.data(), w.data(), 50, 1e-5f, out.data());
    expect_preserved(name + "silu_mul_bf16", t->silu_mul_bf16, w16.data(), w16.data(), 50, out16.data());
    expect_preserved(name + "rms_norm_bf16", t->rms_norm_bf16, w16.data(), w16.data(), 50, 1e-5f, out16.data());
    expect_preserved(name + "rope", t->rope, out.data(), x.data(), w.data(), 20);
    for (const AttentionChunk& chunk : chunks) {
      const bool is_q8 = chunk.type == KvType::q8;
      for (float* row : {query.data(), query.data() + kHeadDim}) {
        if (is_q8) {
          expect_preserved(name + "make_query_s8", t->make_query_s8, row, kHeadDim, 0.25f);
        } else {
          expect_preserved(name + "make_query", t->make_query, row, kHeadDim, 0.25f, chunk.type == KvType::f32);
        }
      }
      expect_preserved(name + (is_q8 ? "attend_s8" : "attend"), is_q8 ? t->attend_s8 : t->attend, &chunk, query.data(),
                       2, spans, scores.data(), &state);
    }
    expect_preserved(name + "rotate", t->rotate, x.data(), 96, 32, out.data());
    expect_preserved(name + "unrotate", t->unrotate, x.data(), 96, 32, out.data());
    expect_preserved(name + "merge_attention", t->merge_attention, &state, &next, 2, kHeadDim);
    expect_preserved(name + "sigmoid_mul", t->sigmoid_mul, x.data(), w.data(), 50, out.data());
    expect_preserved(name + "convolve", t->convolve, inputs, &convolution, 50, out.data());
    expect_preserved(name + "advance_state", t->advance_state, &steps, memory.data());
    expect_preserved(name + "decay", t->decay, x.data(), 50, 0.5f, -5.0f, out.data());
    expect_preserved(name + "argmax", t->argmax, x.data(), 50);
  }
}

#if defined(__aarch64__)

// A caller may have live ZA contents that a new user of ZA must save (lazy save, TPIDR2_EL0). Kernels must leave them
// on and unsaved. Instructions and registers are given by number, as above.
TEST(State, LazilySavedZaIsPreserved) {
  if (!has_sme()) GTEST_SKIP() << "no SME, so no live ZA";
  constexpr int64_t kRows = 40, k = 32;
  Random random;
  const std::vector<float> x = random.floats(kRows * k), w = random.floats(k * kPanelColumns);
  std::vector<float> packed(kRows * k), acc(kRows * kPanelColumns), expected(acc.size());
  const GemmTerm term = {packed.data(), w.data(), k};
  for (const Kernels* t : available_kernels()) {
    t->pack_f32(x.data(), k, kRows, k, 8, packed.data());
    scalar_kernels().gemm_f32(&term, 1, {8, 8 * k * 4}, kRows, expected.data());
    const uint64_t block[2] = {};
    uint64_t za, pointer;
    asm volatile("msr S3_3_C13_C0_5, %0\n\t.inst 0xd503457f  // smstart za" ::"r"(block) : "memory");
    t->gemm_f32(&term, 1, {8, 8 * k * 4}, kRows, acc.data());
    asm volatile(
        "mrs %0, S3_3_C4_C2_2\n\tmrs %1, S3_3_C13_C0_5\n\t"
        ".inst 0xd503447f  // smstop za\n\tmsr S3_3_C13_C0_5, xzr"
        : "=r"(za), "=r"(pointer)::"memory");
    EXPECT_EQ(za, 2u) << t->name;
    EXPECT_EQ(pointer, reinterpret_cast<uintptr_t>(block)) << t->name;
    EXPECT_TRUE(same_bits(acc, expected)) << t->name;
  }
}

#endif

}  // namespace
}  // namespace pinion
