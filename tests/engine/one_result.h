// Expects the same logits for any threads, prompt chunks and kernels.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "engine/session/session.h"
#include "kernels/cpu.h"
#include "tests/engine/stories.h"

namespace pinion {

struct Run {
  int32_t threads = 1;
  SchedulerOptions options = {};
};

// Logits of every position: `prompt` tokens in chunks, then the others one by one.
inline std::vector<float> all_logits(const Model& model, const std::vector<int32_t>& ids, int64_t prompt,
                                     const Run& run) {
  Team team(std::vector<int32_t>(run.threads, -1));
  std::unique_ptr<Session> session;
  const Error opened = open_session(model, team, run.options, &session);
  EXPECT_FALSE(opened) << opened.message();
  const int64_t vocab = model.config.vocab_size;
  std::vector<float> logits(ids.size() * vocab);
  const std::span<const int32_t> all = ids;
  EXPECT_FALSE(evaluate(*session, all.first(prompt), true, logits.data()));
  for (size_t i = prompt; i < ids.size(); ++i) {
    EXPECT_FALSE(evaluate(*session, all.subspan(i, 1), false, logits.data() + i * vocab));
  }
  EXPECT_EQ(session->sequence.ids, ids);
  return logits;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Compares all variations with one thread and one pass.
inline void expect_one_result(const Model& model, int64_t tokens, KvType kv) {
  const std::vector<int32_t> ids = some_tokens(tokens, model.config.vocab_size);
  const auto run = [&](int32_t threads, int64_t chunk, int64_t prompt, const Kernels* kernels = nullptr) {
    return all_logits(model, ids, prompt, {threads, {.kv = kv, .pass_rows = chunk, .kernels = kernels}});
  };
  const std::vector<float> reference = run(1, 256, tokens);
  for (const float value : reference) ASSERT_TRUE(std::isfinite(value));
  EXPECT_TRUE(same_bits(run(1, 1, 1), reference)) << "token by token";
  EXPECT_TRUE(same_bits(run(2, 7, tokens), reference)) << "2 threads, chunks of 7";
  EXPECT_TRUE(same_bits(run(3, 64, tokens / 2), reference)) << "3 threads, half of it prefilled in chunks of 64";
  EXPECT_TRUE(same_bits(run(4, 1000, tokens - 3), reference)) << "4 threads, all but 3 in one pass";
  for (const Variant& variant : kernel_variants()) {
    if (variant.needs & ~cpu_features()) continue;
    EXPECT_TRUE(same_bits(run(2, 50, tokens - 5, &variant.table()), reference)) << variant.name;
  }
}

}  // namespace pinion
