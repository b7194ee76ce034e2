// pinion golden: records, comparisons, refusals.
#include <regex>

#include "tests/apps/program.h"

namespace pinion {
namespace {

Outcome check(const std::string& model, const std::string& golden, const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments = {"golden", "check", "--model", model, "--golden", golden};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return run_pinion(arguments);
}

void expect_block(const std::string& out, const std::string& pattern) {
  EXPECT_TRUE(std::regex_search(out, std::regex(pattern + "\n"))) << out;
}

TEST(Golden, FirstDifferenceIsShownOnce) {
  const Folder folder;
  write_file(
      folder / "prompts.json",
      R"(["Once upon a time", {"prompt": "Tom had a", "max_tokens": 5}, {"prompt_ids": [1, 403], "max_tokens": 3}])");
  const Outcome record = run_pinion({"golden", "record", "--model", kStories, "--prompts", folder / "prompts.json",
                                     "--out", folder / "G.json", "--max-tokens", "7", "--quant", "none"});
  ASSERT_EQ(record.status, 0) << record.err;
  const json golden = read_json(folder / "G.json");
  EXPECT_EQ(golden["prompts"][0]["ids"].size(), 7u);
  EXPECT_EQ(golden["prompts"][1]["ids"].size(), 5u);
  EXPECT_EQ(golden["prompts"][2]["ids"].size(), 3u);
  EXPECT_EQ(golden["settings"]["kv"], "f32");
  EXPECT_EQ(check(kStories, folder / "G.json").status, 0);

  json changed = golden;
  changed["prompts"][1]["ids"][2] = 17;
  write_file(folder / "G.json", changed.dump());
  const Outcome token = check(kStories, folder / "G.json");
  expect_failure(token, 1, "G.json: 1 of 3 prompts differ from the recording");
  EXPECT_TRUE(token.out.starts_with("OK prompt 0")) << token.out;
  expect_block(token.out, R"(prompt 1, "Tom had a": token 2 differs
    after ".*"
    token 2 recorded: 17 ".*", log probability -[0-9]+\.[0-9]{4}
    token 2 now:      [0-9]+ ".*", log probability -[0-9]+\.[0-9]{4})");
  const auto logprob = [&](const std::string& line) {
    const size_t at = token.out.find("log probability ", token.out.find(line));
    return std::stod(token.out.substr(at + 16));
  };
  EXPECT_LT(logprob("2 recorded"), logprob("2 now")) << "greedy took the likeliest";

  changed = golden;
  changed["prompts"][2]["ids"].erase(2);
  write_file(folder / "G.json", changed.dump());
  expect_block(check(kStories, folder / "G.json").out, R"(prompt 2, \[1,403\]: token 2 differs
    after ".*"
    token 2 recorded: the end
    token 2 now:      [0-9]+ ".*", log probability -[0-9]+\.[0-9]{4})");

  changed = golden;
  changed["prompts"][2]["logits_hash"] = "0000000000000000";
  write_file(folder / "G.json", changed.dump());
  const Outcome bits = check(kStories, folder / "G.json");
  expect_failure(bits, 1, "1 of 3 prompts differ");
  expect_block(bits.out, R"(prompt 2, \[1,403\]: same tokens, but the bits of the logits differ
    after ".*"
    token 2 recorded: ([0-9]+ ".*", log probability -[0-9.]+)
    token 2 now:      \1)");

  changed = golden;
  changed["prompts"][0]["ids"].push_back(17);
  write_file(folder / "G.json", changed.dump());
  EXPECT_NE(check(kStories, folder / "G.json").out.find("\n    token 7 now:      the end\n"), std::string::npos);

  changed = golden;
  changed["settings"]["quant"] = "w8a8";
  write_file(folder / "G.json", changed.dump());
  expect_failure(check(kStories, folder / "G.json"), 1, "not the recorded weights");
  changed.erase("weights_hash");
  write_file(folder / "G.json", changed.dump());
  expect_failure(check(kStories, folder / "G.json"), 1, "3 of 3 prompts differ");
}

// The hash of the weights distinguishes adapters.
TEST(Golden, AdaptersAreOtherWeights) {
  const Folder folder;
  const std::string model = PINION_TEST_DATA "/families/llama", adapter = PINION_TEST_DATA "/lora/llama";
  const std::string prompts = folder / "prompts.json", golden = folder / "G.json";
  write_file(prompts, R"([{"prompt_ids": [3, 17, 5], "max_tokens": 4}])");
  const Outcome recorded =
      run_pinion({"golden", "record", "--model", model, "--lora", adapter, "--prompts", prompts, "--out", golden});
  EXPECT_EQ(recorded.status, 0) << recorded.err;
  EXPECT_EQ(check(model, golden, {"--lora", adapter}).status, 0);
  expect_failure(check(model, golden), 1, "not the recorded weights");
  expect_failure(check(model, golden, {"--lora", adapter + "=0.5"}), 1, "not the recorded weights");
}

TEST(Golden, HeadFormatIsASetting) {
  const Folder folder;
  write_file(folder / "prompts.json", R"([{"prompt": "Once upon a time", "max_tokens": 4}])");
  ASSERT_EQ(run_pinion({"golden", "record", "--model", kStories, "--prompts", folder / "prompts.json", "--out",
                        folder / "G.json", "--quant", "w4a8", "--head", "w4"})
                .status,
            0);
  json golden = read_json(folder / "G.json");
  EXPECT_EQ(golden["settings"]["head"], "w4");
  const std::string calibration = golden["settings"]["calibration"];
  EXPECT_NE(calibration, "");
  EXPECT_EQ(check(kStories, folder / "G.json").status, 0);
  expect_failure(check(kStories, folder / "G.json", {"--calibrate", "none"}), 1,
                 "--calibrate: not the recorded calibration: want " + calibration + ", have none");
  golden["settings"].erase("head");
  write_file(folder / "G.json", golden.dump());
  expect_failure(check(kStories, folder / "G.json"), 1, "not the recorded weights");
  golden["settings"]["head"] = "w5";
  write_file(folder / "G.json", golden.dump());
  expect_failure(check(kStories, folder / "G.json"), 1, "head: unknown value");
}

TEST(Golden, RotationIsASettingAbsentInOldFiles) {
  const Folder folder;
  write_file(folder / "prompts.json", R"([{"prompt": "Once upon a time", "max_tokens": 4}])");
  for (const bool rotate : {true, false}) {
    std::vector<std::string> arguments = {
        "golden", "record", "--model", kStories, "--prompts", folder / "prompts.json", "--out", folder / "G.json"};
    if (!rotate) arguments.push_back("--no-rotate");
    ASSERT_EQ(run_pinion(arguments).status, 0);
    json golden = read_json(folder / "G.json");
    EXPECT_EQ(golden["settings"]["rotate"], rotate);
    EXPECT_EQ(check(kStories, folder / "G.json").status, 0);
    golden["settings"].erase("rotate");
    write_file(folder / "G.json", golden.dump());
    const Outcome without = check(kStories, folder / "G.json");
    EXPECT_EQ(without.status, rotate ? 1 : 0) << without.err;
  }
}

TEST(Golden, ModeOfFourBitCodesIsRecorded) {
  const std::string model = PINION_TEST_DATA "/families/llama_gptq";
  const Folder folder;
  write_file(folder / "prompts.json", R"([{"prompt_ids": [4, 5, 6], "max_tokens": 4}])");
  ASSERT_EQ(run_pinion({"golden", "record", "--model", model, "--prompts", folder / "prompts.json", "--out",
                        folder / "G.json"})
                .status,
            0);
  json golden = read_json(folder / "G.json");
  EXPECT_EQ(golden["settings"]["quant"], "w4a8");
  EXPECT_EQ(check(model, folder / "G.json").status, 0);
  golden["settings"]["quant"] = "w8a8";
  write_file(folder / "G.json", golden.dump());
  const Outcome other = check(model, folder / "G.json");
  EXPECT_EQ(other.status, 1);
  EXPECT_NE(other.err.find("not the recorded weights"), std::string::npos) << other.err;
}

// A recording that no way reproduces. Each result shows the first difference with the candidates of that way and of
// the definition.
TEST(Golden, MatrixShowsFirstDifference) {
  const Folder folder;
  write_file(folder / "prompts.json", R"([{"prompt": "Once upon a time", "max_tokens": 20}])");
  ASSERT_EQ(run_pinion({"golden", "record", "--model", kStories, "--prompts", folder / "prompts.json", "--out",
                        folder / "G.json"})
                .status,
            0);
  const json golden = read_json(folder / "G.json");
  EXPECT_EQ(golden["prompts"][0]["logits_hash_by_8"].size(), 2u);
  EXPECT_EQ(golden["recorded_by"]["version"], "0.1.0");

  if (std::string(PINION_EMULATOR).empty()) {  // takes minutes under the emulator
    const Outcome same =
        check(kStories, folder / "G.json", {"--matrix", "--threads", "1", "--junit", folder / "J.xml"});
    EXPECT_EQ(same.status, 0) << same.err;
    EXPECT_NE(same.out.find("| kernels scalar, threads 1 | 0 | 20 | same |\n"), std::string::npos) << same.out;
    EXPECT_NE(same.out.find("| threads 1, chunk 7 | 0 | 20 | same |\n"), std::string::npos) << same.out;
    const std::string passed = read_file(folder / "J.xml");
    EXPECT_NE(passed.find("failures=\"0\""), std::string::npos) << passed;
    EXPECT_NE(passed.find("<testcase classname=\"threads 1, chunk 7\" name=\"prompt 0\""), std::string::npos) << passed;
  }

  json changed = golden;
  changed["prompts"][0]["logits_hash_by_8"][1] = "0000000000000000";
  write_file(folder / "G.json", changed.dump());
  const Outcome contradiction = check(kStories, folder / "G.json");
  expect_failure(contradiction, 1, "1 of 1 prompts differ");
  EXPECT_NE(contradiction.out.find("contradicts itself"), std::string::npos) << contradiction.out;
  changed["prompts"][0]["logits_hash"] = "0000000000000000";
  write_file(folder / "G.json", changed.dump());
  const Outcome other = check(kStories, folder / "G.json", {"--bisect", "--junit", folder / "J.xml"});
  expect_failure(other, 1, "1 of 1 prompts differ");
  EXPECT_NE(other.out.find("same tokens, but the bits of the logits differ\n"), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("    token 15 recorded: "), std::string::npos) << other.out;
  EXPECT_NE(other.out.find("first difference: none"), std::string::npos) << other.out;
  if (std::string(PINION_EMULATOR).empty()) {
    const Outcome many = check(kStories, folder / "G.json", {"--matrix", "--threads", "1"});
    EXPECT_EQ(many.out.find("token 15 recorded"), many.out.rfind("token 15 recorded")) << "once";
    EXPECT_NE(many.out.find("\n    ways: threads 1; kernels "), std::string::npos) << many.out;
  }
  const std::string failed = read_file(folder / "J.xml");
  EXPECT_NE(failed.find("tests=\"1\" failures=\"1\""), std::string::npos) << failed;
  EXPECT_NE(failed.find("<failure message=\""), std::string::npos) << failed;
}

// A prompt that cannot be run or compared counts as a difference; the other prompts are not affected.
TEST(Golden, EveryDifferenceIsFound) {
  const Folder folder;
  copy_stories(folder);
  write_file(folder / "prompts.json",
             R"([{"prompt": "Tom had a", "max_tokens": 3}, {"prompt": "Lily", "max_tokens": 3}])");
  const Outcome record = run_pinion(
      {"golden", "record", "--model", folder.path, "--prompts", folder / "prompts.json", "--out", folder / "G.json"});
  ASSERT_EQ(record.status, 0) << record.err;
  json changed = read_json(folder / "G.json");
  changed["prompts"][0]["text"] = "\x01<";
  changed["prompts"][1].erase("prompt");
  changed["prompts"][1]["prompt_ids"] = {1, 99999};
  write_file(folder / "G.json", changed.dump());
  expect_failure(check(folder.path, folder / "G.json", {"--junit", folder / "J.xml"}), 1, "2 of 2 prompts differ");
  const std::string xml = read_file(folder / "J.xml");
  EXPECT_NE(xml.find("tests=\"2\" failures=\"2\""), std::string::npos) << xml;
  EXPECT_NE(xml.find("not in the vocabulary"), std::string::npos) << xml;
  EXPECT_EQ(xml.find('\x01'), std::string::npos) << xml;
  EXPECT_NE(xml.find("␁&lt;"), std::string::npos) << xml;

  fs::remove(folder.path / "tokenizer.json");
  fs::remove(folder.path / "tokenizer.model");
  EXPECT_NE(check(folder.path, folder / "G.json").out.find("the folder no tokenizer"), std::string::npos);
}

TEST(Golden, SampledTextIsReproduced) {
  const Folder folder;
  write_file(folder / "prompts.json", R"(["Once upon a time"])");
  const Outcome record = run_pinion({"golden",
                                     "record",
                                     "--model",
                                     kStories,
                                     "--prompts",
                                     folder / "prompts.json",
                                     "--out",
                                     folder / "G.json",
                                     "--max-tokens",
                                     "24",
                                     "--temperature",
                                     "0.9",
                                     "--top-k",
                                     "40",
                                     "--top-p",
                                     "0.95",
                                     "--min-p",
                                     "0.02",
                                     "--repetition-penalty",
                                     "1.1",
                                     "--presence-penalty",
                                     "0.1",
                                     "--frequency-penalty",
                                     "-0.1",
                                     "--dry-multiplier",
                                     "0.8",
                                     "--dry-sequence-breaker",
                                     ".",
                                     "--seed",
                                     "11"});
  ASSERT_EQ(record.status, 0) << record.err;
  EXPECT_EQ(check(kStories, folder / "G.json", {"--threads", "1"}).status, 0);
  json golden = read_json(folder / "G.json");
  EXPECT_EQ(golden["settings"]["dry_allowed_length"], 2);
  EXPECT_EQ(golden["settings"]["dry_breakers"].size(), 1u);
  golden["settings"]["presence_penalty"] = 9;
  write_file(folder / "G.json", golden.dump());
  EXPECT_EQ(check(kStories, folder / "G.json").status, 1);
}

TEST(Golden, BadFilesAreRefused) {
  const Folder folder;
  const auto record = [&](const std::string& prompts) {
    write_file(folder / "prompts.json", prompts);
    return run_pinion(
        {"golden", "record", "--model", kStories, "--prompts", folder / "prompts.json", "--out", folder / "G.json"});
  };
  expect_failure(record("{}"), 1, "list of prompts");
  expect_failure(record("[]"), 1, "prompts.json: no prompts to record");
  expect_failure(record("[1]"), 1, "prompt 0");
  expect_failure(record("[{}]"), 1, "neither prompt nor prompt_ids");
  expect_failure(record("[{\"prompt_ids\": [1, 5000]}]"), 1, "5000");
  EXPECT_FALSE(fs::exists(folder / "G.json"));

  write_file(folder / "G.json", R"({"settings": {"quant": "w8a8", "kv": "bf16"}})");
  expect_failure(check(kStories, folder / "G.json"), 1, "no list of prompts");
  write_file(folder / "G.json", R"({"settings": {"quant": "w9", "kv": "bf16"}, "prompts": []})");
  expect_failure(check(kStories, folder / "G.json"), 1, "w9");
  write_file(folder / "G.json", R"({"settings": {"quant": "w8a8", "kv": "bf16", "top_n": 3}, "prompts": []})");
  expect_failure(check(kStories, folder / "G.json"), 1, "top_n");
  const std::string recorded = read_file(PINION_TEST_DATA "/golden/stories260k_w8a8.json");
  for (const std::string name : {"weights_hash", "logits_hash_by_8", "text", "max_tokens"}) {
    std::string damaged = recorded;
    damaged[damaged.find('"' + name + '"') + 2] ^= 4;
    write_file(folder / "G.json", damaged);
    expect_failure(check(kStories, folder / "G.json"), 1, "G.json");
  }
  expect_failure(check(kStories, folder / "none.json"), 1, "none.json");
}

}  // namespace
}  // namespace pinion
