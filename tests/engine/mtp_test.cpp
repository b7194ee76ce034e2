// Drafts from a checkpoint's own MTP layer: which tokens and hidden states it reads, that it may be wrong, or gone, and
// the text stays the same.
#include <gtest/gtest.h>

#include <random>

#include "engine/runtime/load.h"
#include "engine/session/generate.h"
#include "engine/session/speculation.h"
#include "tests/engine/made_mtp.h"
#include "tests/engine/texts.h"

namespace pinion {
namespace {

const std::string kFamilies = PINION_TEST_DATA "/families/";

// A model, its MTP layer, and sessions of both.
struct Pair {
  std::unique_ptr<Model> model, layer;
  Team team{{-1}};
  std::unique_ptr<Session> session;
  Speculation speculation;

  void load(const std::string& folder, Quant quant) {
    ASSERT_EQ(load_model(folder, {.quant = quant}, &model).message(), "");
    ASSERT_EQ(load_mtp(folder, {.quant = quant}, *model, &layer).message(), "");
  }

  void open(SessionOptions options) {
    options.drafts = kMostDrafts;
    ASSERT_EQ(open_session(*model, team, options, &session).message(), "");
    auto drafting = std::make_unique<DraftModel>();
    ASSERT_EQ(open_session(*layer, team, options, &drafting->session).message(), "");
    speculation.model = std::move(drafting);
  }

