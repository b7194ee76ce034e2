// Speculation changes no token and no logit that a token was drawn from, whatever the text, the sampler and its end.
#include "engine/session/speculation.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/session/generate.h"
#include "tests/engine/stories.h"
#include "tests/engine/texts.h"

namespace pinion {
namespace {

GenerateResult run(Session& session, const TextCase& c, Speculation* speculation) {
  session.speculation = speculation;
  GenerateResult result;
  int64_t seen = 0;
  const Error e = generate(session, c.prompt, c.options, [&](int32_t) { return ++seen < c.stop_after; }, &result);
  EXPECT_FALSE(e) << e.message();
  return result;
}

void compare(const GenerateResult& alone, const GenerateResult& with) {
  expect_same_text(alone, with);
  EXPECT_LE(with.accepted, with.drafted);
  EXPECT_LE(std::ssize(with.ids), with.decode_passes + with.accepted + 1);
}

TEST(Speculation, ChangesNothing) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::mt19937 random(25);
  int64_t drafted = 0, accepted = 0, ends[3] = {};
  for (const KvType kv : {KvType::q8, KvType::bf16, KvType::f32}) {
    for (const int64_t capacity : {0, 70}) {
      std::unique_ptr<Session> session;
      ASSERT_FALSE(open_session(*model, team, {.kv = kv, .capacity = capacity, .drafts = kMostDrafts}, &session));
      Speculation speculation;
      for (int i = 0; i < 80; ++i) {
        const TextCase c = random_text(random, model->config.vocab_size, 60);
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

// Sliding windows, experts, sinks, longrope's crossing, recurrent states: whatever a layer keeps of a draft is taken
// back. Frequencies that follow the length alone rule drafts out.
TEST(Speculation, ChangesNothingInAnyFamily) {
  std::mt19937 random(26);
  Team team({-1, -1});
  for (const auto& entry : std::filesystem::directory_iterator(PINION_TEST_DATA "/families")) {
    SCOPED_TRACE(entry.path().filename());
    std::unique_ptr<Model> model;
    if (load_model(entry.path(), {}, &model)) continue;  // shards without an index, for other tests
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(*model, team, {.drafts = kMostDrafts}, &session));
    Speculation speculation;
    int64_t drafted = 0;
    for (int i = 0; i < 6; ++i) {
      const TextCase c = random_text(random, model->config.vocab_size, 60);
      const GenerateResult alone = run(*session, c, nullptr);
      speculation.depth.always = 1 + static_cast<int64_t>(below(random, kMostDrafts));
      const GenerateResult with = run(*session, c, &speculation);
      compare(alone, with);
      drafted += with.drafted;
      if (HasFailure()) return;
    }
    EXPECT_EQ(drafted > 0, !frequencies_follow_length(model->config));
  }
}

// The next turn goes on where the last one ended: what was evaluated on trial is gone.
TEST(Speculation, LeavesTheSessionAsItWas) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> one, other;
  ASSERT_FALSE(open_session(*model, team, {}, &one));
  ASSERT_FALSE(open_session(*model, team, {.drafts = kMostDrafts}, &other));
  Speculation speculation;
  speculation.depth.always = 4;
  TextCase c = {.prompt = {}, .options = {.max_tokens = 20, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
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
