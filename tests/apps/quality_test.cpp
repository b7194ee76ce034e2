// pinion quality: its figures and the reference's for a passage (tests/data/stories260k), and refused options.
#include "tests/apps/program.h"

namespace pinion {
namespace {

json quality(const std::string& file, std::vector<std::string> options = {}) {
  std::vector<std::string> arguments = {"quality", "--model", kStories, "--file", file, "--json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_json(arguments);
}

json passage() { return read_json(fs::path(kStories) / "expected.json")["perplexity"]; }

TEST(Quality, FiguresEqualReference) {
  const Folder folder;
  write_file(folder / "F.txt", passage()["text"]);
  const json q = quality(folder / "F.txt", {"--keep", "lm_head", "--kv", "f32"});
  EXPECT_EQ(q["predicted_tokens"], passage()["predicted_tokens"]);
  EXPECT_EQ(q["windows"], 1);
  EXPECT_NEAR(q["reference_perplexity"]["value"], passage()["ppl"], 1e-3);
  EXPECT_NEAR(q["perplexity"]["value"], passage()["ppl_w8a8"], 2e-3);
  EXPECT_NEAR(q["perplexity_ratio"]["value"].get<double>(),
              q["perplexity"]["value"].get<double>() / q["reference_perplexity"]["value"].get<double>(), 1e-9);
  EXPECT_GT(q["kl"]["value"], 0);
  EXPECT_LT(q["kl"]["value"], 0.01);
  EXPECT_GE(q["kl_99th_percentile"], q["kl"]["value"]);
  EXPECT_GT(q["same_top"]["value"], 0.9);
  ASSERT_EQ(q["widest_inputs"].size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    const json& one = q["widest_inputs"][i];
    EXPECT_TRUE(one["matrix"].get<std::string>().starts_with("model.layers.")) << one;
    EXPECT_GE(one["worst"], one["mean"]);
    EXPECT_GE(one["mean"], 1);
    EXPECT_GE(one["quantised_mean"], 1);
    EXPECT_LE(one["quantised_mean"], one["mean"]) << "the rotation spreads what stands out";
    if (i > 0) {
      EXPECT_LE(one["worst"], q["widest_inputs"][i - 1]["worst"]);
    }
  }
}

// Small models lose more than large ones. The bounds are the losses when this test was written plus ten percent.
TEST(Quality, FourBits) {
  const Folder folder;
  write_file(folder / "F.txt", passage()["text"]);
  const json w4 = quality(folder / "F.txt", {"--quant", "w4a8", "--calibrate", "none"});
  const json head = quality(folder / "F.txt", {"--quant", "w4a8", "--head", "w4", "--calibrate", "none"});
  EXPECT_EQ(w4["quant"], "w4a8");
  EXPECT_EQ(head["head"], "w4");
  EXPECT_LT(w4["kl"]["value"], 0.071);
  EXPECT_GT(w4["kl"]["value"], 0.02) << "eight bits have 0.002";
  EXPECT_LT(head["kl"]["value"], 0.09);
  EXPECT_GT(head["kl"]["value"], w4["kl"]["value"]);
}

TEST(Quality, ModeNoneDoesNotDiffer) {
  const Folder folder;
  write_file(folder / "F.txt", passage()["text"]);
  const json q = quality(folder / "F.txt", {"--quant", "none"});
  EXPECT_EQ(q["kl"]["value"], 0);
  EXPECT_EQ(q["same_top"]["value"], 1);
  EXPECT_EQ(q["perplexity_ratio"]["value"], 1);
  EXPECT_EQ(q["perplexity"], q["reference_perplexity"]);
}

// 220 tokens and BOS: a window of 50 has 49 tokens of the text, each predicted from the tokens before it in the window.
TEST(Quality, Windows) {
  const Folder folder;
  write_file(folder / "F.txt", passage()["text"]);
  const json q = quality(folder / "F.txt", {"--window", "50"});
  EXPECT_EQ(q["windows"], 5);
  EXPECT_EQ(q["predicted_tokens"], 220);
  EXPECT_GT(q["reference_perplexity"]["value"], passage()["ppl"]);
  EXPECT_EQ(quality(folder / "F.txt", {"--tokens", "7"})["predicted_tokens"], 7);
  const Outcome text = run_pinion({"quality", "--model", kStories, "--file", folder / "F.txt", "--tokens", "7"});
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("7 tokens predicted, in windows of 512\n"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("perplexity, w8a8, KV q8: "), std::string::npos) << text.out;
}

// The model's own text is the default. The file is half of the passage; the other half is predicted.
TEST(Quality, CalibrationReducesLoss) {
  const Folder folder;
  const std::string text = passage()["text"];
  write_file(folder / "C.txt", text.substr(0, text.size() / 2));
  write_file(folder / "F.txt", text.substr(text.size() / 2));
  const json plain = quality(folder / "F.txt", {"--quant", "w4a8", "--calibrate", "none"});
  const json own = quality(folder / "F.txt", {"--quant", "w4a8"});
  const json with_file = quality(folder / "F.txt", {"--quant", "w4a8", "--calibrate", folder / "C.txt"});
  EXPECT_LT(own["kl"]["value"], 0.8 * plain["kl"]["value"].get<double>());
  EXPECT_LT(with_file["kl"]["value"], plain["kl"]["value"]);
  EXPECT_NE(with_file["kl"]["value"], own["kl"]["value"]);
  EXPECT_EQ(own["calibrate"], "self");
  EXPECT_EQ(own["mode"], "w4a8");
  EXPECT_EQ(plain["mode"], "w4a8, --calibrate none");
}

TEST(Quality, Refusals) {
  const Folder folder;
  const auto run = [&](std::vector<std::string> options) {
    std::vector<std::string> arguments = {"quality", "--model", kStories, "--file", folder / "F.txt"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_pinion(arguments);
  };
  expect_failure(run({}), 1, "F.txt");
  write_file(folder / "F.txt", "");
  expect_failure(run({}), 1, "too short to predict anything");
  write_file(folder / "F.txt", "One day");
  expect_failure(run({"--window", "513"}), 1, "--window: out of range: want 2 to 512, have 513");
  expect_failure(run({"--window", "1"}), 2, "--window");
}

}  // namespace
}  // namespace pinion
