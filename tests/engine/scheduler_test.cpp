// Many requests: each text equals that of generate(), with any other requests and shared prefixes.
#include "engine/session/scheduler.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "engine/team/memory.h"
#include "tests/engine/batch.h"

namespace pinion {
namespace {

// Texts with common prefixes of up to 400 tokens.
std::vector<TextCase> texts_with_shared_prefixes(std::mt19937& random, int64_t vocab, int count, uint32_t most_tokens) {
  std::vector<std::vector<int32_t>> prefixes;
  for (const uint32_t length : {0u, 7u, 200u, 256u, 300u, 400u}) {
    std::vector<int32_t>& prefix = prefixes.emplace_back();
    for (uint32_t i = 0; i < length; ++i) prefix.push_back(static_cast<int32_t>(3 + below(random, 300)));
  }
  std::vector<TextCase> texts;
  for (int i = 0; i < count; ++i) {
    TextCase& text = texts.emplace_back(random_text(random, vocab, most_tokens));
    const std::vector<int32_t>& prefix = prefixes[below(random, static_cast<uint32_t>(prefixes.size()))];
    text.prompt.insert(text.prompt.begin(), prefix.begin(), prefix.end());
  }
  return texts;
}

TEST(Scheduler, TextsEqualGenerate) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::mt19937 random(26);
  for (const KvType kv : {KvType::q8, KvType::bf16}) {
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(*model, team, {.kv = kv}, &session));
    // Room for some: others wait or are preempted.
    const auto scheduler =
        opened(*model, team, {.kv = kv, .sequences = 12, .positions = 1800, .pass_rows = 96, .rows_beside_decode = 24});
    const std::vector<TextCase> texts = texts_with_shared_prefixes(random, model->config.vocab_size, 60, 40);
    Batch batch{*scheduler};
    std::map<int64_t, size_t> submitted;
    int64_t cancelled = 0;
    for (size_t next = 0; next < texts.size() || !scheduler->running.empty();) {
      while (next < texts.size() && below(random, 3) > 0) submitted[batch.submit_any(texts[next])] = next, ++next;
      if (below(random, 20) == 0 && !submitted.empty()) {
        cancelled += cancel(*scheduler, std::prev(submitted.end())->first);
      }
      scheduler->fixed_drafts = below(random, kMaxDrafts + 1);
      step(*scheduler);
    }
    batch.finish();
    for (const auto& [id, result] : batch.results) expect_same_text(alone(*session, texts[submitted.at(id)]), result);
    EXPECT_EQ(std::ssize(batch.results), std::ssize(texts) - cancelled);
    EXPECT_GT(scheduler->preempted, 0);
    expect_nothing_held(*scheduler);
  }
}

// Requests join, end, are cancelled and preempted. Long run: PINION_SOAK_PASSES=10000.
TEST(Scheduler, Soak) {
  const char* asked = std::getenv("PINION_SOAK_PASSES");
  const int64_t passes = asked ? std::atoll(asked) : 60;
  const auto model = load_stories(Quant::w8a8);
  Team team(std::vector<int32_t>(asked ? 2 : 1, -1)), single({-1});
  std::mt19937 random(29);
  std::unique_ptr<Session> session;
  ASSERT_FALSE(open_session(*model, single, {}, &session));
  const auto scheduler =
      opened(*model, team, {.sequences = 64, .positions = 64 * 256, .pass_rows = 160, .rows_beside_decode = 96});
  Batch batch{*scheduler};
  std::map<int64_t, TextCase> submitted;
  std::vector<TextCase> texts;
  int64_t cancelled = 0, compared = 0, resident_bytes = 0;
  const auto compare = [&] {
    for (const auto& [id, result] : std::exchange(batch.results, {})) {
      expect_same_text(alone(*session, submitted.extract(id).mapped()), result);
      ++compared;
    }
  };
  const auto report = [&] {
    std::printf(
        "%lld passes, %lld texts equal, %lld cancelled, %lld preempted; %lld of %lld drafts accepted; at most %.1f "
        "MB, at half time %.1f MB\n",
        static_cast<long long>(scheduler->passes), static_cast<long long>(compared), static_cast<long long>(cancelled),
        static_cast<long long>(scheduler->preempted), static_cast<long long>(batch.accepted),
        static_cast<long long>(batch.drafted), static_cast<double>(peak_rss_bytes()) / 1e6,
        static_cast<double>(resident_bytes) / 1e6);
    std::fflush(stdout);
  };
  while (scheduler->passes < passes && !HasFailure()) {
    if (texts.empty()) texts = texts_with_shared_prefixes(random, model->config.vocab_size, 100, 120);
    const bool is_quiet =
        scheduler->passes % 250 >= 50 && !scheduler->running.empty();  // passes without prompts have drafts
    while (!is_quiet && !texts.empty() && scheduler->waiting.size() < 4 && below(random, 4) > 0) {
      submitted[batch.submit_any(texts.back())] = texts.back();
      texts.pop_back();
    }
    if (below(random, 10) == 0 && !submitted.empty()) {
      const auto victim = std::next(submitted.begin(), below(random, static_cast<uint32_t>(submitted.size())));
      if (cancel(*scheduler, victim->first)) submitted.erase(victim), ++cancelled;
    }
    if (scheduler->passes % 4 == 0) scheduler->fixed_drafts = below(random, 3) * below(random, 6);
    step(*scheduler);
    compare();
    if (scheduler->passes == passes / 2) resident_bytes = peak_rss_bytes();
    if (scheduler->passes % 1000 == 0) report();
  }
  scheduler->fixed_drafts = 4;
  batch.finish();
  compare();
  EXPECT_TRUE(submitted.empty());
  EXPECT_GT(batch.drafted, 0);
  expect_nothing_held(*scheduler);
  report();
}

