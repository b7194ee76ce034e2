// Texts in a scheduler, and the same texts from generate().
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "engine/session/scheduler.h"
#include "engine/session/session.h"
#include "tests/engine/stories.h"
#include "tests/engine/texts.h"

namespace pinion {

inline GenerateResult alone(Session& session, const TextCase& text) {
  GenerateResult result;
  int64_t seen = 0;
  const Error e =
      generate(session, text.prompt, text.options, [&](int32_t) { return ++seen < text.stop_after; }, &result);
  EXPECT_FALSE(e) << e.message();
  return result;
}

// Submits requests and collects their results.
struct Batch {
  Scheduler& scheduler;
  std::map<int64_t, GenerateResult> results = {};
  int64_t drafted = 0, accepted = 0;

  int64_t submit(const TextCase& text, bool speculates = false) {
    auto id = std::make_shared<int64_t>(-1);
    auto seen = std::make_shared<int64_t>(0);
    const int64_t stop_after = text.stop_after;
    TextRequest request = {.prompt = text.prompt,
                           .options = text.options,
                           .speculates = speculates,
                           .on_token =
                               [seen, stop_after](int32_t token, const GenerateResult& so_far) {
                                 EXPECT_EQ(so_far.ids.back(), token);
                                 if (!so_far.logprobs.empty()) {
                                   EXPECT_EQ(so_far.logprobs.size(), so_far.ids.size());
                                   EXPECT_EQ(so_far.logprobs.back().token.id, token);
                                 }
                                 return ++*seen < stop_after;
                               },
                           .on_end =
                               [this, id](const Error& e, GenerateResult result) {
                                 EXPECT_FALSE(e) << e.message();
                                 EXPECT_LE(result.accepted, result.drafted);
                                 drafted += result.drafted, accepted += result.accepted;
                                 results[*id] = std::move(result);
                               }};
    const Error e = pinion::submit(scheduler, std::move(request), id.get());
    EXPECT_FALSE(e) << e.message();
    return *id;
  }
  // Two of three use drafts.
  int64_t submit_any(const TextCase& text) { return submit(text, text.options.sampler.seed % 3 > 0); }
  void finish() {
    while (step(scheduler)) {
    }
  }
};

// Expects that no request is left, and that the prefix cache holds all used blocks.
inline void expect_nothing_held(Scheduler& s) {
  EXPECT_TRUE(s.running.empty());
  EXPECT_TRUE(s.waiting.empty());
  EXPECT_EQ(std::ssize(s.free_sequences), s.options.sequences);
  for (CachedPrefix& prefix : s.prefix_cache) release_blocks(&prefix.cache, 0);
  EXPECT_EQ(std::ssize(s.pool.unused), s.pool.blocks());
  for (const int32_t holders : s.pool.holders) EXPECT_EQ(holders, 0);
}

inline std::unique_ptr<Scheduler> opened(const Model& model, Team& team, const SchedulerOptions& options) {
  std::unique_ptr<Scheduler> scheduler;
  const Error e = open_scheduler(model, team, options, &scheduler);
  EXPECT_FALSE(e) << e.message();
  return scheduler;
}

}  // namespace pinion
