// Decoding allocates no memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <span>
#include <vector>

#include "engine/runtime/load.h"
#include "engine/session/session.h"

namespace {

std::atomic<int64_t> allocations{0};

void* allocate(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes);
  if (!memory) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace pinion {
namespace {

int64_t allocations_of_tokens(const std::string& folder, Quant quant, int32_t workers) {
  std::unique_ptr<Model> model;
  EXPECT_EQ(load_model(folder, {.quant = quant}, &model).message(), "");
  Team team(std::vector<int32_t>(workers, -1));
  std::unique_ptr<Session> session;
  EXPECT_EQ(open_session(*model, team, {.context = 64}, &session).message(), "");
  std::vector<float> logits(model->config.vocab_size);
  const auto evaluate_tokens = [&](int count) {
    for (int32_t i = 1; i <= count; ++i) EXPECT_FALSE(evaluate(*session, std::span(&i, 1), false, logits.data()));
  };
  evaluate_tokens(2);  // the first run starts threads
  const int64_t before = allocations;
  evaluate_tokens(20);
  return allocations - before;
}

TEST(Allocation, DecodedTokensAllocateNothing) {
  for (const char* name :
       {"/stories260k", "/families/qwen3_5", "/families/qwen3_moe", "/families/gpt_oss", "/families/lfm2",
        "/families/granite_hybrid", "/families/falcon_h1", "/families/zamba2", "/families/recurrent_gemma"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      for (const int32_t workers : {1, 2}) {
        EXPECT_EQ(allocations_of_tokens(PINION_TEST_DATA + std::string(name), quant, workers), 0) << name;
      }
    }
  }
}

TEST(Allocation, CounterWorks) {
  const int64_t before = allocations;
  std::vector<int> some(1000);
  EXPECT_EQ(some[999], 0);
  EXPECT_GT(allocations, before);
}

}  // namespace
}  // namespace pinion