TEST(Scheduler, EveryFamily) {
  Team team({-1});
  std::mt19937 random(27);
  for (const char* family :
       {"qwen3_5",      "gpt_oss",       "mixtral_window", "llama_dynamic",  "phi3_crossing",  "olmo2",
        "apertus",      "nemotron_bias", "qwen2_moe",      "glm4_moe",       "qwen3_5_moe",    "cohere2",
        "gpt_neox",     "lfm2",          "lfm2_moe",       "granite_hybrid", "falcon_h1",      "nemotron_h",
        "deepseek_v3",  "minicpm3",      "gemma4",         "gemma4_e2b",     "gemma4_moe",     "granite_swa",
        "phimoe",       "olmo",          "falcon_new",     "afmoe",          "falcon_h1_gate", "gpt2",
        "opt",          "bloom",         "lfm3",           "laguna",         "lara_mini",      "mamba",
        "falcon_mamba", "mamba2",        "jamba",          "kimi_linear",    "bailing_hybrid", "llama4",
        "cohere2_moe",  "mimo_v2_flash", "olmo_hybrid",    "zamba2",         "recurrent_gemma"}) {
    std::unique_ptr<Model> model;
    ASSERT_FALSE(load_model(std::string(PINION_TEST_DATA "/families/") + family, {}, &model));
    std::unique_ptr<Session> session;
    ASSERT_FALSE(open_session(*model, team, {.snapshot_bytes = 0}, &session));
    const int64_t context = session->sequence.cache.capacity;
    const auto scheduler =
        opened(*model, team, {.sequences = 5, .positions = context, .pass_rows = 20, .rows_beside_decode = 7});
    Batch batch{*scheduler};
    std::map<int64_t, TextCase> submitted;
    const std::vector<int32_t> prefix = random_text(random, model->config.vocab_size, 30).prompt;
    for (int i = 0; i < 20; ++i) {
      TextCase text = random_text(random, model->config.vocab_size, 30);
      if (i % 2) text.prompt.insert(text.prompt.begin(), prefix.begin(), prefix.end());
      text.prompt.resize(std::min<size_t>(text.prompt.size(), context));
      submitted[batch.submit(text, i % 3 > 0)] = text;
      scheduler->fixed_drafts = 4;
      step(*scheduler);
    }
    batch.finish();
    for (const auto& [id, text] : submitted) {
      SCOPED_TRACE(family);
      rewind(session->sequence, 0);
      expect_same_text(alone(*session, text), batch.results[id]);
    }
    EXPECT_EQ(batch.drafted > 0, !frequencies_follow_length(model->config)) << family;
    expect_nothing_held(*scheduler);
  }
}

// A request that does not fit beside the running ones waits, and is evaluated once.
TEST(Scheduler, NoRepeatedEvaluation) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 3, .positions = 768, .rows_beside_decode = 16});
  Batch batch{*scheduler};
  TextCase first = {.prompt = some_tokens(250, model->config.vocab_size),
                    .options = {.max_tokens = 100, .sampler = {}, .ignore_eos = true},
                    .stop_after = 1000};
  TextCase second = first;
  std::ranges::reverse(second.prompt);
  second.prompt.insert(second.prompt.end(), first.prompt.begin(), first.prompt.begin() + 150);
  const int64_t one = batch.submit(first), other = batch.submit(second);
  int64_t rows = 0;
  while (step(*scheduler)) {
    for (const Segment& segment : scheduler->segments) rows += segment.size();
  }
  EXPECT_EQ(batch.results[one].ids.size(), 100u);
  EXPECT_EQ(batch.results[other].ids.size(), 100u);
  EXPECT_LE(rows, 250 + 400 + 2 * 100 + 400);  // at most one repetition
}

