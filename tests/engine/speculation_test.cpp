// Speculation changes no token and no logit that a token was drawn from, whatever the text, the sampler and its end.
#include "engine/session/speculation.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/session/generate.h"
#include "tests/engine/stories.h"

namespace pinion {
namespace {

struct Case {
  std::vector<int32_t> prompt;
  GenerateOptions options;
  int64_t stop_after;  // tokens, by the callback
};

// Prompts that repeat themselves, with any sampler.
Case random_case(std::mt19937& random, int64_t vocab) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Case c;
  const uint32_t period = 3 + below(12), length = 8 + below(40);
  std::vector<int32_t> part;
  for (uint32_t i = 0; i < period; ++i)
    part.push_back(static_cast<int32_t>(3 + below(static_cast<uint32_t>(vocab - 3))));
  for (uint32_t i = 0; i < length; ++i) c.prompt.push_back(part[i % period]);
  SamplerOptions& s = c.options.sampler;
  s.seed = random();
  s.temperature = below(3) == 0 ? 0.0f : 0.2f * static_cast<float>(1 + below(8));
  s.top_k = static_cast<int32_t>(below(2) * below(50));
  s.top_p = below(2) ? 0.9f : 1.0f;
  s.min_p = below(2) ? 0.05f : 0.0f;
  s.repetition_penalty = below(3) ? 1.0f : 1.1f;
  s.presence_penalty = below(3) ? 0.0f : 0.5f;
  s.frequency_penalty = below(3) ? 0.0f : 0.2f;
  s.dry_multiplier = below(3) ? 0.0f : 0.8f;
  c.options.max_tokens = 1 + below(60);
  c.options.ignore_eos = below(2) == 0;
  c.options.tokens_per_hash = 1;
  c.stop_after = below(4) == 0 ? 1 + below(20) : 1000;
  return c;
}

GenerateResult run(Session& session, const Case& c, Speculation* speculation) {
  session.speculation = speculation;
  GenerateResult result;
  int64_t seen = 0;
  const Error e = generate(session, c.prompt, c.options, [&](int32_t) { return ++seen < c.stop_after; }, &result);
  EXPECT_FALSE(e) << e.message();
  return result;
}

void compare(const GenerateResult& alone, const GenerateResult& with) {
  EXPECT_EQ(with.ids, alone.ids);
  EXPECT_EQ(with.finish_reason, alone.finish_reason);
  EXPECT_EQ(with.hashes, alone.hashes);
  EXPECT_EQ(with.logits_hash, alone.logits_hash);
  EXPECT_LE(with.accepted, with.drafted);
  EXPECT_LE(std::ssize(with.ids), with.decode_passes + with.accepted + 1);
}

TEST(Speculation, ChangesNothing) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1, -1});
  std::mt19937 random(25);
  int64_t drafted = 0, accepted = 0, ends[3] = {};
  for (const KvType kv : {KvType::q8, KvType::bf16, KvType::f32}) {
    for (const int64_t capacity : {0, 70}) {
      std::unique_ptr<Session> session;
      ASSERT_FALSE(open_session(*model, team, {.kv = kv, .capacity = capacity}, &session));
      Speculation speculation;
      for (int i = 0; i < 100; ++i) {
        const Case c = random_case(random, model->config.vocab_size);
        const GenerateResult alone = run(*session, c, nullptr);
        speculation.depth.always = 1 + i % kMostDrafts;
        const GenerateResult with = run(*session, c, &speculation);
        compare(alone, with);
        drafted += with.drafted, accepted += with.accepted;
        ++ends[static_cast<size_t>(with.finish_reason)];
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(drafted, 1000);
  EXPECT_GT(accepted, 100);
  for (const int64_t count : ends) EXPECT_GT(count, 10);
}

// The next turn goes on where the last one ended: what was evaluated on trial is gone.
TEST(Speculation, LeavesTheSessionAsItWas) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> one, other;
  ASSERT_FALSE(open_session(*model, team, {}, &one));
  ASSERT_FALSE(open_session(*model, team, {}, &other));
  Speculation speculation;
  speculation.depth.always = 4;
  Case c = {.prompt = {}, .options = {.max_tokens = 20, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  for (int i = 0; i < 30; ++i) c.prompt.push_back(10 + i % 5);
  for (int turn = 0; turn < 5; ++turn) {
    const GenerateResult alone = run(*one, c, nullptr), with = run(*other, c, &speculation);
    compare(alone, with);
    EXPECT_EQ(with.reused_tokens, alone.reused_tokens);
    EXPECT_EQ(other->sequence.ids, one->sequence.ids);
    c.prompt.insert(c.prompt.end(), alone.ids.begin(), alone.ids.end());
    c.prompt.push_back(11);
  }
}

TEST(DraftDepth, TriesWhatPays) {
  DraftDepth depth;
  note_pass(depth, 1, 1.0);
  EXPECT_EQ(choose_depth(depth, 0), 0);
  EXPECT_GT(choose_depth(depth, 30), 4);  // long matches agree, more often than not
  for (int64_t rows = 2; rows <= kMostDrafts + 1; ++rows) note_pass(depth, rows, static_cast<double>(rows));
  EXPECT_EQ(choose_depth(depth, 30), 0);  // a row takes as long as a pass: nothing to gain
}

TEST(DraftDepth, LearnsFromWhatAgreed) {
  DraftDepth depth;
  note_pass(depth, 1, 1.0);
  for (int i = 0; i < 40; ++i) note_acceptance(depth, 3, 4, 0);
  int tried = 0;
  for (int i = 0; i < 480; ++i) tried += choose_depth(depth, 3) > 0;
  EXPECT_EQ(tried, 10);  // now and then, one
  EXPECT_GT(choose_depth(depth, 30), 0);
  for (int i = 0; i < 40; ++i) note_acceptance(depth, 3, 4, 4);
  EXPECT_GT(choose_depth(depth, 3), 4);
}

}  // namespace
}  // namespace pinion
