// Log probabilities of many requests: equal to those of generate().
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/batch.h"

namespace pinion {
namespace {

// Log probabilities of a prompt need the logits of all its rows, 64 per pass. The request uses no cached prefix but
// leaves one. The memory for these rows is allocated with the first such request.
TEST(SchedulerLogprobs, PromptLogprobs) {
  const auto model = load_stories(Quant::w8a8);
  const size_t vocab = model->config.vocab_size;
  Team team({-1, -1, -1});
  const auto scheduler = opened(*model, team, {.sequences = 3});
  Batch batch{*scheduler};
  TextCase text = {.prompt = some_tokens(301, model->config.vocab_size),
                   .options = {.max_tokens = 8, .sampler = {}, .ignore_eos = true, .logprobs = 2},
                   .stop_after = 1000};
  batch.submit(text);
  batch.finish();
  EXPECT_EQ(scheduler->logits.size(), 3 * vocab);
  text.options.prompt_logprobs = 1;
  const int64_t passes = scheduler->passes, scored = batch.submit(text);
  for (int64_t rows : {64, 64, 64, 64, 45}) {
    step(*scheduler);
    ASSERT_EQ(scheduler->segments.size(), 1u);
    EXPECT_EQ(scheduler->segments[0].logit_rows, rows);
  }
  EXPECT_EQ(scheduler->logits.size(), 67 * vocab);
  batch.finish();
  EXPECT_EQ(scheduler->passes - passes, 5 + 7);
  EXPECT_EQ(batch.results[scored].reused_tokens, 0);
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  expect_same_text(alone(*session, text), batch.results[scored]);
  for (CachedPrefix& prefix : scheduler->prefix_cache) release_blocks(&prefix.cache, 0);
  scheduler->prefix_cache.clear();
  const int64_t again = batch.submit(text);
  batch.finish();
  text.options.prompt_logprobs = {};
  const int64_t shares = batch.submit(text);
  batch.finish();
  EXPECT_EQ(batch.results[again].reused_tokens, 0);
  EXPECT_EQ(batch.results[shares].reused_tokens, 300);
  expect_nothing_held(*scheduler);
}

// A preemption in the middle of a prompt keeps its known log probabilities; the others follow in the second evaluation.
TEST(SchedulerLogprobs, PreemptedPrompt) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1, -1, -1});
  const auto scheduler =
      opened(*model, team, {.sequences = 2, .positions = 768, .pass_rows = 80, .rows_beside_decode = 16});
  Batch batch{*scheduler};
  TextCase first = {.prompt = some_tokens(240, model->config.vocab_size),
                    .options = {.max_tokens = 100, .sampler = {}, .ignore_eos = true},
                    .stop_after = 1000};
  TextCase scored = first;
  std::ranges::reverse(scored.prompt);
  scored.prompt.insert(scored.prompt.end(), first.prompt.begin(), first.prompt.begin() + 200);
  scored.options.max_tokens = 20;
  scored.options.prompt_logprobs = 2;
  batch.submit(first);
  const int64_t other = batch.submit(scored);
  int64_t logit_rows = 0;
  size_t known_at_preemption = 0;
  while (step(*scheduler)) {
    for (const Segment& segment : scheduler->segments) logit_rows += segment.logit_rows;
    if (scheduler->preempted == 1 && known_at_preemption == 0) {
      known_at_preemption = scheduler->waiting.front()->text.result.prompt_logprobs.size();
    }
  }
  EXPECT_GT(known_at_preemption, 100u);
  EXPECT_LT(known_at_preemption, scored.prompt.size() - 1);
  EXPECT_EQ(logit_rows, 100 + 440 + 19) << "each row once";
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  expect_same_text(alone(*session, scored), batch.results[other]);
  expect_nothing_held(*scheduler);
}

// Workers that draw tokens in parallel do not change them.
TEST(SchedulerLogprobs, ParallelDraws) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1, -1, -1});
  const auto scheduler = opened(*model, team, {.sequences = 8});
  Batch batch{*scheduler};
  std::vector<std::pair<TextCase, int64_t>> texts;
  for (int i = 0; i < 8; ++i) {
    TextCase text = {.prompt = some_tokens(10 + i, model->config.vocab_size),
                     .options = {.max_tokens = 20 + i, .sampler = {}, .ignore_eos = true, .hash_logits = i % 4 == 0},
                     .stop_after = 1000};
    text.options.sampler.temperature = i % 3 == 0 ? 0.0f : 0.5f * static_cast<float>(i);
    text.options.sampler.seed = static_cast<uint64_t>(i);
    if (i % 2 == 1) text.options.logprobs = i;
    if (i > 5) text.options.sampler.frequency_penalty = 0.5f;
    texts.emplace_back(text, batch.submit(text));
  }
  batch.finish();
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  for (const auto& [text, id] : texts) expect_same_text(alone(*session, text), batch.results[id]);
  expect_nothing_held(*scheduler);
}

// The error comes after the first chunk of the prompt, not after the last.
TEST(SchedulerLogprobs, NonFiniteLogits) {
  const auto model = load_stories(Quant::none);
  std::vector<float> norm(model->final_norm.weight, model->final_norm.weight + model->config.hidden_size);
  norm[3] = NAN;
  model->final_norm.weight = norm.data();
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 1});
  Error failure;
  int64_t id = 0;
  TextRequest request = {.prompt = some_tokens(200, model->config.vocab_size),
                         .options = {.sampler = {}, .prompt_logprobs = 0},
                         .on_token = [](int32_t, const GenerateResult&) { return true; },
                         .on_end = [&](const Error& e, const GenerateResult&) { failure = e; }};
  ASSERT_FALSE(submit(*scheduler, request, &id));
  EXPECT_TRUE(step(*scheduler));
  EXPECT_EQ(failure.message(), "logits: NaN or infinity; the weights may be damaged");
  EXPECT_FALSE(step(*scheduler));
  expect_nothing_held(*scheduler);
}

}  // namespace
}  // namespace pinion
