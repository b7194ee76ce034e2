// Requests of models with recurrent layers share prefixes through snapshots, and have the text of generate().
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "engine/session/scheduler.h"
#include "tests/engine/batch.h"
#include "tests/engine/ids.h"

namespace pinion {
namespace {

constexpr int32_t kEndOfMessage = 2;  // an end-of-sequence id of the fixtures

std::unique_ptr<Model> load_long(const std::string& family) {
  std::unique_ptr<Model> model;
  const Error e = load_model(PINION_TEST_DATA "/families/" + family, {}, &model);
  EXPECT_FALSE(e) << e.message();
  model->config.max_positions = 4096;
  return model;
}

class SchedulerSnapshots : public testing::Test {
 protected:
  SchedulerSnapshots() { open({.sequences = 3}); }

  void open(const SchedulerOptions& options) {
    scheduler = opened(*model, team, options);
    batch = std::make_unique<Batch>(Batch{*scheduler});
    ASSERT_FALSE(open_session(*model, team, {.snapshot_bytes = 0}, &session));
  }

  // Random ids that end no message.
  Ids some(int64_t count) {
    Ids ids(count);
    for (int32_t& id : ids) id = 3 + static_cast<int32_t>(below(random, 110));
    return ids;
  }
  Ids message(int64_t count) { return some(count - 1) + Ids{kEndOfMessage}; }
  Ids opening() const { return {5, 6, 7}; }  // of an answer

  int64_t submit(const Ids& prompt, int64_t tokens = 4) {
    const int64_t id = batch->submit(
        {.prompt = prompt, .options = {.max_tokens = tokens, .sampler = {}, .ignore_eos = true}, .stop_after = 1000});
    prompts[id] = prompt;
    return id;
  }
  GenerateResult finish(int64_t id) {
    batch->finish();
    rewind(session->sequence, 0);
    const GenerateResult& result = batch->results[id];
    const TextCase text = {.prompt = prompts[id],
                           .options = {.max_tokens = std::ssize(result.ids), .sampler = {}, .ignore_eos = true},
                           .stop_after = 1000};
    expect_same_text(alone(*session, text), result);
    return result;
  }
  int64_t reused(const Ids& prompt) { return finish(submit(prompt)).reused_tokens; }

  std::unique_ptr<Model> model = load_long("qwen3_5");
  Team team{{-1}};
  std::mt19937 random{31};
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Session> session;
  std::unique_ptr<Batch> batch;
  std::map<int64_t, Ids> prompts;
};

TEST_F(SchedulerSnapshots, SystemMessageIsEvaluatedOnce) {
  const Ids system = message(700);
  EXPECT_EQ(reused(system + message(20) + opening()), 0);
  EXPECT_EQ(reused(system + message(30) + opening()), 700);
  EXPECT_EQ(reused(system + message(600) + opening()), 700);
  EXPECT_EQ(reused(message(700) + message(20) + opening()), 0);
  EXPECT_EQ(reused(system + message(20) + opening()), 700);
}

TEST_F(SchedulerSnapshots, ConversationEvaluatesNewTokensOnly) {
  Ids prompt = message(300) + message(40) + opening();
  int64_t held = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const int64_t id = submit(prompt, 9);
    const GenerateResult result = finish(id);
    EXPECT_EQ(result.reused_tokens, held);
    held = std::ssize(prompt) + std::ssize(result.ids) - 1;  // the last token of an answer is not evaluated
    prompt = prompt + result.ids + Ids{kEndOfMessage} + message(25 + turn) + opening();
  }
  EXPECT_LE(scheduler->snapshots.taken, 3 * 5);
}

// A template that renders an answer without its thoughts changes the prompt from the answer's opening on.
TEST_F(SchedulerSnapshots, RewrittenAnswerContinuesBeforeItsOpening) {
  const Ids history = message(300) + message(40);
  reused(history + opening());
  EXPECT_EQ(reused(history + Ids{5, 6, 9} + message(10) + message(30) + opening()), 340);
}

TEST_F(SchedulerSnapshots, ThirdTextContinuesWhereTheSecondDeparted) {
  const Ids common = some(300);
  reused(common + some(200));
  EXPECT_EQ(reused(common + some(100)), 0);
  EXPECT_EQ(reused(common + some(150)), 300);
}

TEST_F(SchedulerSnapshots, SimultaneousTextsWaitForTheCommonPrefix) {
  open({.sequences = 6});
  const Ids common = some(400);
  std::vector<int64_t> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(submit(common + some(30 + i)));
  EXPECT_EQ(finish(ids[0]).reused_tokens, 0);
  for (int i = 1; i < 6; ++i) EXPECT_EQ(finish(ids[i]).reused_tokens, 400) << i;
}

TEST_F(SchedulerSnapshots, CancelledPromptIsContinued) {
  open({.sequences = 2, .pass_rows = 100});
  const Ids prompt = some(350);
  const int64_t id = submit(prompt);
  step(*scheduler), step(*scheduler);
  ASSERT_TRUE(cancel(*scheduler, id));
  EXPECT_EQ(reused(prompt), 200);
}

TEST_F(SchedulerSnapshots, BudgetBoundsTheMemory) {
  const int64_t one = scheduler->free_sequences[0].state.bytes();
  const Ids system = message(300);
  open({.sequences = 2, .snapshot_bytes = 4 * one});
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(reused(system + message(50) + opening()), i == 0 ? 0 : 300) << "the shared snapshot is in use";
    EXPECT_LE(snapshot_bytes(scheduler->snapshots), 4 * one);
  }
  EXPECT_GT(scheduler->snapshots.evicted, 0);
  open({.sequences = 2, .snapshot_bytes = one - 1});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reused(system + message(50) + opening()), 0);
  EXPECT_EQ(scheduler->snapshots.taken, 0);
}

