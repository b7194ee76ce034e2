// Requests with drafts beside others: each text equals that of generate().
#include <gtest/gtest.h>

#include "engine/runtime/load.h"
#include "tests/engine/batch.h"
#include "tests/engine/made_mtp.h"
#include "tests/engine/pattern_rules.h"

namespace pinion {
namespace {

// Short prompts, so that most passes have none, and blocks for half of the requests.
TEST(SchedulerDrafts, TextsEqualGenerate) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::mt19937 random(30);
  for (const KvType kv : {KvType::q8, KvType::bf16}) {
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(*model, team, {.kv = kv}, &session));
    const auto scheduler = opened(*model, team, {.kv = kv, .sequences = 6, .positions = 6 * 128, .pass_rows = 64});
    Batch batch{*scheduler};
    std::map<int64_t, TextCase> submitted;
    for (int i = 0; i < 40; ++i) {
      TextCase text = random_text(random, model->config.vocab_size, 160);
      if (i % 4 == 0) text.prompt.resize(text.prompt.size() + 200, text.prompt[0]);
      submitted[batch.submit_any(text)] = text;
    }
    do {
      scheduler->fixed_drafts = below(random, kMaxDrafts + 1);
    } while (step(*scheduler));
    for (const auto& [id, text] : submitted) expect_same_text(alone(*session, text), batch.results[id]);
    EXPECT_GT(scheduler->preempted, 0);
    EXPECT_GT(batch.accepted, 50);
    EXPECT_GT(batch.drafted, 2 * batch.accepted);
    expect_nothing_held(*scheduler);
  }
}

// Each pass yields a drawn token and the accepted drafts. Drafts never take a block.
TEST(SchedulerDrafts, DraftsTakeFewerPasses) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 2, .context = 300});
  const size_t vocab = model->config.vocab_size;
  Batch batch{*scheduler};
  TextCase text = {.prompt = {}, .options = {.max_tokens = 80, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  for (int i = 0; i < 200; ++i) text.prompt.push_back(10 + i % 5);
  for (int32_t id = 10; id < 15; ++id) text.options.sampler.logit_bias.push_back({id, 20});  // the only tokens it draws
  const int64_t plain = batch.submit(text);
  batch.finish();
  EXPECT_EQ(scheduler->logits.size(), 2 * vocab);
  scheduler->fixed_drafts = 7;
  const int64_t before = scheduler->passes, speculating = batch.submit(text, true);
  text.prompt[0] = 11;
  const int64_t beside = batch.submit(text);  // without drafts
  while (!batch.results.contains(speculating) && step(*scheduler)) {
    for (const auto& request : scheduler->running) {
      EXPECT_EQ(std::ssize(request->sequence.cache.blocks), KvShape::chunks_of(request->evaluated()));
    }
  }
  const GenerateResult& result = batch.results[speculating];
  expect_same_text(batch.results[plain], result);
  EXPECT_EQ(batch.results[plain].drafted, 0);
  EXPECT_GT(result.accepted, 20);
  EXPECT_EQ(std::ssize(result.ids), result.decode_passes + result.accepted + 1);
  EXPECT_EQ(scheduler->passes - before, result.decode_passes + 1);
  batch.finish();
  EXPECT_EQ(batch.results[beside].drafted, 0);
  expect_nothing_held(*scheduler);
}

// Passes with prompts hold no drafts. Other passes hold drafts that pay: none if a row costs as much as a pass.
TEST(SchedulerDrafts, OnlyDraftsThatPay) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 2, .rows_beside_decode = 16});
  Batch batch{*scheduler};
  TextCase text = {.prompt = {}, .options = {.max_tokens = 40, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  text.prompt.assign(60, 12);
  text.options.sampler.logit_bias = {{12, 100}};
  batch.submit(text, true);
  step(*scheduler);
  const auto pretend = [&](double row_cost) {
    for (int64_t rows = 1; rows <= PassSeconds::kMaxRows; ++rows) {
      scheduler->pass_seconds.by_rows[rows] = 1 + row_cost * static_cast<double>(rows - 1);
    }
  };
  const auto drafts = [&] { return scheduler->segments[0].drafts; };
  const double costs[] = {0, 1, 0};
  for (const double cost : costs) {
    pretend(cost);
    ASSERT_TRUE(step(*scheduler));
    EXPECT_EQ(drafts(), cost == 0);  // one token follows the last occurrence of the suffix
  }
  EXPECT_EQ(scheduler->running[0]->text.result.ids, std::vector<int32_t>(1 + 2 + 1 + 2, 12));
  text.prompt = some_tokens(40, model->config.vocab_size);
  batch.submit(text);
  for (int i = 0; i < 3; ++i) {  // 40 tokens in chunks of 16
    pretend(0);
    step(*scheduler);
    EXPECT_EQ(drafts(), 0);
  }
  // With a request without drafts a pass may take at most 10 % longer, although 2.9 / 1.24 exceeds 2 / 1.12.
  for (const double cost : {0.12, 0.1}) {
    pretend(cost);
    step(*scheduler);
    EXPECT_EQ(scheduler->segments.size(), 2u);
    EXPECT_EQ(drafts(), cost == 0.1);
  }
  batch.finish();
}

// Runs texts with draft models for fewer requests than run: the others draft from their own text.
void expect_texts_of_generate(const Model& model, const Model& small, Team& team, bool is_always_right) {
  std::mt19937 random(33);
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(model, team, {}, &session));
  const auto scheduler =
      opened(model, team, {.sequences = 4, .context = 220, .pass_rows = 80, .keeps_hidden = small.reads_hidden()});
  for (int i = 0; i < 3; ++i) {
    auto drafting = std::make_unique<DraftModel>();
    ASSERT_FALSE(open_session(small, team, {.context = 230, .pass_rows = 30}, &drafting->session));
    add_draft_model(*scheduler, std::move(drafting));
  }
  Batch batch{*scheduler};
  std::map<int64_t, TextCase> submitted;
  for (int i = 0; i < 24; ++i) {
    TextCase text = random_text(random, model.config.vocab_size, 60);
    if (is_always_right) text.options.rules = {};  // their effect is unknown to a draft model
    submitted[batch.submit(text, true)] = text;
    if (i % 8 == 7 && cancel(*scheduler, i - 4)) submitted.erase(i - 4);
    scheduler->fixed_drafts = i % 2 * (1 + i % kMaxDrafts);
    step(*scheduler), step(*scheduler);
  }
  batch.finish();
  for (const auto& [id, text] : submitted) {
    rewind(session->sequence, 0);
    expect_same_text(alone(*session, text), batch.results[id]);
  }
  EXPECT_GT(batch.drafted, 100);
  EXPECT_EQ(std::ranges::count_if(scheduler->free_drafts, [](const auto& drafts) { return drafts->model != nullptr; }),
            3);
  for (const auto& drafts : scheduler->free_drafts) EXPECT_FALSE(drafts->failure) << drafts->failure.message();
  EXPECT_GT(batch.accepted, is_always_right ? batch.drafted / 2 : 0);
  expect_nothing_held(*scheduler);
}

