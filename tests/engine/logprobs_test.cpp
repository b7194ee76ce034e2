// Log probabilities: hand-worked values, and the same bits for any threads, chunks and kernels.
#include "engine/session/sampler.h"

#include <cmath>
#include <limits>

#include "engine/session/session.h"
#include "tests/engine/one_result.h"

namespace pinion {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Logprobs, HandWorked) {
  // Probabilities 1/8, 1/2, 1/8, 1/4.
  const float logits[] = {5, std::log(4.0f) + 5, 5, std::log(2.0f) + 5};
  const Logprobs found = logprobs_of(logits, 0, 3);
  EXPECT_EQ(found.token.id, 0);
  EXPECT_NEAR(found.token.logprob, std::log(1.0 / 8), 1e-6);
  ASSERT_EQ(found.top.size(), 3u);
  EXPECT_EQ(found.top[0].id, 1);
  EXPECT_NEAR(found.top[0].logprob, std::log(1.0 / 2), 1e-6);
  EXPECT_EQ(found.top[1].id, 3);
  EXPECT_EQ(found.top[2].id, 0) << "the lower id among equals";
  EXPECT_EQ(logprobs_of(logits, 0, 0).top.size(), 0u);
  EXPECT_EQ(logprobs_of(logits, 0, 9).top.size(), 4u);
}

TEST(Logprobs, MatchStandardLibrary) {
  std::vector<float> logits;
  for (int i = 0; i < 5000; ++i) logits.push_back(12 * std::sin(static_cast<float>(i)));
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
  const LogSoftmax log_softmax = log_softmax_of(logits);
  for (const size_t i : {size_t{0}, size_t{17}, size_t{4999}}) {
    EXPECT_NEAR(log_softmax(logits[i]), static_cast<double>(logits[i] - std::log(sum)), 2e-8);
  }
}

TEST(Logprobs, MinusInfinityAndNan) {
  const float impossible[] = {0, -kInfinity, 0};
  EXPECT_EQ(logprobs_of(impossible, 1, 1).token.logprob, -static_cast<double>(kInfinity));
  EXPECT_NEAR(logprobs_of(impossible, 0, 1).token.logprob, -std::log(2.0), 1e-8);
  const float damaged[] = {0, kNan, 1};
  EXPECT_TRUE(std::isnan(logprobs_of(damaged, 0, 3).token.logprob));
  EXPECT_EQ(logprobs_of(damaged, 0, 3).top[0].id, 2);
  EXPECT_EQ(logprobs_of(damaged, 0, 3).top[2].id, 1) << "NaN sorts last";
}

struct Variation {
  int32_t threads;
  int64_t chunk;
  const Kernels* kernels;
};

