// What a pass looks like inside: the layer where two runs part, and how wide inputs are.
#include "engine/forward/trace.h"
#include "engine/runtime/load.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "engine/session/session.h"

namespace pinion {
namespace {

struct TracedRun {
  std::unique_ptr<Model> model;
  Team team{{-1, -1}};
  std::unique_ptr<Session> session;
  Trace trace{0};
  std::vector<float> logits;

  void open(Quant quant, int64_t chunk, const char* folder = PINION_TEST_DATA "/stories260k") {
    LoadOptions options;
    options.quant = quant;
    ASSERT_EQ(load_model(folder, options, &model).message(), "");
    SessionOptions session_options;
    session_options.capacity = 64;
    session_options.prefill_chunk = chunk;
    ASSERT_EQ(open_session(*model, team, session_options, &session).message(), "");
    trace = Trace(model->config.layers);
    session->trace = &trace;
    logits.resize(static_cast<size_t>(model->config.vocab_size));
  }

  void take(std::vector<int32_t> ids) { ASSERT_EQ(evaluate(*session, ids, false, logits.data()).message(), ""); }
};

const std::vector<int32_t> kIds = {1, 403, 407, 261, 378, 9, 17, 300, 2, 55};

TEST(Trace, FindsTheLayerWhereTwoRunsPart) {
  TracedRun plain, other;
  plain.open(Quant::w8a8, 4);
  other.open(Quant::w8a8, 4);
  plain.take(kIds);
  other.take(kIds);
  EXPECT_EQ(first_difference(plain.trace, other.trace), -1);

  TracedRun changed;
  changed.open(Quant::w8a8, 4);
  const float* norm = changed.model->layers[3].attention_norm.weight;
  std::vector<float> moved(norm, norm + changed.model->config.hidden_size);
  moved[7] = moved[7] * 1.5f + 1;
  changed.model->layers[3].attention_norm.weight = moved.data();
  changed.take(kIds);
  EXPECT_EQ(first_difference(plain.trace, changed.trace), 3);
}

TEST(Trace, DoesNotDependOnTheChunk) {
  TracedRun at_once, by_one;
  at_once.open(Quant::w8a8, 64);
  by_one.open(Quant::w8a8, 1);
  at_once.take(kIds);
  by_one.take(kIds);
  EXPECT_EQ(first_difference(at_once.trace, by_one.trace), -1);
}

// Where attention and the mlp read the same stream, both by one norm or each by its own.
TEST(Trace, OfParallelBranches) {
  const std::vector<int32_t> ids = {1, 40, 73, 61, 78, 9, 17, 30, 2, 55};
  for (const char* folder : {PINION_TEST_DATA "/families/phi", PINION_TEST_DATA "/families/gpt_neox"}) {
    TracedRun at_once, by_one;
    at_once.open(Quant::w8a8, 64, folder);
    by_one.open(Quant::w8a8, 1, folder);
    at_once.take(ids);
    by_one.take(ids);
    EXPECT_EQ(first_difference(at_once.trace, by_one.trace), -1);
    EXPECT_FALSE(by_one.trace.first_unfit);
    for (const auto& layer : by_one.trace.inputs) {
      for (Stage stage : {Stage::qkv, Stage::o, Stage::gate_up, Stage::down}) {
        EXPECT_EQ(layer[static_cast<size_t>(stage)].rows, 10);
      }
    }
    Layer& layer = by_one.model->layers[1];
    const std::vector<float> unfit(static_cast<size_t>(by_one.model->config.hidden_size), std::nanf(""));
    Norm& of_mlp = layer.mlp_norm.weight ? layer.mlp_norm : layer.attention_norm;
    const char* place = layer.mlp_norm.weight ? "first from layer 1, down;" : "first from layer 1, o;";
    of_mlp.weight = unfit.data();
    const std::string message = evaluate(*by_one.session, ids, false, by_one.logits.data()).message();
    EXPECT_NE(message.find(place), std::string::npos) << message;
  }
}

TEST(Trace, OfLatentAttention) {
  TracedRun at_once, by_one;
  at_once.open(Quant::w8a8, 64, PINION_TEST_DATA "/families/minicpm3");
  by_one.open(Quant::w8a8, 1, PINION_TEST_DATA "/families/minicpm3");
  const std::vector<int32_t> ids = {1, 40, 73, 61, 78, 9, 17, 30, 2, 55};
  at_once.take(ids);
  by_one.take(ids);
  EXPECT_EQ(first_difference(at_once.trace, by_one.trace), -1);
  for (const auto& layer : by_one.trace.inputs) {
    for (Stage stage : {Stage::qkv, Stage::q_latent, Stage::kv_latent, Stage::o, Stage::gate_up, Stage::down}) {
      EXPECT_EQ(layer[static_cast<size_t>(stage)].rows, 10);
    }
  }
}

// Small products beside the branches, and what a layer's own embedding goes through.
TEST(Trace, OfSeveralStreams) {
  TracedRun at_once, by_one;
  at_once.open(Quant::w8a8, 64, PINION_TEST_DATA "/families/gemma3n");
  by_one.open(Quant::w8a8, 1, PINION_TEST_DATA "/families/gemma3n");
  const std::vector<int32_t> ids = {1, 40, 73, 61, 78, 9, 17, 30, 2, 55};
  at_once.take(ids);
  by_one.take(ids);
  EXPECT_EQ(first_difference(at_once.trace, by_one.trace), -1);
  for (const auto& layer : by_one.trace.inputs) {
    for (Stage stage : {Stage::qkv, Stage::laurel, Stage::o, Stage::down, Stage::layer_gate, Stage::layer_out}) {
      EXPECT_EQ(layer[static_cast<size_t>(stage)].rows, 10);
    }
  }
  const std::vector<float> unfit(static_cast<size_t>(by_one.model->config.hidden_size), std::nanf(""));
  by_one.model->layers[1].layer_out_norm.weight = unfit.data();  // into the other streams, from which layer 2's follows
  const std::string message = evaluate(*by_one.session, ids, false, by_one.logits.data()).message();
  EXPECT_NE(message.find("first from layer 2, o;"), std::string::npos) << message;
}

TEST(Trace, LooksAtTheInputsOfSingleRows) {
  for (Quant quant : {Quant::none, Quant::w8a8}) {
    TracedRun run;
    run.open(quant, 64);
    run.take(kIds);
    EXPECT_EQ(run.trace.inputs[0][static_cast<size_t>(Stage::down)].rows, 0);
    run.take({5});
    run.take({6});
    for (const auto& layer : run.trace.inputs) {
      for (Stage stage : {Stage::qkv, Stage::o, Stage::gate_up, Stage::down}) {
        const Spread& spread = layer[static_cast<size_t>(stage)];
        EXPECT_EQ(spread.rows, 2);
        EXPECT_GE(spread.worst, spread.sum / 2);
        EXPECT_LE(spread.worst, std::sqrt(172.0));  // one element of all: the square root of their number
        EXPECT_GT(spread.sum, 2);
      }
    }
  }
}

// A norm weight that is NaN makes the numbers after it NaN, in every arithmetic.
TEST(Trace, NamesTheStageWhereNumbersStopBeingNumbers) {
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    TracedRun run;
    run.open(quant, 4);
    run.take(kIds);
    const std::vector<float> right = run.logits;
    Layer& layer = run.model->layers[3];
    std::vector<float> unfit(static_cast<size_t>(run.model->config.hidden_size), std::nanf(""));
    const auto message_with = [&](const float** norm) {
      const float* const before = std::exchange(*norm, unfit.data());
      const Error e = evaluate(*run.session, kIds, false, run.logits.data());
      *norm = before;
      return e.message();
    };
    for (const auto& [norm, place] : {std::pair{&layer.attention_norm.weight, "first from layer 3, o;"},
                                      {&layer.mlp_norm.weight, "first from layer 3, down;"},
                                      {&run.model->final_norm.weight, "first from head;"}}) {
      EXPECT_NE(message_with(norm).find(place), std::string::npos) << message_with(norm);
      EXPECT_TRUE(run.session->sequence.ids.empty()) << "what it held is not to be used";
      run.take(kIds);
      EXPECT_EQ(run.logits, right);
    }
    EXPECT_EQ(run.session->trace, &run.trace);
    unfit.assign(unfit.size(), std::numeric_limits<float>::infinity());
    EXPECT_NE(message_with(&layer.mlp_norm.weight).find("first from layer 3, down;"), std::string::npos);
  }
}

}  // namespace
}  // namespace pinion