TEST(Scheduler, LongestCachedPrefixIsUsed) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 2});
  Batch batch{*scheduler};
  TextCase text = {.prompt = some_tokens(200, model->config.vocab_size),
                   .options = {.max_tokens = 1, .sampler = {}, .ignore_eos = true},
                   .stop_after = 1000};
  for (const size_t differs : {50, 90, 150, 120}) {
    TextCase other = text;
    other.prompt[differs] += 1;
    batch.submit(other);
    batch.finish();
  }
  const int64_t id = batch.submit(text);
  batch.finish();
  EXPECT_EQ(batch.results[id].reused_tokens, 150);
  // The same prompt again, with no token to draw.
  text.options.max_tokens = 0;
  const int64_t again = batch.submit(text);
  batch.finish();
  EXPECT_EQ(batch.results[again].reused_tokens, 199);
  EXPECT_EQ(batch.results[again].ids.size(), 0u);
  EXPECT_EQ(batch.results[again].finish_reason, FinishReason::length);
  expect_nothing_held(*scheduler);
}

// Another request holds 300 tokens: 256 are shared, 44 copied; the last token is evaluated.
TEST(Scheduler, SharedPrefixIsEvaluatedOnce) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 3});
  Batch batch{*scheduler};
  TextCase text = {.prompt = some_tokens(301, model->config.vocab_size),
                   .options = {.max_tokens = 8, .sampler = {}, .ignore_eos = true},
                   .stop_after = 1000};
  const int64_t first = batch.submit(text);
  step(*scheduler), step(*scheduler), step(*scheduler);
  const int64_t beside = batch.submit(text);  // while the first one runs
  const int64_t passes = scheduler->passes;
  step(*scheduler);
  EXPECT_EQ(scheduler->running.back()->text.result.ids.size(), 1u);
  EXPECT_EQ(scheduler->passes - passes, 1);
  batch.finish();
  const int64_t later = batch.submit(text);
  batch.finish();
  EXPECT_EQ(batch.results[first].reused_tokens, 0);
  for (const int64_t id : {beside, later}) {
    EXPECT_EQ(batch.results[id].reused_tokens, 300);
    EXPECT_EQ(batch.results[id].prefilled_tokens, 1);
    EXPECT_EQ(batch.results[id].ids, batch.results[first].ids);
  }
  // Two simultaneous requests: the second waits for the prefix of the first.
  text.prompt[0] += 1;
  const int64_t one = batch.submit(text), other = batch.submit(text);
  batch.finish();
  EXPECT_EQ(batch.results[one].reused_tokens, 0);
  EXPECT_GE(batch.results[other].reused_tokens, 256);
  expect_nothing_held(*scheduler);
}

TEST(Scheduler, ConversationKeepsItsBlocks) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1, -1});
  const auto scheduler = opened(*model, team, {.sequences = 2});
  Batch batch{*scheduler};
  TextCase text = {.prompt = some_tokens(300, model->config.vocab_size),
                   .options = {.max_tokens = 8, .sampler = {}, .ignore_eos = true},
                   .stop_after = 1000};
  const int64_t first = batch.submit(text);
  batch.finish();
  const std::vector<int32_t> blocks = scheduler->prefix_cache.front().cache.blocks;
  const std::vector<int32_t>& answer = batch.results[first].ids;
  text.prompt.insert(text.prompt.end(), answer.begin(), answer.end());
  text.prompt.push_back(7);
  const int64_t second = batch.submit(text);
  batch.finish();
  EXPECT_EQ(batch.results[second].reused_tokens, 307);  // the last token of an answer is not evaluated
  ASSERT_EQ(scheduler->prefix_cache.size(), 1u);
  EXPECT_EQ(scheduler->prefix_cache.front().cache.blocks, blocks);
  expect_nothing_held(*scheduler);

  const auto alone = opened(*model, team, {.sequences = 1});
  Batch anew{*alone};
  const int64_t same = anew.submit(text);
  anew.finish();
  EXPECT_EQ(batch.results[second].ids, anew.results[same].ids);
}

