// Memory to encode a long text: at most 20 bytes per byte of text. The sentencepiece library takes ten times that, so
// texts that exceed the context must not reach it.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "tokenizer/tokens/tokenizer.h"

namespace {

int64_t live_bytes = 0, max_bytes = 0;  // allocated by operator new

void* allocate(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (!memory) std::abort();
  live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  max_bytes = std::max(max_bytes, live_bytes);
  return memory;
}

void release(void* memory) {
  if (memory) live_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }

namespace pinion {
namespace {

constexpr int64_t kTextBytes = 2'000'000;

// Peak memory of encoding, per byte of text.
double bytes_taken(const std::string& name, const EncodeOptions& options, bool expect_error) {
  std::shared_ptr<const Tokenizer> tokenizer;
  EXPECT_FALSE(load_tokenizer(PINION_TEST_DATA "/tokenizers/" + name, &tokenizer));
  std::string text;
  while (std::ssize(text) < kTextBytes) text += "Once upon a time, in 1897, the dog\nwent to Zürich by train. ";
  const int64_t before = max_bytes = live_bytes;
  std::vector<int32_t> ids;
  EXPECT_EQ(static_cast<bool>(encode(*tokenizer, text, options, &ids)), expect_error) << name;
  const double taken = static_cast<double>(max_bytes - before) / static_cast<double>(text.size());
  testing::Test::RecordProperty(name, std::to_string(taken));
  return taken;
}

TEST(Encode, TakesLittleMemory) {
  for (const char* name : {"llama3", "qwen2", "qwen35", "tekken", "o200k", "gpt2", "digits", "deepseek", "llama2",
                           "phi3", "mistral", "gemma", "metaspace", "tekken_ranks", "llama3_ranks"}) {
    EXPECT_LE(bytes_taken(name, {}, false), 20) << name;
  }
}

TEST(Encode, RejectsLongTextsEarly) {
  for (const char* name : {"llama3", "llama2", "sentencepiece_bpe", "sentencepiece_unigram"}) {
    EXPECT_LE(bytes_taken(name, {.max_tokens = 1000}, true), 0.01) << name;
  }
  EXPECT_LE(bytes_taken("llama3", {.max_tokens = kTextBytes / 20}, true), 5) << "half way";
}

}  // namespace
}  // namespace pinion
