// Snapshots of a recurrent state: the tokens that a chat turn evaluates again, and equality of the bits.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "engine/runtime/load.h"
#include "engine/session/session.h"
#include "engine/session/session_image.h"
#include "engine/session/speculation.h"
#include "tests/engine/ids.h"

namespace pinion {
namespace {

// Token sequences as the chat templates of such models make them.
const Ids kAnswerBegins = {4, 5, 6};  // <|im_start|>, assistant, newline
const Ids kThinks = {7, 8};           // <think>, newline: at the end of a prompt, absent in later ones
const Ids kAnswerEnds = {9, 6};       // <|im_end|>, newline

Ids question(int32_t length, int32_t first) {
  Ids ids(static_cast<size_t>(length));
  std::iota(ids.begin(), ids.end(), first);
  for (int32_t& id : ids) id = 10 + id % 100;
  return ids;
}

struct Recurrent : testing::Test {
  std::unique_ptr<Model> model;
  Team team{{-1}};
  std::unique_ptr<Session> session;

  void SetUp() override { load("qwen3_5"); }

  void load(const std::string& family) {
    session.reset();
    ASSERT_EQ(load_model(PINION_TEST_DATA "/families/" + family, {}, &model).message(), "");
    open({});
  }
  void open(const SchedulerOptions& options) {
    session.reset();
    ASSERT_EQ(open_session(*model, team, options, &session).message(), "");
  }

  // Every pass of an answer has drafts, and some are accepted.
  void speculate() {
    open({});
    session->fixed_drafts = 3;
    session->speculates = true;
  }

  GenerateResult answer(const Ids& prompt, int64_t tokens = 20) {
    GenerateResult result;
    const GenerateOptions options = {.max_tokens = tokens, .sampler = {}, .ignore_eos = true};
    EXPECT_EQ(generate(*session, prompt, options, [](int32_t) { return true; }, &result).message(), "");
    EXPECT_EQ(result.reused_tokens + result.prefilled_tokens, std::ssize(prompt));
    return result;
  }

