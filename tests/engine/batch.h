// Texts in a scheduler, and the same alone.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "engine/session/generate.h"
#include "engine/session/scheduler.h"
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

// Submits texts and collects what becomes of them.
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
                           .speculate_ngram = speculates,
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
  // Two of three draft.
  int64_t submit_any(const TextCase& text) { return submit(text, text.options.sampler.seed % 3 > 0); }
  void finish() {
    while (step(scheduler)) {
    }
  }
};

// Nothing is left over: every block is unused once the texts that have ended are forgotten.
inline void expect_nothing_held(Scheduler& s) {
  EXPECT_TRUE(s.running.empty());
  EXPECT_TRUE(s.waiting.empty());
  EXPECT_EQ(std::ssize(s.unused), s.options.sequences);
  for (EndedText& text : s.ended) release_blocks(&text.cache, 0);
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