TEST_F(SchedulerSnapshots, PinnedTextsStay) {
  open({.sequences = 2,
        .context = 512,
        .positions = 1024,
        .snapshot_bytes = 4 * scheduler->free_sequences[0].state.bytes()});
  const Ids system = message(300);
  for (const Ids& prompt : {system + opening(), message(300) + opening()}) {
    TextRequest request = {.prompt = prompt,
                           .options = {.max_tokens = 0, .sampler = {}},
                           .is_pinned = true,
                           .on_token = [](int32_t, const GenerateResult&) { return true; },
                           .on_end = [](const Error& e, const GenerateResult&) { EXPECT_FALSE(e) << e.message(); }};
    int64_t id = 0;
    ASSERT_FALSE(pinion::submit(*scheduler, std::move(request), &id));
    batch->finish();
  }
  EXPECT_EQ(std::ranges::count(scheduler->prefix_cache, true, &CachedPrefix::is_pinned), 1) << "a context is left";
  for (int i = 0; i < 6; ++i) EXPECT_EQ(reused(message(400)), 0);
  EXPECT_EQ(reused(system + message(50) + opening()), 300);
}

// Joins, ends, cancellations, preemptions and evictions, with drafts. Long run: PINION_SOAK_PASSES=10000.
TEST(SchedulerSnapshotsSoak, EveryRecurrentFamily) {
  const char* asked = std::getenv("PINION_SOAK_PASSES");
  const int64_t passes = asked ? std::atoll(asked) : 50;
  Team team({-1});
  std::mt19937 random(37);
  for (const char* family : {"qwen3_5", "qwen3_next", "lfm2", "granite_hybrid", "falcon_h1", "nemotron_h", "mamba",
                             "jamba", "kimi_linear", "bailing_hybrid", "olmo_hybrid", "zamba2", "recurrent_gemma"}) {
    SCOPED_TRACE(family);
    const auto model = load_long(family);
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(*model, team, {.snapshot_bytes = 0}, &session));
    const int64_t state_bytes = session->sequence.state.bytes();
    const auto scheduler = opened(*model, team,
                                  {.sequences = 8,
                                   .context = 1024,
                                   .positions = 2048,
                                   .pass_rows = 160,
                                   .rows_beside_decode = 96,
                                   .snapshot_bytes = 6 * state_bytes});
    Batch batch{*scheduler};
    std::map<int64_t, TextCase> submitted;
    std::vector<Ids> prefixes;
    for (int i = 0; i < 4; ++i) prefixes.push_back(some_tokens(100 + 140 * i, 100));
    int64_t reused = 0, compared = 0;
    const auto compare = [&] {
      for (const auto& [id, result] : std::exchange(batch.results, {})) {
        rewind(session->sequence, 0);
        expect_same_text(alone(*session, submitted.extract(id).mapped()), result);
        reused += result.reused_tokens, ++compared;
      }
    };
    while (scheduler->passes < passes && !testing::Test::HasFailure()) {
      while (scheduler->waiting.size() < 3 && below(random, 3) > 0) {
        TextCase text = random_text(random, model->config.vocab_size, 40);
        const Ids& prefix = prefixes[below(random, 4)];
        const auto end = prefix.end() - below(random, 3) * below(random, 50);
        text.prompt.insert(text.prompt.begin(), prefix.begin(), end);
        submitted[batch.submit_any(text)] = text;
      }
      if (below(random, 10) == 0 && !submitted.empty()) {
        const auto victim = std::next(submitted.begin(), below(random, static_cast<uint32_t>(submitted.size())));
        if (cancel(*scheduler, victim->first)) submitted.erase(victim);
      }
      scheduler->fixed_drafts = below(random, 3) * below(random, 6);
      step(*scheduler);
      compare();
      EXPECT_LE(snapshot_bytes(scheduler->snapshots), 6 * state_bytes);
    }
    batch.finish();
    compare();
    EXPECT_TRUE(submitted.empty());
    EXPECT_GT(reused, 0);
    EXPECT_GT(compared, 0);
    expect_nothing_held(*scheduler);
  }
}

// With dynamic rope, texts within the model's positions have the same frequencies; longer ones share nothing.
TEST(SchedulerDynamicRope, ShortTextsShare) {
  std::unique_ptr<Model> model;
  ASSERT_FALSE(load_model(PINION_TEST_DATA "/families/llama_dynamic", {}, &model));
  const int64_t fixed = model->config.max_positions;
  ASSERT_GT(context_length(model->config), fixed + 20);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 2});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  const auto reused = [&](int64_t count, int64_t tokens) {
    const TextCase text = {.prompt = some_tokens(count, model->config.vocab_size),
                           .options = {.max_tokens = tokens, .sampler = {}, .ignore_eos = true},
                           .stop_after = 1000};
    Batch batch{*scheduler};
    const int64_t id = batch.submit(text);
    batch.finish();
    rewind(session->sequence, 0);
    expect_same_text(alone(*session, text), batch.results[id]);
    return batch.results[id].reused_tokens;
  };
  EXPECT_EQ(reused(fixed - 20, 30), 0) << "its answer passes the model's positions";
  EXPECT_EQ(reused(fixed - 10, 1), fixed - 20);
  EXPECT_EQ(reused(fixed + 1, 3), 0) << "other frequencies";
  EXPECT_EQ(reused(fixed, 3), fixed - 10) << "the longer text left nothing";
}

}  // namespace
}  // namespace pinion
