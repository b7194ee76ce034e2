// CPUs and chunk of a run: requested, tuned, default, in this order; contradictory options.
#include "engine/runtime/plan.h"

#include <gtest/gtest.h>

#include <iterator>

#include "engine/session/session.h"
#include "tests/engine/recorded.h"

namespace pinion {
namespace {

const Tuning kNoTuning = {};

Tuning tuned_for(std::vector<int32_t> decode, std::vector<int32_t> prefill, int64_t chunk) {
  Tuning tuning;
  tuning.machine = TunedMachine{.machine = "board",
                                .decode = {std::move(decode), 43.4, 38},
                                .prefill = {std::move(prefill), 500, 450},
                                .prefill_chunk = chunk,
                                .access = {},
                                .model = "demo",
                                .quant = "w8a8",
                                .kernels = "neon",
                                .date = "2026-11-21",
                                .version = "0.1.0"};
  return tuning;
}

Plan planned(const PlanOptions& options, const Topology& topology, const Tuning& tuning = kNoTuning) {
  Plan plan;
  EXPECT_EQ(make_plan(options, topology, tuning, &plan).message(), "");
  return plan;
}

TEST(Plan, DefaultTeam) {
  const Plan plan = planned({}, recorded("rk3588"));
  EXPECT_EQ(plan.decode.cpus, Cpus({4, 5, 6, 7}));
  EXPECT_EQ(plan.prefill.cpus, plan.decode.cpus);
  EXPECT_EQ(plan.decode.sme.size(), 4u);
  EXPECT_EQ(plan.decode.slowness, std::vector<double>(4, 1.0));
  EXPECT_EQ(plan.prefill_chunk, kDefaultPrefillChunk);
  EXPECT_TRUE(plan.why_team.starts_with("default: ")) << plan.why_team;
  EXPECT_EQ(plan.why_chunk, "default");
}

TEST(Plan, TunedTeamsAndChunk) {
  const Tuning tuning = tuned_for({4, 5}, {4, 5, 6, 7, 0}, 128);
  const Plan plan = planned({}, recorded("rk3588"), tuning);
  EXPECT_EQ(plan.decode.cpus, Cpus({4, 5}));
  EXPECT_EQ(plan.prefill.cpus, Cpus({4, 5, 6, 7, 0}));
  EXPECT_GT(plan.prefill.slowness.back(), 1.0) << "a small core";
  EXPECT_EQ(plan.prefill_chunk, 128);
  EXPECT_EQ(plan.why_team, "tuned: 43.4 tokens/s where the default team had 38, measured on 2026-11-21 with demo w8a8");
  EXPECT_EQ(plan.why_chunk, "tuned");
}

TEST(Plan, TunedAccessPattern) {
  Tuning tuning = tuned_for({4, 5}, {4, 5}, 128);
  const AccessPattern& last = *std::rbegin(kAccessPatterns);
  tuning.machine->access = last.name;
  EXPECT_EQ(kAccessPatterns[planned({}, recorded("rk3588"), tuning).access].name, last.name);
  for (const char* unknown : {"", "sideways"}) {
    tuning.machine->access = unknown;
    EXPECT_EQ(planned({}, recorded("rk3588"), tuning).access, default_access_pattern());
  }
  EXPECT_EQ(planned({}, recorded("rk3588")).access, default_access_pattern());
}

TEST(Plan, OptionsOverrideTuning) {
  const Tuning tuning = tuned_for({4, 5}, {4, 5, 6, 7, 0}, 128);
  const Plan cores = planned({.cpus = {6, 0}}, recorded("rk3588"), tuning);
  EXPECT_EQ(cores.decode.cpus, Cpus({6, 0}));
  EXPECT_EQ(cores.prefill.cpus, Cpus({6, 0}));
  EXPECT_EQ(cores.why_team, "--cores");
  EXPECT_EQ(cores.prefill_chunk, 128);
  const Plan chunk = planned({.prefill_chunk = 7}, recorded("rk3588"), tuning);
  EXPECT_EQ(chunk.prefill_chunk, 7);
  EXPECT_EQ(chunk.why_chunk, "--prefill-chunk");
  EXPECT_EQ(chunk.decode.cpus, Cpus({4, 5}));
}

TEST(Plan, ThreadsShortenOrExtendTheTeam) {
  const Topology board = recorded("rk3588");
  EXPECT_EQ(planned({.threads = 2}, board).decode.cpus, Cpus({4, 5}));
  EXPECT_EQ(planned({.threads = 6}, board).decode.cpus, Cpus({4, 5, 6, 7, 0, 1})) << "other cores, fastest first";
  EXPECT_EQ(planned({.cpus = {1, 0, 7}, .threads = 2}, board).decode.cpus, Cpus({1, 0}));
  EXPECT_EQ(planned({.cpus = {1, 0, 7}, .threads = 3}, board).decode.cpus, Cpus({1, 0, 7}));
  EXPECT_EQ(planned({.threads = 1}, board, tuned_for({6, 7}, {4}, 128)).decode.cpus, Cpus({6})) << "the tuned team";
  EXPECT_EQ(planned({.threads = 9}, board).decode.cpus, Cpus(9, -1)) << "more than cores: unpinned";
  EXPECT_EQ(planned({.threads = 2}, board).why_team, "--threads");
}

TEST(Plan, MoreThreadsThanNamedCores) {
  Plan plan;
  const Error e = make_plan({.cpus = {4, 5}, .threads = 3}, recorded("rk3588"), kNoTuning, &plan);
  EXPECT_EQ(e.message(), "--threads: more threads than cores: want at most 2, have 3");
}

}  // namespace
}  // namespace pinion