void expect_same_logprobs(const Model& model, const std::vector<int32_t>& prompt, bool by_all_kernels) {
  const auto generate_by = [&](const Variation& way) {
    Team team(std::vector<int32_t>(way.threads, -1));
    std::unique_ptr<Session> session;
    const Error opened =
        open_session(model, team, {.context = 300, .pass_rows = way.chunk, .kernels = way.kernels}, &session);
    EXPECT_FALSE(opened) << opened.message();
    GenerateOptions options = {.max_tokens = 10, .sampler = {}, .ignore_eos = true};
    options.logprobs = options.prompt_logprobs = 3;
    GenerateResult result;
    const auto keep_going = [](int32_t) { return true; };
    EXPECT_FALSE(generate(*session, prompt, options, keep_going, &result));
    EXPECT_FALSE(generate(*session, prompt, options, keep_going, &result)) << "again, with the whole prompt held";
    EXPECT_EQ(result.reused_tokens, 0);
    return result;
  };
  const GenerateResult expected = generate_by({1, 256, nullptr});
  ASSERT_EQ(expected.prompt_logprobs.size(), prompt.size() - 1);
  ASSERT_EQ(expected.logprobs.size(), expected.ids.size());
  for (size_t i = 1; i < prompt.size(); ++i) EXPECT_EQ(expected.prompt_logprobs[i - 1].token.id, prompt[i]);

  // From all logits at once.
  const int64_t vocab = model.config.vocab_size;
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(model, team, {.context = 300}, &session));
  std::vector<float> logits(prompt.size() * vocab);
  ASSERT_FALSE(evaluate(*session, prompt, true, logits.data()));
  std::vector<Logprobs> whole;
  for (size_t i = 1; i < prompt.size(); ++i) {
    const auto row = std::span(logits).subspan((i - 1) * vocab, vocab);
    whole.push_back(logprobs_of(row, prompt[i], 3));
  }
  EXPECT_EQ(expected.prompt_logprobs, whole);
  EXPECT_EQ(expected.logprobs[0].token.id, expected.logprobs[0].top[0].id) << "greedy";

  std::vector<Variation> ways = {{2, 7, nullptr}, {1, 1, nullptr}};
  for (const Variant& variant : kernel_variants()) {
    if (by_all_kernels && !(variant.needs & ~cpu_features())) ways.push_back({2, 50, &variant.table()});
  }
  for (const Variation& way : ways) {
    const GenerateResult other = generate_by(way);
    EXPECT_EQ(other.prompt_logprobs, expected.prompt_logprobs) << way.threads << " " << way.chunk;
    EXPECT_EQ(other.logprobs, expected.logprobs) << way.threads << " " << way.chunk;
  }
}

// Without prompt_logprobs, the held prompt is not evaluated again.
TEST(Logprobs, PromptOrAnswerOnly) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, team, {}, &session));
  const std::vector<int32_t> prompt = some_tokens(50, model->config.vocab_size);
  const auto keep_going = [](int32_t) { return true; };
  const auto generate_with = [&](std::optional<int32_t> of_answer, std::optional<int32_t> of_prompt) {
    GenerateOptions options = {.max_tokens = 4, .sampler = {}, .ignore_eos = true};
    options.logprobs = of_answer, options.prompt_logprobs = of_prompt;
    GenerateResult result;
    EXPECT_FALSE(generate(*session, prompt, options, keep_going, &result));
    return result;
  };
  const GenerateResult both = generate_with(2, 1), answer = generate_with(2, {}), of_prompt = generate_with({}, 1);
  EXPECT_EQ(both.reused_tokens, 0);
  EXPECT_EQ(both.prompt_logprobs.size(), 49u);
  EXPECT_EQ(both.prompt_logprobs[0].top.size(), 1u);
  EXPECT_EQ(answer.reused_tokens, 49);
  EXPECT_EQ(answer.prompt_logprobs.size(), 0u);
  EXPECT_EQ(answer.logprobs, both.logprobs);
  EXPECT_EQ(of_prompt.prompt_logprobs, both.prompt_logprobs);
  EXPECT_EQ(of_prompt.logprobs.size(), 0u);
  GenerateResult result;
  GenerateOptions options;
  options.prompt_logprobs = -1;
  EXPECT_EQ(generate(*session, prompt, options, keep_going, &result).message(),
            "log probabilities: out of range: want at least 0, have -1");
}

TEST(Logprobs, SameBitsForAnyExecution) {
  const auto model = load_stories(Quant::w8a8);
  expect_same_logprobs(*model, some_tokens(100, model->config.vocab_size), true);
}

// Rope frequencies that depend on the length of the prompt, and recurrent states.
TEST(Logprobs, PromptsThatCannotBeTruncated) {
  for (const char* family : {"llama_dynamic", "phi3_crossing", "qwen3_5", "lfm2", "granite_hybrid"}) {
    std::unique_ptr<Model> model;
    const Error e = load_model(PINION_TEST_DATA "/families/" + std::string(family), {.quant = Quant::w8a8}, &model);
    ASSERT_FALSE(e) << e.message();
    expect_same_logprobs(*model, some_tokens(70, model->config.vocab_size), false);
  }
}

}  // namespace
}  // namespace pinion
