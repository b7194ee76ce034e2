// How much memory a long text takes while it is encoded: 20 bytes a byte of text at most. The sentencepiece library
// takes ten times that, so there it matters that what cannot fit into a context never gets to it.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "tokenizer/tokens/tokenizer.h"

namespace {

int64_t live_bytes = 0, most_bytes = 0;  // of what operator new gave

void* allocate(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (!memory) std::abort();
  live_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  most_bytes = std::max(most_bytes, live_bytes);
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

// Bytes that encoding takes beyond the text, for each byte of it.
double bytes_taken(const std::string& name, const EncodeOptions& options, bool expect_error) {
  std::shared_ptr<const Tokenizer> tokenizer;
  EXPECT_FALSE(load_tokenizer(PINION_TEST_DATA "/tokenizers/" + name, &tokenizer));
  std::string text;
  while (std::ssize(text) < kTextBytes) text += "Once upon a time, in 1897, the dog\nwent to Zürich by train. ";
  const int64_t before = most_bytes = live_bytes;
  std::vector<int32_t> ids;
  EXPECT_EQ(static_cast<bool>(encode(*tokenizer, text, options, &ids)), expect_error) << name;
  const double taken = static_cast<double>(most_bytes - before) / static_cast<double>(text.size());
  testing::Test::RecordProperty(name, std::to_string(taken));
  return taken;
}

TEST(Encode, TakesLittleMemory) {
  for (const char* name : {"llama3", "qwen2", "qwen35", "tekken", "o200k", "gpt2", "digits", "deepseek", "llama2",
                           "phi3", "mistral", "gemma", "metaspace", "tekken_ranks", "llama3_ranks"}) {
    EXPECT_LE(bytes_taken(name, {}, false), 20) << name;
  }
}

// Long before all of it is encoded.
TEST(Encode, RefusesWhatIsTooLong) {
  for (const char* name : {"llama3", "llama2", "sentencepiece_bpe", "sentencepiece_unigram"}) {
    EXPECT_LE(bytes_taken(name, {.most_tokens = 1000}, true), 0.01) << name;
  }
  EXPECT_LE(bytes_taken("llama3", {.most_tokens = kTextBytes / 20}, true), 5) << "half way";
}

}  // namespace
}  // namespace pinion