  // Compares with a new session.
  void expect_as_afresh(const Ids& prompt, const GenerateResult& result) {
    std::unique_ptr<Session> kept = std::move(session);
    open({});
    const GenerateResult afresh = answer(prompt, std::ssize(result.ids));
    EXPECT_EQ(afresh.prefilled_tokens, std::ssize(prompt));
    EXPECT_EQ(afresh.ids, result.ids);
    EXPECT_EQ(afresh.logits_hash, result.logits_hash);
    session = std::move(kept);
  }
};

TEST_F(Recurrent, ContinuedTurnEvaluatesNewTokensOnly) {
  Ids prompt = question(40, 0) + kAnswerBegins;
  int64_t held = 0;
  for (int32_t turn = 1; turn <= 4; ++turn) {
    const GenerateResult result = answer(prompt);
    EXPECT_EQ(result.reused_tokens, held) << turn;
    expect_as_afresh(prompt, result);
    held = std::ssize(session->sequence.ids);
    EXPECT_EQ(held, std::ssize(prompt) + 19) << "the last id was sampled, but not evaluated";
    prompt = prompt + result.ids + kAnswerEnds + question(turn == 2 ? 4 : 25, turn * 30) + kAnswerBegins;
  }
}

// The last accepted drafts are not in the state yet when the next turn, a snapshot or an image begins.
TEST_F(Recurrent, TurnsContinueAfterDrafts) {
  speculate();
  int64_t accepted = 0;
  for (int32_t round = 0; round < 6; ++round) {
    Ids prompt = question(12, round) + question(12, round) + kAnswerBegins;
    for (int32_t turn = 1; turn <= 4; ++turn) {
      const GenerateResult result = answer(prompt, 20 + round);
      expect_as_afresh(prompt, result);
      accepted += result.accepted;
      const int64_t held = std::ssize(session->sequence.ids);
      EXPECT_EQ(held, std::ssize(prompt) + 19 + round) << "the last id was sampled, but not evaluated";
      if (turn % 2 == 0) {
        std::unique_ptr<SessionImage> image;
        ASSERT_EQ(make_image(*session, &image).message(), "");
        std::vector<std::byte> bytes;
        for (const auto part : image->parts) bytes.insert(bytes.end(), part.begin(), part.end());
        answer(question(20, 0) + question(20, 0));
        ASSERT_EQ(restore_image(bytes, "image", session.get()).message(), "");
      }
      prompt = prompt + result.ids + kAnswerEnds + question(turn * 4, turn * 30) + kAnswerBegins;
      EXPECT_TRUE(turn == 1 || result.reused_tokens > 0);
    }
  }
  EXPECT_GT(accepted, 5);
}

// Each prompt contains the last answer without its thoughts and without <think>.
TEST_F(Recurrent, DroppedThoughtsKeepTheHistory) {
  Ids history = question(60, 0);
  Ids last;
  for (int32_t turn = 1; turn <= 4; ++turn) {
    const Ids prompt = history + kAnswerBegins + kThinks;
    const GenerateResult result = answer(prompt);
    EXPECT_GE(result.reused_tokens, std::ssize(last) - 16) << turn;
    expect_as_afresh(prompt, result);
    last = prompt;
    const Ids visible(result.ids.end() - 6, result.ids.end());
    history = history + kAnswerBegins + visible + kAnswerEnds + question(turn == 2 ? 2 : 20, turn * 30);
  }
}

// The question is shorter than the distance from a snapshot to the end of its prompt: the snapshot before the question
// is used.
TEST_F(Recurrent, ShortQuestionReusesASnapshot) {
  const Ids first = question(40, 0) + kAnswerBegins;
  const GenerateResult plain = answer(first);
  const Ids history = first + plain.ids + kAnswerEnds + question(3, 30);
  const GenerateResult thinking = answer(history + kAnswerBegins + kThinks);
  EXPECT_EQ(thinking.reused_tokens, std::ssize(first) + 19);
  const Ids next = history + kAnswerBegins + Ids{99, 98} + kAnswerEnds + question(30, 60) + kAnswerBegins + kThinks;
  EXPECT_EQ(answer(next).reused_tokens, std::ssize(first) + 19);
}

TEST_F(Recurrent, RepeatedPromptReusesASnapshot) {
  const Ids prompt = question(50, 3);
  const GenerateResult first = answer(prompt), again = answer(prompt);
  EXPECT_EQ(again.reused_tokens, 34);
  EXPECT_EQ(again.ids, first.ids);
  EXPECT_EQ(again.logits_hash, first.logits_hash);
}

// Another text cannot use the snapshots and drops them.
TEST_F(Recurrent, OtherTextDropsSnapshots) {
  const Ids prompt = question(50, 3), other = Ids{110} + prompt;
  const GenerateResult first = answer(prompt);
  const GenerateResult second = answer(other);
  EXPECT_EQ(second.reused_tokens, 0);
  expect_as_afresh(other, second);
  const GenerateResult third = answer(prompt);
  EXPECT_EQ(third.reused_tokens, 0);
  EXPECT_EQ(third.logits_hash, first.logits_hash);
}

TEST_F(Recurrent, LimitDropsTheOldestSnapshot) {
  const int64_t one = session->sequence.state.bytes();
  Ids prompt = question(40, 0);
  const auto take_turns = [&](int64_t limit_bytes) {
    open({.snapshot_bytes = limit_bytes});
    prompt = question(40, 0);
    for (int32_t turn = 1; turn <= 4; ++turn) {
      const GenerateResult result = answer(prompt, 5);
      EXPECT_LE(snapshot_bytes(session->snapshots), limit_bytes);
      prompt = prompt + result.ids + question(25, turn * 20);  // 30 more
    }
  };
  const auto positions = [&] {
    std::vector<int64_t> all;
    for (const auto& snapshot : session->sequence.snapshots.saved) {
      if (snapshot->memory.bytes > 0) all.push_back(snapshot->position);
    }
    return all;
  };
  take_turns(10 * one);
  EXPECT_EQ(positions(), (std::vector<int64_t>{24, 54, 84, 114}));
  EXPECT_EQ(snapshot_bytes(session->snapshots), 4 * one);
  take_turns(2 * one);
  EXPECT_EQ(positions(), (std::vector<int64_t>{84, 114}));
  take_turns(one);
  EXPECT_EQ(positions(), (std::vector<int64_t>{114}));
  prompt.resize(120);
  EXPECT_EQ(answer(prompt).reused_tokens, 114);
  take_turns(one - 1);
  EXPECT_EQ(positions(), (std::vector<int64_t>{}));
  prompt.resize(120);
  EXPECT_EQ(answer(prompt).reused_tokens, 0);
}

TEST_F(Recurrent, RewindsToASnapshotOrTheBeginning) {
  const auto vocab = static_cast<size_t>(model->config.vocab_size);
  const Ids ids = question(60, 0);
  const std::span<const int32_t> all = ids;
  std::vector<float> first(vocab), again(vocab);
  ASSERT_FALSE(evaluate(*session, all.first(20), false, nullptr));
  keep_snapshot(*session);
  keep_snapshot(*session);
  EXPECT_EQ(snapshot_bytes(session->snapshots), session->sequence.state.bytes()) << "one snapshot per position";
  ASSERT_FALSE(evaluate(*session, all.subspan(20), false, first.data()));
  EXPECT_EQ(rewind(session->sequence, 60), 60);
  EXPECT_EQ(rewind(session->sequence, 59), 20);
  EXPECT_EQ(session->sequence.ids.size(), 20u);
  ASSERT_FALSE(evaluate(*session, all.subspan(20), false, again.data()));
  EXPECT_EQ(std::memcmp(first.data(), again.data(), vocab * sizeof(float)), 0);
  EXPECT_EQ(rewind(session->sequence, 19), 0);
  EXPECT_TRUE(session->sequence.snapshots.saved.empty());
  ASSERT_FALSE(evaluate(*session, ids, false, again.data()));
  EXPECT_EQ(std::memcmp(first.data(), again.data(), vocab * sizeof(float)), 0);
}

// Models with attention only reuse any prefix without snapshots.
TEST_F(Recurrent, AttentionModelsReuseAnyPrefix) {
  load("qwen3");
  const Ids history = question(40, 0);
  const GenerateResult first = answer(history + kAnswerBegins + kThinks);
  EXPECT_EQ(first.reused_tokens, 0);
  EXPECT_EQ(answer(history + kAnswerBegins + Ids{99} + kAnswerEnds + question(9, 50)).reused_tokens,
            std::ssize(history + kAnswerBegins));
  EXPECT_EQ(snapshot_bytes(session->snapshots), 0);
  EXPECT_EQ(rewind(session->sequence, 7), 7);
}

// One of three layers attends.
TEST_F(Recurrent, CacheHoldsAttentionLayersOnly) {
  const Recurrence& d = model->config.recurrence;
  EXPECT_EQ(session->pool.shape.layers.size(), 1u);
  EXPECT_EQ(session->sequence.state.layers, 2);
  EXPECT_EQ(session->sequence.state.bytes(), 2 * 4 * (4 * round_up(d.channels(), 16) + d.value_heads * d.key_dim * 32));
}

// A convolution only: 3 taps of 36 channels in two layers, and the inputs of drafts.
TEST_F(Recurrent, ShortConvStateIsItsInputs) {
  load("lfm2");
  EXPECT_EQ(session->sequence.state.bytes(), 2 * 4 * 3 * 48);
  ASSERT_FALSE(allocate_state_drafts(5, &session->sequence.state));
  EXPECT_EQ(session->sequence.state.draft_bytes(), 2 * 4 * 5 * 48);
}

// Layers that attend and recur have both; layers that do neither have nothing.
TEST_F(Recurrent, CachesAndStatesHaveSeparateSlots) {
  load("falcon_h1");
  EXPECT_EQ(session->pool.shape.layers.size(), 2u);
  EXPECT_EQ(session->sequence.state.layers, 2);
  EXPECT_EQ(model->layers[1].slot, 1);
  EXPECT_EQ(model->layers[1].state_slot, 1);
  load("nemotron_h");  // M-M*-
  EXPECT_EQ(session->pool.shape.layers.size(), 1u);
  EXPECT_EQ(session->sequence.state.layers, 2);
  EXPECT_EQ(model->layers[2].state_slot, 1);
  EXPECT_EQ(model->layers[3].slot, 0);
  EXPECT_FALSE(model->layers[4].attends || model->layers[4].recurrent);
  EXPECT_EQ(model->layers[3][MatrixRole::up].weight.n, 0);
}

// Chat turns with and without drafts, for every kind of recurrent layer.
TEST_F(Recurrent, TurnsContinueInEveryKind) {
  for (const char* family :
       {"lfm2", "lfm2_moe", "granite_hybrid", "falcon_h1", "nemotron_h", "lfm3", "lara_mini", "mamba", "falcon_mamba",
        "mamba2", "jamba", "kimi_linear", "bailing_hybrid", "olmo_hybrid", "zamba2", "recurrent_gemma"}) {
    SCOPED_TRACE(family);
    load(family);
    for (const bool drafts : {false, true}) {
      if (drafts) speculate();
      const Ids prompt = question(40, 0);
      const GenerateResult first = answer(prompt, 9);
      const Ids next = prompt + first.ids + question(7, 50);
      const GenerateResult second = answer(next, 9);
      EXPECT_GE(second.reused_tokens, std::ssize(prompt) + std::ssize(first.ids) - 1);
      expect_as_afresh(next, second);
      const Ids other = prompt + question(7, 20);
      const GenerateResult third = answer(other, 9);
      EXPECT_GT(third.reused_tokens, 0) << "a snapshot";
      expect_as_afresh(other, third);
    }
  }
}

TEST_F(Recurrent, BarriersPerToken) {
  const GenerateResult result = answer(question(20, 0), 11);
  EXPECT_EQ(result.regions, 10);
  // A recurrent layer has 5: projections, state, out, gate and up, down; an attention layer as many. Then embedding,
  // head, end of the region.
  EXPECT_EQ(result.barriers, 10 * (3 * 5 + 3));
}

TEST(Snapshots, HandWorked) {
  RecurrentState state;
  state.layers = 1;
  state.shape = {.key_heads = 1, .value_heads = 1, .key_dim = 4, .value_dim = 16, .taps = 2};
  ASSERT_EQ(allocate_arena(state.bytes(), &state.memory).message(), "");
  const auto becomes = [&](float value) { std::fill_n(state.layer(0), state.layer_floats(), value); };
  SnapshotPool pool = {.limit_bytes = 2 * state.bytes()};
  Snapshots snapshots = {&pool};
  EXPECT_TRUE(can_take_snapshot(snapshots, state));
  take_snapshot(&snapshots, state, 0);
  EXPECT_TRUE(snapshots.saved.empty()) << "position 0 needs no snapshot";
  for (const int64_t position : {10, 20, 20, 30}) {
    becomes(static_cast<float>(position));
    take_snapshot(&snapshots, state, position);
  }
  ASSERT_EQ(snapshots.saved.size(), 2u) << "the oldest was evicted";
  EXPECT_EQ(snapshot_bytes(pool), 2 * state.bytes());
  EXPECT_EQ(restore_snapshot(&snapshots, 30, &state), 30) << "exactly there";
  EXPECT_EQ(*state.layer(0), 30);
  EXPECT_EQ(restore_snapshot(&snapshots, 29, &state), 20);
  EXPECT_EQ(*state.layer(0), 20);
  EXPECT_EQ(restore_snapshot(&snapshots, 30, &state), 20) << "later ones are dropped";
  EXPECT_EQ(restore_snapshot(&snapshots, 19, &state), 0) << "10 is gone";
  EXPECT_EQ(*state.layer(0), 0);
  EXPECT_EQ(snapshot_bytes(pool), 0);
  pool.limit_bytes = state.bytes() - 1;
  EXPECT_FALSE(can_take_snapshot(snapshots, state));
}

// The pool evicts across sequences, by use; an owner of an evicted snapshot goes back to an earlier one.
TEST(Snapshots, SequencesShareThem) {
  RecurrentState state;
  state.layers = 1;
  state.shape = {.key_heads = 1, .value_heads = 1, .key_dim = 4, .value_dim = 16, .taps = 2};
  ASSERT_EQ(allocate_arena(state.bytes(), &state.memory).message(), "");
  SnapshotPool pool = {.limit_bytes = 3 * state.bytes()};
  Snapshots first = {&pool}, second = {&pool};
  for (const int64_t position : {10, 20, 30}) {
    std::fill_n(state.layer(0), state.layer_floats(), static_cast<float>(position));
    take_snapshot(&first, state, position);
  }
  share_snapshots(first, 25, &second);
  EXPECT_EQ(snapshot_bytes(pool), 3 * state.bytes()) << "no copies";
  EXPECT_EQ(latest_snapshot(second, 100), 20);
  first.saved.clear();
  EXPECT_EQ(snapshot_bytes(pool), 2 * state.bytes()) << "30 had no other owner";
  EXPECT_EQ(restore_snapshot(&second, 15, &state), 10) << "drops 20, uses 10";
  take_snapshot(&first, state, 40);
  take_snapshot(&first, state, 50);
  take_snapshot(&first, state, 60);
  EXPECT_EQ(pool.evicted, 1);
  EXPECT_EQ(latest_snapshot(second, 100), 0) << "10 was the least recently used";
  EXPECT_EQ(restore_snapshot(&second, 100, &state), 0);
  EXPECT_EQ(*state.layer(0), 0);
  EXPECT_EQ(latest_snapshot(first, 59), 50);
}

}  // namespace
}  // namespace pinion