TEST(Scheduler, PromptsDoNotDelayDecoding) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 3, .pass_rows = 64, .rows_beside_decode = 16});
  Batch batch{*scheduler};
  TextCase text = {
      .prompt = {5, 6, 7}, .options = {.max_tokens = 40, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  batch.submit(text);
  step(*scheduler);
  text.prompt = some_tokens(200, model->config.vocab_size);
  batch.submit(text);
  for (size_t i = 0; i < 12; ++i) {
    step(*scheduler);
    EXPECT_EQ(scheduler->running[0]->text.result.ids.size(), i + 2);  // one per pass
    EXPECT_EQ(std::ssize(scheduler->running[1]->sequence.ids),
              std::min<int64_t>(200, 16 * (static_cast<int64_t>(i) + 1)));
  }
  batch.finish();
}

// A pass may have more rows than the context has positions.
TEST(Scheduler, ShortContexts) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 12, .context = 30, .pass_rows = 200});
  Batch batch{*scheduler};
  TextCase text = {.prompt = some_tokens(25, model->config.vocab_size),
                   .options = {.max_tokens = 100, .sampler = {}, .ignore_eos = true},
                   .stop_after = 1000};
  for (int32_t i = 0; i < 12; ++i) {
    text.prompt[0] = i;
    batch.submit(text);
  }
  batch.finish();
  for (const auto& [id, result] : batch.results) {
    EXPECT_EQ(result.ids.size(), 6u);
    EXPECT_EQ(result.finish_reason, FinishReason::context);
  }
  EXPECT_EQ(batch.results.size(), 12u);
}

// Among thousands of requests only running ones reserve memory for their answers.
TEST(Scheduler, WaitingRequestsReserveNothing) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  const auto scheduler = opened(*model, team, {.sequences = 1});
  Batch batch{*scheduler};
  const TextCase text = {.prompt = some_tokens(4, model->config.vocab_size),
                         .options = {.max_tokens = 100, .sampler = {}, .ignore_eos = true},
                         .stop_after = 3};
  batch.submit(text), batch.submit(text);
  step(*scheduler);
  ASSERT_EQ(scheduler->waiting.size(), 1u);
  EXPECT_LT(scheduler->waiting.front()->text.history.capacity(), 100u);
  EXPECT_EQ(scheduler->waiting.front()->text.result.ids.capacity(), 0u);
  EXPECT_GE(scheduler->running.front()->text.history.capacity(), 104u);
  EXPECT_GE(scheduler->running.front()->text.result.ids.capacity(), 100u);
  batch.finish();
}

TEST(Scheduler, BadRequests) {
  const auto model = load_stories(Quant::w8a8);
  Team team({-1});
  std::unique_ptr<Scheduler> scheduler;
  EXPECT_EQ(open_scheduler(*model, team, {.sequences = 0}, &scheduler).message(),
            "sequences: out of range: want at least 1, have 0");
  EXPECT_EQ(open_scheduler(*model, team, {.sequences = 8, .pass_rows = 8}, &scheduler).message(),
            "rows of a pass: out of range: want more than the 8 sequences, have 8");
  EXPECT_EQ(open_scheduler(*model, team, {.positions = 100}, &scheduler).message(),
            "positions: out of range: want at least one context of 512, have 100");
  const Error e =
      open_scheduler(*model, team, {.sequences = 1000, .positions = int64_t{1} << 33, .pass_rows = 2000}, &scheduler);
  EXPECT_NE(e.message().find("session: too little memory for 8589934592 positions of 1000 sequences: want"),
            std::string::npos)
      << e.message();
  scheduler = opened(*model, team, {});
  int64_t id = 0;
  EXPECT_EQ(submit(*scheduler, {.prompt = {}}, &id).message(), "prompt: empty: want at least one token");
  EXPECT_EQ(submit(*scheduler, {.prompt = std::vector<int32_t>(513, 5)}, &id).message(),
            "prompt: too long: want at most 512 tokens (the context), have 513");
  EXPECT_EQ(submit(*scheduler, {.prompt = {5, 512}}, &id).message(),
            "token id: not in the vocabulary: want 0 to 511, have 512");
  EXPECT_EQ(submit(*scheduler, {.prompt = {5}, .options = {.sampler = {}, .logprobs = -1}}, &id).message(),
            "log probabilities: out of range: want at least 0, have -1");
  EXPECT_EQ(submit(*scheduler, {.prompt = {5}, .options = {.sampler = {.logit_bias = {{512, 1}}}}}, &id).message(),
            "logit bias: token id: not in the vocabulary: want 0 to 511, have 512");
  EXPECT_FALSE(cancel(*scheduler, 0));
  EXPECT_FALSE(step(*scheduler));
}

}  // namespace
}  // namespace pinion
