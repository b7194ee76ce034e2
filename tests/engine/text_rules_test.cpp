// Texts with rules: drawn tokens, the end of the text, errors.
#include "engine/session/continuation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "engine/session/speculation.h"
#include "tests/engine/batch.h"
#include "tests/engine/pattern_rules.h"

namespace pinion {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(TextRules, SamplerDrawsAllowedTokens) {
  std::vector<float> logits(70, 0.0f);
  logits[3] = 5, logits[40] = 4, logits[69] = 6, logits[20] = -1;
  const std::vector<uint32_t> allowed = {1u << 3 | 1u << 20, 1u << 8, 0};
  Sampler sampler{.options = {}};
  sampler.allowed = allowed;
  EXPECT_EQ(sample(sampler, logits, {}, {}), 3);
  sampler.options.logit_bias = {{3, -kInfinity}, {20, 10}};
  EXPECT_EQ(sample(sampler, logits, {}, {}), 20);
  sampler.options = {.temperature = 5, .top_k = 3};
  std::vector<int64_t> drawn(70);
  for (int i = 0; i < 400; ++i) ++drawn[static_cast<size_t>(sample(sampler, logits, {}, {}))];
  EXPECT_EQ(drawn[3] + drawn[20] + drawn[40], 400);
  EXPECT_GT(std::min({drawn[3], drawn[20], drawn[40]}), 0);
  sampler.allowed = {};
  sampler.options = {};
  EXPECT_EQ(sample(sampler, logits, {}, {}), 69);
  // Ids beyond the mask are not allowed.
  sampler.allowed = std::span(allowed).first(2);
  EXPECT_EQ(sample(sampler, logits, {}, {}), 3);
}

struct Stories {
  std::shared_ptr<const Model> model = load_stories(Quant::w8a8);
  Team team{{-1, -1}};
  std::unique_ptr<Session> session;

