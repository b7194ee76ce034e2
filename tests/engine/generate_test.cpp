// generate(): reuse of the prefix, reasons to stop, interruption.
#include "engine/session/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/stories.h"

namespace pinion {
namespace {

TEST(Generate, ReusesHeldPrefix) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1, -1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  const std::vector<int32_t> prompt = some_tokens(20, model->config.vocab_size);
  const auto keep_going = [](int32_t) { return true; };
  GenerateResult first, again, longer;
  ASSERT_FALSE(generate(*session, prompt, {.max_tokens = 12, .sampler = {}, .ignore_eos = true}, keep_going, &first));
  EXPECT_EQ(first.finish_reason, FinishReason::length);
  EXPECT_EQ(first.prefilled_tokens, 20);
  EXPECT_EQ(first.ids.size(), 12u);
  EXPECT_EQ(first.decode_passes, 11);
  EXPECT_EQ(first.regions, 11);  // one per token

  ASSERT_FALSE(generate(*session, prompt, {.max_tokens = 12, .sampler = {}, .ignore_eos = true}, keep_going, &again));
  EXPECT_EQ(again.prefilled_tokens, 1);  // only the logits of the last token
  EXPECT_EQ(again.ids, first.ids);
  EXPECT_EQ(again.logits_hash, first.logits_hash);

  std::vector<int32_t> grown = prompt;
  grown.insert(grown.end(), first.ids.begin(), first.ids.end());
  grown.push_back(5);
  ASSERT_FALSE(generate(*session, grown, {.max_tokens = 1, .sampler = {}, .ignore_eos = true}, keep_going, &longer));
  EXPECT_EQ(longer.reused_tokens, 31);  // the twelfth id was drawn but not evaluated
  EXPECT_EQ(longer.prefilled_tokens, 2);
}

TEST(Generate, LatentsAddBarriers) {
  std::unique_ptr<Model> model;
  ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/minicpm3", {.quant = Quant::w8a8}, &model));
  Team team({-1, -1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  GenerateResult result;
  ASSERT_FALSE(generate(
      *session, some_tokens(20, model->config.vocab_size), {.max_tokens = 11, .sampler = {}, .ignore_eos = true},
      [](int32_t) { return true; }, &result));
  // Per layer: qkv, the latent of queries, inputs and products of the heads' queries, attention, its merged chunks,
  // inputs and products of the heads' values, o, gate_up, down. Per pass: embedding, head, end of the region.
  EXPECT_EQ(result.barriers, 10 * (2 * 11 + 3));
}

TEST(Generate, StopsForEveryReason) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {.kv = KvType::q8, .context = 16}, &session));
  const std::vector<int32_t> prompt = some_tokens(10, model->config.vocab_size);
  GenerateResult result;
  ASSERT_FALSE(generate(
      *session, prompt, {.max_tokens = 100, .sampler = {}, .ignore_eos = true}, [](int32_t) { return true; }, &result));
  EXPECT_EQ(result.finish_reason, FinishReason::context);
  EXPECT_EQ(result.ids.size(), 7u);  // six fill the cache, the seventh is not evaluated

  int seen = 0;
  ASSERT_FALSE(generate(
      *session, prompt, {.max_tokens = 100, .sampler = {}, .ignore_eos = true}, [&](int32_t) { return ++seen < 3; },
      &result));
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  EXPECT_EQ(result.ids.size(), 3u);

  auto stopping = load_stories(Quant::w8a8);
  stopping->eos_ids = {result.ids[1]};
  ASSERT_FALSE(open_session(*stopping, team, {}, &session));
  GenerateResult stopped;
  ASSERT_FALSE(generate(*session, prompt, {.max_tokens = 100, .sampler = {}}, [](int32_t) { return true; }, &stopped));
  EXPECT_EQ(stopped.finish_reason, FinishReason::stop);
  EXPECT_EQ(stopped.ids, std::vector<int32_t>{result.ids[0]});

  const std::vector<int32_t> long_prompt(600, 1);
  EXPECT_EQ(generate(
                *session, long_prompt, {}, [](int32_t) { return true; }, &result)
                .message(),
            "prompt: too long: want at most 512 tokens (the context), have 600");
  EXPECT_TRUE(generate(*session, {}, {}, [](int32_t) { return true; }, &result));
}

TEST(Generate, LogitBiasBansTokens) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  const std::vector<int32_t> prompt = some_tokens(20, model->config.vocab_size);
  const auto keep_going = [](int32_t) { return true; };
  GenerateOptions options = {.max_tokens = 1, .sampler = {}, .ignore_eos = true, .logprobs = 2};
  GenerateResult result, banned;
  ASSERT_FALSE(generate(*session, prompt, options, keep_going, &result));
  options.sampler.logit_bias = {{result.ids[0], -std::numeric_limits<float>::infinity()}};
  ASSERT_FALSE(generate(*session, prompt, options, keep_going, &banned));
  EXPECT_EQ(banned.ids[0], result.logprobs[0].top[1].id);
  EXPECT_EQ(banned.logprobs[0].top, result.logprobs[0].top) << "of the unmodified logits";
  EXPECT_EQ(banned.logits_hash, result.logits_hash);

  const auto refusal = [&](std::vector<LogitBias> bias) {
    options.sampler.logit_bias = std::move(bias);
    return generate(*session, prompt, options, keep_going, &result).message();
  };
  EXPECT_EQ(refusal({{5, 1}, {512, 1}}), "logit bias: token id: not in the vocabulary: want 0 to 511, have 512");
  EXPECT_EQ(refusal({{-1, 1}}), "logit bias: token id: not in the vocabulary: want 0 to 511, have -1");
  EXPECT_EQ(refusal({{5, 1}, {5, 1}}), "logit bias: not ascending: want each id once, after 5, have 5");
  EXPECT_EQ(refusal({{5, NAN}}), "logit bias: out of range: want finite, or minus infinity, have nan");
  EXPECT_EQ(refusal({{5, INFINITY}}), "logit bias: out of range: want finite, or minus infinity, have inf");
}

TEST(Generate, InterruptedPromptContinuesLater) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {.kv = KvType::q8, .context = 0, .pass_rows = 8}, &session));
  std::atomic<bool> interrupted = true;
  const std::vector<int32_t> prompt = some_tokens(30, model->config.vocab_size);
  const auto keep_going = [](int32_t) { return true; };
  const GenerateOptions options = {.max_tokens = 5, .sampler = {}, .ignore_eos = true};
  GenerateResult whole, rest;
  ASSERT_FALSE(generate(*session, prompt, options, keep_going, &whole));
  rewind(session->sequence, 3);
  session->interrupted = &interrupted;
  EXPECT_EQ(generate(*session, prompt, options, keep_going, &rest).message(),
            "prompt: interrupted after 11 of 30 tokens");
  EXPECT_EQ(session->sequence.ids.size(), 11u);
  interrupted = false;
  ASSERT_FALSE(generate(*session, prompt, options, keep_going, &rest));
  EXPECT_EQ(rest.reused_tokens, 11);
  EXPECT_EQ(rest.ids, whole.ids);
  EXPECT_EQ(rest.logits_hash, whole.logits_hash);
}

}  // namespace
}  // namespace pinion
