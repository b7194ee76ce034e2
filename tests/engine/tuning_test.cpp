// Candidates of `pinion tune` on known boards, the choice among synthetic measurements, and the tune file.
#include "engine/measure/tuning.h"

#include <gtest/gtest.h>

#include "engine/measure/statistics.h"
#include "tests/engine/recorded.h"

namespace pinion {
namespace {

using Teams = std::vector<Cpus>;

TEST(CandidateTeams, Rk3588) {
  EXPECT_EQ(candidate_teams(recorded("rk3588")), Teams({{4, 5, 6, 7},  // the default
                                                        {4},
                                                        {4, 5},
                                                        {4, 5, 6},
                                                        {4, 5, 6, 7, 0, 1},
                                                        {4, 5, 6, 7, 0, 1, 2, 3}}));
}

TEST(CandidateTeams, CixP1) {
  EXPECT_EQ(candidate_teams(recorded("cix_p1")), Teams({{0, 5, 6, 7, 8, 9, 10, 11},
                                                        {0},
                                                        {0, 5},
                                                        {0, 5, 6, 7},
                                                        {0, 5, 6, 7, 8, 9},
                                                        {0, 5, 6, 7, 8, 9, 10, 11, 1, 2},
                                                        {0, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3, 4}}));
}

TEST(CandidateTeams, SnapdragonWithThreeKinds) {
  EXPECT_EQ(candidate_teams(recorded("snapdragon_1_3_4")),
            Teams({{7, 4, 5, 6}, {7}, {7, 4}, {7, 4, 5, 6, 0, 1}, {7, 4, 5, 6, 0, 1, 2, 3}}));
}

TEST(CandidateTeams, HybridWithSiblingThreads) {
  EXPECT_EQ(candidate_teams(recorded("x86_hybrid")), Teams({{0, 2, 4, 6},
                                                            {0},
                                                            {0, 2},
                                                            {0, 2, 4},
                                                            {0, 2, 4, 6, 1, 3, 5, 7},
                                                            {0, 2, 4, 6, 8, 9, 10, 11},
                                                            {0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15},
                                                            {0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 1, 3, 5, 7}}));
}

TEST(CandidateTeams, AtMostTheContainersQuota) {
  EXPECT_EQ(candidate_teams(recorded("x86_smt")), Teams({{0, 1}, {0}}));  // 2.5 CPUs of four cores
  EXPECT_EQ(candidate_teams(recorded("vm_2cores")), Teams({{0}}));        // 1.5
}

TEST(CandidateTeams, OnlyUsableCpus) {
  EXPECT_EQ(candidate_teams(recorded("rk3588", {1, 6, 7})), Teams({{6, 7}, {6}, {6, 7, 1}}));
  EXPECT_EQ(candidate_teams(recorded("x86_hybrid", {0, 1})), Teams({{0}, {0, 1}}));
}

TEST(CandidateChunks, OnlyChunksThatDiffer) {
  EXPECT_EQ(candidate_chunks(1024, 256), std::vector<int64_t>({256, 32, 64, 128, 512, 1024}));
  EXPECT_EQ(candidate_chunks(256, 256), std::vector<int64_t>({256, 32, 64, 128}));
  EXPECT_EQ(candidate_chunks(64, 256), std::vector<int64_t>({256, 32}));  // a chunk of 64 equals one of 256
  EXPECT_EQ(candidate_chunks(16, 256), std::vector<int64_t>({256}));
}

TEST(Median, OddEvenAndEmpty) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(median_of({}), 0);
}

Measured measured(int64_t size, std::vector<double> rates, bool is_default = false) {
  return {size, is_default, std::move(rates)};
}

TEST(BestOf, FastestByMedian) {
  // The means are 10, 14, 12.
  EXPECT_EQ(best_candidate(
                std::vector{measured(4, {10, 10, 10}, true), measured(2, {11, 11, 20}), measured(1, {12, 12, 12})}),
            2u);
}

TEST(BestOf, DefaultElseSmallestWithin2Percent) {
  EXPECT_EQ(best_candidate(std::vector{measured(4, {98.1}, true), measured(2, {98.5}), measured(8, {100})}), 0u);
  EXPECT_EQ(best_candidate(
                std::vector{measured(4, {97.9}, true), measured(2, {98.1}), measured(3, {99}), measured(8, {100})}),
            1u);
  EXPECT_EQ(best_candidate(std::vector{measured(4, {97.9}, true), measured(2, {97.9}), measured(8, {100})}), 2u);
  EXPECT_EQ(best_candidate(std::vector{measured(4, {50}, true), measured(2, {99}), measured(2, {100})}), 2u);
}

TEST(ClearlyBehind, BestRoundTenPercentBelow) {
  const std::vector all = {measured(4, {50, 50}, true), measured(2, {80, 89}), measured(1, {60, 91}),
                           measured(3, {100, 100}), measured(5, {})};
  const std::vector<bool> expected = {false, true, false, false, false};  // the default is always measured
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(is_clearly_behind(all[i], all), expected[i]) << i;
}

TEST(MachineKey, IncludesAllConditions) {
  const std::string key = machine_key("Some CPU", recorded("rk3588"));
  EXPECT_EQ(key, "Some CPU; CPUs 0-7; cores of kind 0: 4-7; cores of kind 1: 0-3; last-level caches: 3145728");
  EXPECT_NE(machine_key("Other CPU", recorded("rk3588")), key);
  EXPECT_NE(machine_key("Some CPU", recorded("rk3588", {0, 1, 2, 3, 4, 5, 6})), key);
  Topology changed = recorded("rk3588");
  changed.cpu_quota = 2;
  EXPECT_NE(machine_key("Some CPU", changed), key);
  changed.cpu_quota = 0;
  changed.last_level_cache_bytes = 1;
  EXPECT_NE(machine_key("Some CPU", changed), key);
}

TunedMachine some_machine(const std::string& name) {
  return {
      name,   {{4, 5, 6, 7}, 12.5, 10.25}, {{4, 5, 0}, 99.5, 88}, 128, "ahead", "Llama", "w8a8", "neon", "2026-11-21",
      "0.1.0"};
}

TEST(TuneFile, ReadsWhatItWrote) {
  const std::vector<TunedMachine> machines = {some_machine("one \"quoted\""), some_machine("two")};
  const std::string text = tune_file_text(machines);
  std::vector<TunedMachine> read;
  ASSERT_EQ(parse_tune_file(text, "F", &read).message(), "");
  EXPECT_EQ(tune_file_text(read), text);
  const TunedMachine* two = find_machine(read, "two");
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(two->decode.cpus, Cpus({4, 5, 6, 7}));
  EXPECT_EQ(two->decode.rate, 12.5);
  EXPECT_EQ(two->decode.default_rate, 10.25);
  EXPECT_EQ(two->prefill.cpus, Cpus({4, 5, 0}));
  EXPECT_EQ(two->prefill_chunk, 128);
  EXPECT_EQ(two->access, "ahead");
  EXPECT_EQ(two->date, "2026-11-21");
  EXPECT_EQ(find_machine(read, "three"), nullptr);
}

TEST(TuneFile, DefaultAccessPattern) {
  std::string text = tune_file_text(std::vector{some_machine("one")});
  const std::string field = "\"access\": \"ahead\",";
  text.erase(text.find(field), field.size());
  std::vector<TunedMachine> read;
  ASSERT_EQ(parse_tune_file(text, "F", &read).message(), "");
  EXPECT_EQ(read.at(0).access, "");
}

TEST(TuneFile, EveryPrefixIsRefused) {
  const std::string text = tune_file_text(std::vector{some_machine("one")});
  std::vector<TunedMachine> read;
  for (size_t size = 0; size + 1 < text.size(); ++size) {  // the final newline is optional
    EXPECT_TRUE(parse_tune_file(text.substr(0, size), "F", &read)) << size;
    EXPECT_TRUE(read.empty());
  }
}

TEST(TuneFile, WrongFieldsAreNamed) {
  const std::string text = tune_file_text(std::vector{some_machine("one")});
  const struct {
    const char *from, *to, *cause;
  } kCases[] = {
      {"\"format\": 1", "\"format\": 2", "another version"},
      {"\"format\": 1", "\"format\": \"1\"", "format"},
      {"\"format\"", "\"other\"", "format"},
      {"\"machines\"", "\"boards\"", "no list of machines"},
      {"\"machine\": \"one\"", "\"machine\": 1", "machine 0: machine"},
      {"\"decode\"", "\"decoding\"", "decode: cpus"},
      {"4,", "-4,", "cpus"},
      {"4,", "5000000000,", "cpus"},
      {"4,", "5,", "CPU listed twice"},
      {"12.5", "-12.5", "tokens_per_second"},
      {"12.5", "\"12.5\"", "tokens_per_second"},
      {"88.0", "null", "default_tokens_per_second"},
      {"\"prefill_chunk\": 128", "\"prefill_chunk\": 0", "prefill_chunk"},
      {"\"prefill_chunk\": 128", "\"prefill_chunk\": 65537", "prefill_chunk"},
      {"\"ahead\"", "1", "access"},
      {"\"date\"", "\"day\"", "date"},
  };
  std::vector<TunedMachine> read;
  for (const auto& test : kCases) {
    std::string bad = text;
    const size_t at = bad.find(test.from);
    ASSERT_NE(at, std::string::npos) << test.from;
    bad.replace(at, std::string(test.from).size(), test.to);
    const std::string message = parse_tune_file(bad, "F", &read).message();
    EXPECT_TRUE(message.starts_with("F: ")) << message;
    EXPECT_NE(message.find(test.cause), std::string::npos) << test.to << ": " << message;
    EXPECT_TRUE(read.empty());
  }
  for (const char* bad : {"[]", "1", "null", "{}", "{\"format\": 1, \"machines\": [1]}"}) {
    EXPECT_TRUE(parse_tune_file(bad, "F", &read)) << bad;
  }
}

TEST(TuneFile, CpusMustBeUsable) {
  EXPECT_FALSE(check_usable(some_machine("one"), recorded("rk3588")));
  const Error e = check_usable(some_machine("one"), recorded("rk3588", {4, 5, 6, 7}));
  EXPECT_EQ(e.message(), "tuned team: CPU not available to this process: want 4-7, have 0");
}

}  // namespace
}  // namespace pinion
