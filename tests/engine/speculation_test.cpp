// Speculation changes neither tokens nor logits, for any text, sampler and end of the text.
#include "engine/session/speculation.h"

#include <gtest/gtest.h>

#include "engine/session/session.h"
#include "tests/engine/families.h"
#include "tests/engine/stories.h"
#include "tests/engine/texts.h"

namespace pinion {
namespace {

GenerateResult run(Session& session, const TextCase& c, bool speculates) {
  session.speculates = speculates;
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

TEST(Speculation, TextsAreUnchanged) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::mt19937 random(25);
  int64_t drafted = 0, accepted = 0, ends[3] = {};
  for (const KvType kv : {KvType::q8, KvType::bf16, KvType::f32}) {
    for (const int64_t capacity : {0, 70}) {
      std::unique_ptr<Session> session;
      ASSERT_FALSE(open_session(*model, team, {.kv = kv, .context = capacity}, &session));
      for (int i = 0; i < 80; ++i) {
        const TextCase c = random_text(random, model->config.vocab_size, 60);
        const GenerateResult alone = run(*session, c, false);
        session->fixed_drafts = 1 + i % kMaxDrafts;
        const GenerateResult with = run(*session, c, true);
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

// Sliding windows, experts, sinks, longrope's change of factors, recurrent states: rejected drafts leave nothing
// behind. Only dynamic rope excludes drafts.
TEST(Speculation, TextsAreUnchangedInAllFamilies) {
  Team team({-1, -1});
  for (const std::string& family : family_names(FamilyTest::speculation)) {
    SCOPED_TRACE(family);
    std::unique_ptr<Model> model;
    ASSERT_EQ(load_model(kFamilyFolders / family, {}, &model).message(), "");
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(*model, team, {}, &session));
    std::mt19937 random(26);  // independent of the order of folders
    int64_t drafted = 0;
    for (int i = 0; i < 6; ++i) {
      const TextCase c = random_text(random, model->config.vocab_size, 60);
      const GenerateResult alone = run(*session, c, false);
      session->fixed_drafts = 1 + static_cast<int64_t>(below(random, kMaxDrafts));
      const GenerateResult with = run(*session, c, true);
      compare(alone, with);
      drafted += with.drafted;
      if (HasFailure()) return;
    }
    EXPECT_EQ(drafted > 0, !frequencies_follow_length(model->config));
  }
}

std::unique_ptr<DraftModel> draft_model(const Model& model, Team& team, int64_t capacity = 0) {
  auto small = std::make_unique<DraftModel>();
  EXPECT_FALSE(open_session(model, team, {.context = capacity}, &small->session));
  return small;
}

// A text of exactly `tokens` tokens.
TextCase greedy_text(const std::vector<int32_t>& prompt, int64_t tokens) {
  return {.prompt = prompt, .options = {.max_tokens = tokens, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
}

TEST(Speculation, TextsAreUnchangedWithADraftModel) {
  const auto model = load_stories(Quant::w8a8);
  const auto small = load_stories(Quant::w4a8);
  Team team({-1});
  std::mt19937 random(27);
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  add_draft_model(*session, draft_model(*small, team));
  int64_t drafted = 0, accepted = 0;
  for (int i = 0; i < 120; ++i) {
    const TextCase c = random_text(random, model->config.vocab_size, 60);
    const GenerateResult alone = run(*session, c, false);
    session->fixed_drafts = i % 5 == 0 ? 0 : 1 + i % kMaxDrafts;
    const GenerateResult with = run(*session, c, true);
    compare(alone, with);
    drafted += with.drafted, accepted += with.accepted;
    if (HasFailure()) return;
  }
  EXPECT_GT(drafted, 1000);
  EXPECT_GT(accepted, drafted / 6);
}

// A model that drafts for itself is always right, because it uses the text's sampler and random numbers.
TEST(Speculation, ModelAgreesWithItself) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::mt19937 random(28);
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  add_draft_model(*session, draft_model(*model, team));
  session->fixed_drafts = 4;
  for (int i = 0; i < 40; ++i) {
    TextCase c = random_text(random, model->config.vocab_size, 60);
    c.stop_after = 1000;
    c.options.ignore_eos = true;
    c.options.rules = {};  // the draft model knows those of the first draft only
    const GenerateResult with = run(*session, c, true);
    EXPECT_EQ(with.accepted, with.drafted);
    compare(run(*session, c, false), with);
  }
}

// A text with ids outside the draft model's vocabulary continues without drafts.
TEST(Speculation, DraftModelWithSmallerVocabulary) {
  const auto model = load_stories(Quant::w8a8);
  const auto small = load_stories(Quant::w4a8);
  small->config.vocab_size = 64;
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  add_draft_model(*session, draft_model(*small, team));
  session->fixed_drafts = 4;
  const TextCase c = greedy_text({5, 400, 6}, 30);
  const GenerateResult with = run(*session, c, true);
  compare(run(*session, c, false), with);
  EXPECT_EQ(with.drafted, 0);
}

// Beyond the draft model's context the text continues without drafts.
TEST(Speculation, DraftModelWithShorterContext) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  add_draft_model(*session, draft_model(*model, team, 20));
  session->fixed_drafts = 4;
  const TextCase c = greedy_text({5, 400, 6}, 40);
  const GenerateResult with = run(*session, c, true);
  compare(run(*session, c, false), with);
  EXPECT_GT(with.drafted, 8);
  EXPECT_LE(with.drafted, 20);
}

TEST(Speculation, FailedDraftModelStopsDrafting) {
  const auto model = load_stories(Quant::w8a8);
  const auto small = load_stories(Quant::none);
  std::vector<float> norm(small->final_norm.weight, small->final_norm.weight + small->config.hidden_size);
  norm[3] = NAN;
  small->final_norm.weight = norm.data();
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  add_draft_model(*session, draft_model(*small, team));
  const TextCase c = greedy_text({5, 400, 6}, 30);
  const GenerateResult with = run(*session, c, true);
  compare(run(*session, c, false), with);
  EXPECT_EQ(with.drafted, 0);
  const std::string failure = session->free_drafts.at(0)->failure.message();
  EXPECT_TRUE(failure.starts_with("the draft model's logits: NaN or infinity")) << failure;
  // Later texts have drafts from the text itself, or those of a draft model that works.
  session->fixed_drafts = 4;
  TextCase repeated = greedy_text({5, 400, 6, 5, 400, 6, 5}, 30);
  for (const int32_t id : {5, 6, 400}) repeated.options.sampler.logit_bias.push_back({id, 20});
  const GenerateResult plain = run(*session, repeated, false), later = run(*session, repeated, true);
  compare(plain, later);
  EXPECT_GT(later.accepted, 8);
  EXPECT_EQ(session->free_drafts.back()->failure.message(), failure);
  add_draft_model(*session, draft_model(*model, team));
  const GenerateResult good = run(*session, c, true);
  compare(run(*session, c, false), good);
  EXPECT_GT(good.accepted, 20);
}

// Drafts outside the main model's vocabulary are dropped.
TEST(DraftModel, DraftsAreInMainVocabulary) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto small = draft_model(*model, team);
  small->vocab_size = 300;
  int64_t found = 0;
  constexpr int32_t kTexts = 60;
  for (int32_t i = 0; i < kTexts; ++i) {
    Sampler sampler;
    sampler.options.temperature = 2;
    sampler.options.seed = static_cast<uint64_t>(i);
    const std::vector<int32_t> text = {5, 6 + i};
    begin_drafts(*small, text, sampler);
    std::optional<ModelDraft> draft;
    ASSERT_FALSE(next_draft(*small, &draft));
    const int32_t drawn = sample(sampler, small->logits, {}, text);
    EXPECT_EQ(draft.has_value(), drawn < 300);
    EXPECT_EQ(draft ? draft->id : drawn, drawn);
    found += draft.has_value();
  }
  EXPECT_GT(found, 0);
  EXPECT_LT(found, kTexts);
}

// A draft model that was slow for a while, because of other programs, is tried again.
TEST(Speculation, SlowDraftModelIsRetried) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  add_draft_model(*session, draft_model(*model, team));
  session->free_drafts.at(0)->draft_seconds = 1000;
  const TextCase c = greedy_text({5, 40, 6}, 400);
  run(*session, c, true);
  EXPECT_LT(session->free_drafts.at(0)->draft_seconds, 900);
}

TEST(Speculation, DraftModelMustBeTruncatable) {
  ModelConfig config;
  ASSERT_FALSE(read_model_config(kStories, &config));
  EXPECT_FALSE(check_draft_model(config));
  ASSERT_FALSE(read_model_config(PINION_TEST_DATA "/families/qwen3_5", &config));
  EXPECT_TRUE(check_draft_model(config));
}

// Rejected drafts leave nothing behind for the next turn.
TEST(Speculation, SessionEqualsOneWithoutDrafts) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> one, other;
  ASSERT_FALSE(open_session(*model, team, {}, &one));
  ASSERT_FALSE(open_session(*model, team, {}, &other));
  other->fixed_drafts = 4;
  TextCase c = {.prompt = {}, .options = {.max_tokens = 20, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  for (int i = 0; i < 30; ++i) c.prompt.push_back(10 + i % 5);
  for (int turn = 0; turn < 5; ++turn) {
    const GenerateResult alone = run(*one, c, false), with = run(*other, c, true);
    compare(alone, with);
    EXPECT_EQ(with.reused_tokens, alone.reused_tokens);
    EXPECT_EQ(other->sequence.ids, one->sequence.ids);
    c.prompt.insert(c.prompt.end(), alone.ids.begin(), alone.ids.end());
    c.prompt.push_back(11);
  }
}

// One text and the measurements for the number of its drafts.
struct DraftDepth : Acceptance {
  PassSeconds passes;
};

int64_t choose_depth(DraftDepth& depth, int64_t match_length) {
  Drafter drafter = {.acceptance = &depth, .match_length = match_length, .max_drafts = kMaxDrafts};
  choose_depths(depth.passes, 1, kMaxDrafts + 1, 1e9, {&drafter, 1});
  return drafter.drafts;
}

TEST(DraftDepth, ChoosesWhatPays) {
  DraftDepth depth;
  note_pass(depth.passes, 1, 1.0);
  EXPECT_EQ(choose_depth(depth, 0), 0);
  EXPECT_GT(choose_depth(depth, 30), 4);  // long matches usually agree
  for (int64_t rows = 2; rows <= kMaxDrafts + 1; ++rows) note_pass(depth.passes, rows, static_cast<double>(rows));
  EXPECT_EQ(choose_depth(depth, 30), 0);  // a row costs as much as a pass
}

// With eight texts a draft is worth at most an eighth of the pass.
TEST(DraftDepth, ManyTextsGetFewDrafts) {
  constexpr double kForever = 1e9;
  const auto depths = [](double row_cost, double max_seconds, std::vector<int64_t> matches, int64_t max_drafts = 15) {
    PassSeconds seconds;
    for (int64_t rows = 1; rows <= PassSeconds::kMaxRows; ++rows) {
      note_pass(seconds, rows, 1 + row_cost * static_cast<double>(rows - 1));
    }
    std::vector<Acceptance> texts(matches.size());
    std::vector<Drafter> drafters;
    for (size_t i = 0; i < texts.size(); ++i) {
      drafters.push_back({.acceptance = &texts[i], .match_length = matches[i], .max_drafts = max_drafts});
    }
    choose_depths(seconds, std::ssize(matches), 20, max_seconds, drafters);
    std::vector<int64_t> found;
    for (const Drafter& drafter : drafters) found.push_back(drafter.drafts);
    return found;
  };
  using Depths = std::vector<int64_t>;
  // A draft of a long match agrees with probability 0.9, two with 0.81.
  EXPECT_EQ(depths(0.75, kForever, {30}), Depths({1}));  // 1.9 / 1.75, not 2.71 / 2.5
  EXPECT_EQ(depths(0.5, kForever, {30}), Depths({3}));   // 1.9 / 1.5, 2.71 / 2, 3.439 / 2.5, not 4.095 / 3
  // For eight texts a row costs 0.2 / 2.4 of a pass: three drafts of the most likely text pay (8.9 / 2.6, 9.71 / 2.8,
  // 10.44 / 3), but neither a fourth (11.1 / 3.2) nor drafts with probability 0.5.
  EXPECT_EQ(depths(0.2, kForever, {30, 3, 3, 3, 3, 3, 3, 3}), Depths({3, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(depths(0.2, kForever, {3, 3, 3, 3, 3, 3, 3, 3}), Depths(8, 0));
  EXPECT_EQ(depths(1, kForever, {30, 30, 30, 30, 30, 30, 30, 30}), Depths(8, 0));
  // Rows without cost: as many as possible, the most likely first.
  EXPECT_EQ(depths(0, kForever, {30, 3, 0}), Depths({15, 2, 0}));
  EXPECT_EQ(depths(0, kForever, {30, 3, 0}, 2), Depths({2, 2, 0}));
  // With a text without drafts the duration of a pass is limited.
  EXPECT_EQ(depths(0.1, 1.25, {30}), Depths({2}));
}

TEST(DraftDepth, DelayedPassCountsLittle) {
  DraftDepth depth;
  note_pass(depth.passes, 1, 1.0);
  note_pass(depth.passes, 5, 1.2);
  note_pass(depth.passes, 5, 1000.0);
  EXPECT_NEAR(depth.passes.by_rows[5], 1.35, 1e-9);
  EXPECT_GT(choose_depth(depth, 30), 2);
}

TEST(DraftDepth, HandWorkedBuckets) {
  EXPECT_EQ(bucket_of_match(1), 0u);
  EXPECT_EQ(bucket_of_match(3), 1u);
  EXPECT_EQ(bucket_of_match(16), 4u);
  EXPECT_EQ(bucket_of_match(1000), 4u);
  EXPECT_EQ(bucket_of_probability(0.29), 0u);
  EXPECT_EQ(bucket_of_probability(0.3), 1u);
  EXPECT_EQ(bucket_of_probability(1), 4u);
}

TEST(DraftDepth, LearnsFromAcceptance) {
  DraftDepth depth;
  note_pass(depth.passes, 1, 1.0);
  const std::vector<size_t> buckets(4, bucket_of_match(3));
  for (int i = 0; i < 40; ++i) note_acceptance(depth, buckets, 0);
  int tried = 0;
  for (int i = 0; i < 480; ++i) tried += choose_depth(depth, 3) > 0;
  EXPECT_EQ(tried, 10);  // retries
  EXPECT_GT(choose_depth(depth, 30), 0);
  for (int i = 0; i < 40; ++i) note_acceptance(depth, buckets, 4);
  EXPECT_GT(choose_depth(depth, 3), 4);
}

}  // namespace
}  // namespace pinion