TEST(SchedulerDrafts, DraftModels) {
  Team team({-1});
  const auto model = load_stories(Quant::w8a8), small = load_stories(Quant::w4a8);
  expect_texts_of_generate(*model, *small, team, false);
  expect_texts_of_generate(*model, *model, team, true);
}

TEST(SchedulerDrafts, MtpLayers) {
  Team team({-1});
  std::unique_ptr<Model> model, layer;
  const std::string folder = PINION_TEST_DATA "/families/qwen3_5_mtp";
  ASSERT_FALSE(load_model(folder, {}, &model));
  ASSERT_FALSE(load_mtp(folder, {}, *model, &layer));
  expect_texts_of_generate(*model, *layer, team, false);
  const TempFolder made;
  ASSERT_NO_FATAL_FAILURE(write_made(made, MadeFrom::token));
  ASSERT_FALSE(load_model(made.path, {.quant = Quant::none}, &model));
  ASSERT_FALSE(load_mtp(made.path, {.quant = Quant::none}, *model, &layer));
  expect_texts_of_generate(*model, *layer, team, true);
}

// Texts whose drafts' logits do not fit into the memory have none; log probabilities of a prompt are an error.
TEST(SchedulerDrafts, TooLittleMemoryForDrafts) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  const auto scheduler = opened(*model, team, {.sequences = 2, .context = 300});
  scheduler->fixed_drafts = 5;
  TextCase text = {.prompt = {}, .options = {.max_tokens = 80, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  for (int i = 0; i < 200; ++i) text.prompt.push_back(10 + i % 5);
  for (int32_t id = 10; id < 15; ++id) text.options.sampler.logit_bias.push_back({id, 20});  // the only tokens it draws
  TextCase ruled = text;
  ruled.options.rules = [] { return std::make_unique<PatternRules>(4, 30); };
  TextCase scored = text;
  scored.options.prompt_logprobs = 0;
  Batch batch{*scheduler};
  const int64_t vocab = std::exchange(model->config.vocab_size, int64_t{1} << 44);
  const int64_t one = batch.submit(text, true), other = batch.submit(ruled);
  int64_t id = 0;
  const Error e = submit(*scheduler, {.prompt = scored.prompt, .options = scored.options}, &id);
  EXPECT_NE(e.message().find("too little memory for 64 more rows per pass"), std::string::npos) << e.message();
  model->config.vocab_size = vocab;
  batch.finish();
  EXPECT_EQ(batch.drafted, 0);
  const int64_t later = batch.submit(text, true);  // there is memory again
  batch.finish();
  EXPECT_GT(batch.results[later].accepted, 10);
  expect_same_text(alone(*session, text), batch.results[one]);
  expect_same_text(batch.results[one], batch.results[later]);
  rewind(session->sequence, 0);
  expect_same_text(alone(*session, ruled), batch.results[other]);
  expect_nothing_held(*scheduler);
}

// Drafts pass from one text to the next: they may continue it only if it begins with all of the earlier text.
TEST(SchedulerDrafts, ALaterTextStartsAgain) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  session->speculates = true;
  GenerateResult result;
  const auto text_after = [&](const std::vector<int32_t>& prompt) {
    EXPECT_FALSE(generate(*session, prompt, {.max_tokens = 4}, [](int32_t) { return true; }, &result));
    return session->free_drafts.at(0)->text.text;
  };
  std::vector<int32_t> prompt = {5, 6, 7, 5, 6};
  for (const bool continues : {true, false}) {
    EXPECT_EQ(text_after(prompt), session->sequence.ids) << continues;
    prompt = continues ? session->sequence.ids : std::vector<int32_t>{5, 6, 8};
    prompt.push_back(9);
  }
  EXPECT_EQ(text_after(prompt), session->sequence.ids);
}

}  // namespace
}  // namespace pinion