  Stories() { EXPECT_FALSE(open_session(*model, team, {}, &session)); }
  Error generate_with(const TextCase& text, GenerateResult* result) {
    return generate(*session, text.prompt, text.options, [](int32_t) { return true; }, result);
  }
};

TextCase with_rules(int64_t max_tokens) {
  TextCase text = {.prompt = {1, 5, 6}, .options = {.max_tokens = 60}, .stop_after = 1000};
  text.options.rules = [max_tokens] { return std::make_unique<PatternRules>(4, max_tokens); };
  return text;
}

TEST(TextRules, TokensAreAllowedAndRulesEndTheText) {
  Stories s;
  GenerateResult result;
  ASSERT_FALSE(s.generate_with(with_rules(21), &result));
  PatternRules rules(4, 21);
  ASSERT_FALSE(rules.begin(s.model->config.vocab_size, {}));
  ASSERT_EQ(result.ids.size(), 21u);
  for (const int32_t id : result.ids) ASSERT_FALSE(rules.add(id));
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  TextCase cut = with_rules(21);
  cut.options.max_tokens = 20;
  ASSERT_FALSE(s.generate_with(cut, &result));
  EXPECT_EQ(result.finish_reason, FinishReason::length);
  ASSERT_FALSE(s.generate_with(with_rules(0), &result));
  EXPECT_EQ(result.ids.size(), 0u);
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
}

TEST(TextRules, JumpForwardTokensAreDrafted) {
  Stories s;
  GenerateResult plain, with;
  ASSERT_FALSE(s.generate_with(with_rules(40), &plain));
  s.session->fixed_drafts = 5;
  ASSERT_FALSE(s.generate_with(with_rules(40), &with));
  expect_same_text(plain, with);
  EXPECT_GT(with.accepted, 12);
  EXPECT_LT(with.decode_passes, 30);
  const auto scheduler = opened(*s.model, s.team, {.sequences = 2, .context = 300});
  scheduler->fixed_drafts = 5;
  Batch batch{*scheduler};
  const int64_t one = batch.submit(with_rules(40)), other = batch.submit(with_rules(40), true);
  batch.finish();
  expect_same_text(plain, batch.results[one]);
  expect_same_text(plain, batch.results[other]);
  EXPECT_GT(batch.results[one].accepted, 12);
  expect_nothing_held(*scheduler);
}

// Ready once `prepared` is set, as by another thread.
class LateRules : public PatternRules {
 public:
  explicit LateRules(std::shared_future<void> prepared) : PatternRules(4, 21), prepared_(std::move(prepared)) {}
  bool is_ready() const override { return prepared_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

 private:
  std::shared_future<void> prepared_;
};

// The prompt is read and other texts are drawn meanwhile; the text is the same.
TEST(TextRules, OnlyTheFirstDrawWaitsForTheRules) {
  Stories s;
  for (const size_t prompt_tokens : {1, 2, 100}) {
    TextCase text = with_rules(21), other = {.prompt = {7, 8}, .options = {.max_tokens = 30}, .stop_after = 1000};
    text.prompt.resize(prompt_tokens, 9);
    GenerateResult expected;
    ASSERT_FALSE(s.generate_with(text, &expected));
    rewind(s.session->sequence, 0);
    for (const bool speculates : {false, true}) {
      std::promise<void> preparation;
      text.options.rules = [prepared = preparation.get_future().share()] {
        return std::make_unique<LateRules>(prepared);
      };
      const auto scheduler = opened(*s.model, s.team, {.sequences = 2, .context = 300, .pass_rows = 32});
      Batch batch{*scheduler};
      const int64_t beside = batch.submit(other), late = batch.submit(text, speculates);
      for (int i = 0; i < 60; ++i) ASSERT_TRUE(step(*scheduler));
      EXPECT_EQ(batch.results[beside].ids.size(), 30u);
      ASSERT_EQ(scheduler->running.size(), 1u);
      EXPECT_EQ(scheduler->running[0]->evaluated() + 1, scheduler->running[0]->total());
      EXPECT_EQ(scheduler->running[0]->total(), static_cast<int64_t>(prompt_tokens));
      preparation.set_value();
      batch.finish();
      expect_same_text(expected, batch.results[late]);
      expect_nothing_held(*scheduler);
    }
  }
}

// Fails after good_tokens tokens; -1: at the beginning.
class BrokenRules : public TextRules {
 public:
  explicit BrokenRules(int64_t good_tokens) : left_(good_tokens) {}
  Error begin(int64_t vocab_size, std::span<const int32_t>) override {
    allowed.assign((vocab_size + 31) / 32, ~0u);
    return left_ < 0 ? error("broken", "rules") : Error{};
  }
  Error add(int32_t) override { return left_-- == 0 ? error("broken", "rules") : Error{}; }

 private:
  int64_t left_;
};

TEST(TextRules, FailuresEndTheText) {
  Stories s;
  const auto scheduler = opened(*s.model, s.team, {.sequences = 2, .context = 300});
  for (const int64_t good_tokens : {-1, 0, 3}) {
    TextCase text = with_rules(9);
    text.options.rules = [good_tokens] { return std::make_unique<BrokenRules>(good_tokens); };
    GenerateResult result;
    EXPECT_EQ(s.generate_with(text, &result).message(), "rules: broken");
    std::vector<std::string> failures;
    TextRequest request = {.prompt = text.prompt,
                           .options = text.options,
                           .on_token = [](int32_t, const GenerateResult&) { return true; },
                           .on_end = [&](const Error& e, GenerateResult) { failures.push_back(e.message()); }};
    int64_t id = 0;
    ASSERT_FALSE(submit(*scheduler, request, &id));
    ASSERT_FALSE(submit(*scheduler, std::move(request), &id));
    while (step(*scheduler)) {
    }
    EXPECT_EQ(failures, std::vector<std::string>(2, "rules: broken"));
  }
  expect_nothing_held(*scheduler);
  // The only allowed token is banned.
  TextCase banned = with_rules(9);
  const int32_t fourth = PatternRules(4, 9).given(3);
  banned.options.sampler.logit_bias = {{fourth, -kInfinity}};
  GenerateResult result;
  EXPECT_EQ(s.generate_with(banned, &result).message(), "grammar: no allowed token is left");
}

}  // namespace
}  // namespace pinion
