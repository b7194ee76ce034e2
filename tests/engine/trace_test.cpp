// Traces of passes: the first layer where two runs differ, and outliers of inputs.
#include "engine/forward/probes.h"
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
    SchedulerOptions session_options;
    session_options.context = 64;
    session_options.pass_rows = chunk;
    ASSERT_EQ(open_session(*model, team, session_options, &session).message(), "");
    trace = Trace(model->config.layers);
    session->trace = &trace;
    logits.resize(static_cast<size_t>(model->config.vocab_size));
  }

  void take(std::vector<int32_t> ids) { ASSERT_EQ(evaluate(*session, ids, false, logits.data()).message(), ""); }
};

const std::vector<int32_t> kIds = {1, 403, 407, 261, 378, 9, 17, 300, 2, 55};

TEST(Trace, FindsTheFirstDifferentLayer) {
  TracedRun plain, other;
  plain.open(Quant::w8a8, 4);
  other.open(Quant::w8a8, 4);
  plain.take(kIds);
  other.take(kIds);
  EXPECT_EQ(first_difference(plain.trace, other.trace), -1);

  TracedRun changed;
  changed.open(Quant::w8a8, 4);
  const float* norm = changed.model->layers[3][VectorRole::attention_norm].weight;
  std::vector<float> moved(norm, norm + changed.model->config.hidden_size);
  moved[7] = moved[7] * 1.5f + 1;
  changed.model->layers[3][VectorRole::attention_norm].weight = moved.data();
  changed.take(kIds);
  EXPECT_EQ(first_difference(plain.trace, changed.trace), 3);
}

TEST(Trace, IndependentOfPrefillChunk) {
  TracedRun at_once, by_one;
  at_once.open(Quant::w8a8, 64);
  by_one.open(Quant::w8a8, 1);
  at_once.take(kIds);
  by_one.take(kIds);
  EXPECT_EQ(first_difference(at_once.trace, by_one.trace), -1);
}

// Parallel branches, with a shared norm and with two.
TEST(Trace, ParallelBranches) {
  const std::vector<int32_t> ids = {1, 40, 73, 61, 78, 9, 17, 30, 2, 55};
  for (const char* folder : {PINION_TEST_DATA "/families/phi", PINION_TEST_DATA "/families/gpt_neox"}) {
    TracedRun at_once, by_one;
    at_once.open(Quant::w8a8, 64, folder);
    by_one.open(Quant::w8a8, 1, folder);
    at_once.take(ids);
    by_one.take(ids);
    EXPECT_EQ(first_difference(at_once.trace, by_one.trace), -1);
    EXPECT_FALSE(by_one.trace.first_non_finite);
    for (const auto& layer : by_one.trace.inputs) {
      for (Stage stage : {Stage::qkv, Stage::o, Stage::gate_up, Stage::down}) {
        EXPECT_EQ(layer[static_cast<size_t>(stage)].rows, 10);
      }
    }
    Layer& layer = by_one.model->layers[1];
    const std::vector<float> nan_weights(static_cast<size_t>(by_one.model->config.hidden_size), std::nanf(""));
    Vector& of_mlp =
        layer[VectorRole::mlp_norm].weight ? layer[VectorRole::mlp_norm] : layer[VectorRole::attention_norm];
    const char* place = layer[VectorRole::mlp_norm].weight ? "first from layer 1, down;" : "first from layer 1, o;";
    of_mlp.weight = nan_weights.data();
    const std::string message = evaluate(*by_one.session, ids, false, by_one.logits.data()).message();
    EXPECT_NE(message.find(place), std::string::npos) << message;
  }
}

TEST(Trace, LatentAttention) {
  TracedRun at_once, by_one;
  at_once.open(Quant::w8a8, 64, PINION_TEST_DATA "/families/minicpm3");
  by_one.open(Quant::w8a8, 1, PINION_TEST_DATA "/families/minicpm3");
  const std::vector<int32_t> ids = {1, 40, 73, 61, 78, 9, 17, 30, 2, 55};
  at_once.take(ids);
  by_one.take(ids);
  EXPECT_EQ(first_difference(at_once.trace, by_one.trace), -1);
  for (const auto& layer : by_one.trace.inputs) {
    for (Stage stage : {Stage::qkv, Stage::q_latent, Stage::o, Stage::gate_up, Stage::down}) {
      EXPECT_EQ(layer[static_cast<size_t>(stage)].rows, 10);
    }
  }
}

// The inputs of Laurel and of the per-layer embeddings' matrices.
TEST(Trace, Altup) {
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
  const std::vector<float> nan_weights(static_cast<size_t>(by_one.model->config.hidden_size), std::nanf(""));
  // Reaches all AltUp inputs but the first, from which the input of layer 2 is predicted.
  by_one.model->layers[1][VectorRole::layer_out_norm].weight = nan_weights.data();
  const std::string message = evaluate(*by_one.session, ids, false, by_one.logits.data()).message();
  EXPECT_NE(message.find("first from layer 2, o;"), std::string::npos) << message;
}

TEST(Trace, RecordsInputsOfSingleRows) {
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
        EXPECT_LE(spread.worst, std::sqrt(172.0));  // the value for a single nonzero element
        EXPECT_GT(spread.sum, 2);
      }
    }
  }
}

// A NaN in a norm's weights makes all later numbers NaN in every mode.
TEST(Trace, NamesTheFirstNonFiniteStage) {
  for (const Quant quant : {Quant::none, Quant::w8a8, Quant::w4a8}) {
    TracedRun run;
    run.open(quant, 4);
    run.take(kIds);
    const std::vector<float> right = run.logits;
    Layer& layer = run.model->layers[3];
    std::vector<float> nan_weights(static_cast<size_t>(run.model->config.hidden_size), std::nanf(""));
    const auto message_with = [&](const float** norm) {
      const float* const before = std::exchange(*norm, nan_weights.data());
      const Error e = evaluate(*run.session, kIds, false, run.logits.data());
      *norm = before;
      return e.message();
    };
    for (const auto& [norm, place] : {std::pair{&layer[VectorRole::attention_norm].weight, "first from layer 3, o;"},
                                      {&layer[VectorRole::mlp_norm].weight, "first from layer 3, down;"},
                                      {&run.model->final_norm.weight, "first from head;"}}) {
      EXPECT_NE(message_with(norm).find(place), std::string::npos) << message_with(norm);
      EXPECT_TRUE(run.session->sequence.ids.empty()) << "the sequence is discarded";
      run.take(kIds);
      EXPECT_EQ(run.logits, right);
    }
    EXPECT_EQ(run.session->trace, &run.trace);
    nan_weights.assign(nan_weights.size(), std::numeric_limits<float>::infinity());
    EXPECT_NE(message_with(&layer[VectorRole::mlp_norm].weight).find("first from layer 3, down;"), std::string::npos);
  }
}

}  // namespace
}  // namespace pinion
