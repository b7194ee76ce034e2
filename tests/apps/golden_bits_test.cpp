// The same bits on every machine: the files under tests/data/golden were recorded once, and every machine, kernel
// table, thread count and prefill chunk has to reproduce them. To record them again after a change of a model:
//   cd tests/data/golden
//   pinion golden record --model ../../../configs/demo --prompts demo_prompts.json --out demo_none.json --quant none
//   pinion golden record --model ../../../configs/demo --prompts demo_prompts.json --out demo_w8a8.json --quant w8a8
//   pinion golden record --model ../../../configs/demo --prompts demo_prompts.json --out demo_w4a8.json --quant w4a8
//     --calibrate none
//   pinion golden record --model ../../../configs/demo --prompts demo_prompts.json --out demo_w4a8_plus.json
//     --quant w4a8+ --calibrate none
// The same for stories260k. Files named plain are from before rotation, and are checked without it.
#include "tests/apps/program.h"

namespace pinion {
namespace {

// Checks one way at a time; fewer under the emulator, where each takes seconds.
std::vector<std::vector<std::string>> ways_to_run() {
  std::vector<std::vector<std::string>> ways = {{"--threads", "3", "--prefill-chunk", "7"}};
  if (std::string(PINION_EMULATOR).empty()) {
    for (const char* threads : {"1", "2", "3", "4"}) ways.push_back({"--threads", threads});
    for (const char* chunk : {"1", "7", "64", "256"}) ways.push_back({"--prefill-chunk", chunk});
  }
  const json machine = run_json({"cpu", "--json"});
  for (const json& kernels : machine["kernels"]) {
    if (kernels["missing"] == "") ways.push_back({"--kernels", kernels["name"], "--threads", "1"});
  }
  return ways;
}

void expect_reproduced(const std::string& model, const std::string& name) {
  const std::string golden = std::string(PINION_TEST_DATA "/golden/") + name;
  const size_t prompts = read_json(golden)["prompts"].size();
  for (const std::vector<std::string>& way : ways_to_run()) {
    std::vector<std::string> arguments = {"golden", "check", "--model", model, "--golden", golden};
    arguments.insert(arguments.end(), way.begin(), way.end());
    const Outcome outcome = run_pinion(arguments);
    EXPECT_EQ(outcome.status, 0) << way[0] << " " << way[1] << ": " << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.out, '\n'), prompts);
  }
}

TEST(GoldenBits, StoriesNone) { expect_reproduced(kStories, "stories260k_none.json"); }
TEST(GoldenBits, StoriesW8a8) { expect_reproduced(kStories, "stories260k_w8a8.json"); }
TEST(GoldenBits, StoriesW4a8) { expect_reproduced(kStories, "stories260k_w4a8.json"); }
TEST(GoldenBits, StoriesW8a8NotRotated) { expect_reproduced(kStories, "stories260k_w8a8_plain.json"); }
TEST(GoldenBits, DemoW8a8NotRotated) { expect_reproduced(kDemo, "demo_w8a8_plain.json"); }
TEST(GoldenBits, DemoNone) { expect_reproduced(kDemo, "demo_none.json"); }
TEST(GoldenBits, DemoW8a8) { expect_reproduced(kDemo, "demo_w8a8.json"); }
TEST(GoldenBits, DemoW4a8) { expect_reproduced(kDemo, "demo_w4a8.json"); }
TEST(GoldenBits, DemoW4a8Plus) { expect_reproduced(kDemo, "demo_w4a8_plus.json"); }

}  // namespace
}  // namespace pinion