  GenerateResult run(const TextCase& c, bool speculates) {
    session->speculation = speculates ? &speculation : nullptr;
    GenerateResult result;
    int64_t seen = 0;
    const Error e = generate(*session, c.prompt, c.options, [&](int32_t) { return ++seen < c.stop_after; }, &result);
    EXPECT_FALSE(e) << e.message();
    return result;
  }
};

void expect_all_accepted(MadeFrom from, Quant quant) {
  const TempFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_made(folder, from));
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.load(folder.string(), quant));
  std::mt19937 random(31);
  int64_t drafted = 0;
  for (const int64_t chunk : {16, 17, 256}) {
    ASSERT_NO_FATAL_FAILURE(pair.open({.prefill_chunk = chunk, .keeps_hidden = true}));
    std::vector<int32_t> last;
    for (int i = 0; i < 40; ++i) {
      TextCase c = random_text(random, kMadeVocab, 60);
      c.options.ignore_eos = true;
      c.stop_after = 1000;
      if (from == MadeFrom::hidden) c.options.sampler = {};  // the circle
      if (i % 3 == 1) c.prompt.insert(c.prompt.begin(), last.begin(), last.end());                    // a turn more
      if (i % 3 == 2) c.prompt.insert(c.prompt.begin(), last.begin(), last.begin() + std::ssize(last) / 2);  // taken back
      pair.speculation.depth.always = 1 + i % kMostDrafts;
      const GenerateResult with = pair.run(c, true);
      EXPECT_EQ(with.accepted, with.drafted);
      drafted += with.drafted;
      last = c.prompt;
      last.insert(last.end(), with.ids.begin(), with.ids.end());
      expect_same_text(pair.run(c, false), with);
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(drafted, 1000);
}

// It reads the token that was drawn last, and finds what the model will: every draft is accepted, at any temperature.
TEST(Mtp, ReadsTheNextToken) {
  expect_all_accepted(MadeFrom::token, Quant::none);
}

// It reads the hidden state before that token, and of a draft its own.
TEST(Mtp, ReadsTheHiddenStateBeforeIt) {
  for (const Quant quant : {Quant::none, Quant::w8a8}) expect_all_accepted(MadeFrom::hidden, quant);
}

// Random weights: nearly every draft is wrong.
TEST(Mtp, ChangesNothing) {
  std::mt19937 random(32);
  for (const char* family : {"qwen3_5_mtp", "qwen3_5_mtp_beside_vision_packed"}) {
    for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
      for (const bool keeps_hidden : {true, false}) {
        Pair pair;
        ASSERT_NO_FATAL_FAILURE(pair.load(kFamilies + family, quant));
        ASSERT_NO_FATAL_FAILURE(pair.open({.prefill_chunk = 24, .keeps_hidden = keeps_hidden}));
        std::vector<int32_t> last;
        int64_t drafted = 0;
        for (int i = 0; i < 24; ++i) {
          TextCase c = random_text(random, pair.model->config.vocab_size, 40);
          const auto kept = below(random, 3) * last.size() / 2;
          c.prompt.insert(c.prompt.begin(), last.begin(), last.begin() + static_cast<std::ptrdiff_t>(kept));
          if (std::ssize(c.prompt) > 150) c.prompt.resize(5);
          pair.speculation.depth.always = i % 4 == 0 ? 0 : 1 + i % kMostDrafts;
          const GenerateResult with = pair.run(c, true);
          const GenerateResult alone = pair.run(c, false);
          expect_same_text(alone, with);
          drafted += with.drafted;
          last = c.prompt;
          last.insert(last.end(), with.ids.begin(), with.ids.end());
          if (HasFailure()) return;
        }
        EXPECT_GT(drafted, 100);
      }
    }
  }
}

// The logits behind a text, whatever happened before: bit for bit those of a layer that read it at once.
std::vector<float> draft_logits(DraftModel& model, const std::vector<int32_t>& text) {
  begin_drafts(model, text, {});
  bool found = false;
  int32_t id = 0;
  double likely = 0;
  EXPECT_FALSE(next_draft(model, &found, &id, &likely));
  return model.logits;
}

TEST(Mtp, WrongDraftsLeaveNothingBehind) {
  std::mt19937 random(33);
  Pair pair, fresh;
  for (Pair* one : {&pair, &fresh}) ASSERT_NO_FATAL_FAILURE(one->load(kFamilies + "qwen3_5_mtp", Quant::w8a8));
  for (int i = 0; i < 12; ++i) {
    ASSERT_NO_FATAL_FAILURE(pair.open({.prefill_chunk = 16 + i, .keeps_hidden = true}));
    ASSERT_NO_FATAL_FAILURE(fresh.open({.prefill_chunk = 256, .keeps_hidden = true}));
    TextCase c = random_text(random, pair.model->config.vocab_size, 40);
    c.options.ignore_eos = true;
    c.stop_after = 1000;
    pair.speculation.depth.always = 1 + i;
    std::vector<int32_t> text = c.prompt;
    for (int turn = 0; turn < 3; ++turn) {  // each goes on where the last ended
      c.prompt = text;
      const GenerateResult with = pair.run(c, true);
      EXPECT_LT(with.accepted, with.drafted);
      text.insert(text.end(), with.ids.begin(), with.ids.end());
    }
    // generate() leaves the last token unread.
    fresh.session->speculation = &fresh.speculation;
    const std::span<const int32_t> read = std::span(text).first(text.size() - 1);
    ASSERT_FALSE(evaluate(*fresh.session, read, false, nullptr));
    EXPECT_EQ(draft_logits(*pair.speculation.model, text), draft_logits(*fresh.speculation.model, text));
  }
}

// Texts that it did not follow: it begins anew, with zeros for the hidden states that are gone.
TEST(Mtp, MayMissAText) {
  Pair pair;
  ASSERT_NO_FATAL_FAILURE(pair.load(kFamilies + "qwen3_5_mtp", Quant::w8a8));
  ASSERT_NO_FATAL_FAILURE(pair.open({.prefill_chunk = 16, .keeps_hidden = true}));
  pair.speculation.depth.always = 3;
  TextCase c = {.prompt = {}, .options = {.max_tokens = 8, .sampler = {}, .ignore_eos = true}, .stop_after = 1000};
  for (int32_t i = 0; i < 60; ++i) c.prompt.push_back(4 + i * i % 100);
  pair.run(c, false);
  c.prompt.push_back(7);
  const GenerateResult with = pair.run(c, true);
  EXPECT_GT(with.drafted, 0);
  expect_same_text(pair.run(c, false), with);
  EXPECT_GT(std::ssize(pair.speculation.model->session->sequence.ids), std::ssize(c.prompt));
}

}  // namespace
}  // namespace pinion
