// pinion bench, inspect and cpu: the fields that scripts read.
#include <sstream>

#include "tests/apps/program.h"

namespace pinion {
namespace {

TEST(Bench, JsonHasOneRecordATest) {
  const json records = run_json(
      {"bench", "--model", kStories, "-p", "16", "-n", "4", "-r", "2", "-t", "1,2", "-d", "0,32", "-o", "json"});
  std::vector<std::string> tests;
  for (const json& record : records) {
    tests.push_back(record["test"]);
    for (const char* field :
         {"tokens_per_second_mean", "tokens_per_second_stddev", "bytes_per_token", "roof_gb_per_s"}) {
      EXPECT_TRUE(record[field].is_number()) << field;
    }
    for (const char* field : {"model", "quant", "kv", "kernels", "machine", "compiler", "version"}) {
      EXPECT_TRUE(record[field].is_string()) << field;
    }
    const bool is_decode = record["test"].get<std::string>().starts_with("tg");
    EXPECT_EQ(record["roof_share"].is_number(), is_decode);
    if (!is_decode) continue;
    const double share = record["bytes_per_token"].get<double>() * record["tokens_per_second_mean"].get<double>() /
                         (record["roof_gb_per_s"].get<double>() * 1e9);
    EXPECT_NEAR(record["roof_share"].get<double>() / share, 1.0, 1e-9);
  }
  const std::vector<std::string> once = {"pp16", "tg4", "pp16@d32", "tg4@d32"};
  std::vector<std::string> expected = once;
  expected.insert(expected.end(), once.begin(), once.end());
  EXPECT_EQ(tests, expected);
  EXPECT_EQ(records[0]["threads"], 1);
  EXPECT_EQ(records[4]["threads"], 2);
  EXPECT_GT(records[3]["bytes_per_token"], records[1]["bytes_per_token"]);
}

TEST(Bench, SyntheticNeedsNoWeights) {
  const Folder folder;
  fs::copy_file(kStories + "/config.json", folder / "config.json");
  const Outcome outcome = run_pinion(
      {"bench", "--synthetic", folder / "config.json", "-p", "8", "-n", "4", "-r", "1", "-t", "1", "-o", "csv"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  std::string header, prefill, decode;
  std::getline(lines, header);
  std::getline(lines, prefill);
  std::getline(lines, decode);
  EXPECT_TRUE(header.starts_with("test,threads,tokens_per_second_mean"));
  EXPECT_TRUE(prefill.starts_with("pp8,1,"));
  EXPECT_TRUE(decode.starts_with("tg4,1,"));
  expect_failure(run_pinion({"bench", "--synthetic", folder / "none.json"}), 1, "none.json");
}

TEST(Bench, ATestLongerThanTheContextIsAnError) {
  expect_failure(run_pinion({"bench", "--model", kStories, "-p", "513"}), 1, "513");
}

TEST(Inspect, DescribesWithoutLoading) {
  const json report = run_json({"inspect", "--model", kStories, "--json"});
  EXPECT_EQ(report["family"], "llama");
  EXPECT_EQ(report["parameters"], 260032);
  EXPECT_EQ(report["context"], 512);
  EXPECT_EQ(report["memory_bytes"]["embedding_mapped"], 512 * 64 * 2);
  EXPECT_EQ(report["run"]["quant"], "w8a8");
  const json kept = run_json({"inspect", "--model", kStories, "--keep", "lm_head", "--json"});
  EXPECT_GT(kept["memory_bytes"]["head"], report["memory_bytes"]["head"]);
  EXPECT_NE(run_pinion({"inspect", "--model", kStories}).out.find("family: llama"), std::string::npos);
  expect_failure(run_pinion({"inspect", "--model", "/nonexistent"}), 1, "no such folder");
}

TEST(Cpu, ExactlyOneTableIsChosen) {
  const json report = run_json({"cpu", "--json"});
  EXPECT_FALSE(report["cores"].empty());
  EXPECT_FALSE(report["team"].empty());
  int chosen = 0;
  for (const json& kernels : report["kernels"]) chosen += kernels["chosen"] == true;
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(report["kernels"].back()["name"], "scalar");
  const json forced = run_json({"cpu", "--json", "--kernels", "scalar"});
  EXPECT_EQ(forced["kernels"].back()["chosen"], true);
}

TEST(Cpu, BandwidthIsMeasuredOnRequest) {
  const json report = run_json({"cpu", "--json", "--bandwidth", "--threads", "1"});
  EXPECT_GT(report["read_gb_per_s"], 0.0);
}

}  // namespace
}  // namespace pinion
