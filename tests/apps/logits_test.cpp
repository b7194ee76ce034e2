// pinion logits: the .npy file and its contents.
#include <cstring>

#include "tests/apps/program.h"

namespace pinion {
namespace {

struct Npy {
  std::string header;
  std::vector<float> values;
};

Npy read_npy(const std::string& path) {
  const std::string bytes = read_file(path);
  Npy npy;
  if (!bytes.starts_with(std::string("\x93NUMPY\x01\x00", 8))) return npy;
  const size_t length = static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ((10 + length) % 64, 0u);
  npy.header = bytes.substr(10, length);
  npy.values.resize((bytes.size() - 10 - length) / sizeof(float));
  std::memcpy(npy.values.data(), bytes.data() + 10 + length, npy.values.size() * sizeof(float));
  return npy;
}

Npy logits(std::vector<std::string> options) {
  const Folder folder;
  std::vector<std::string> arguments = {"logits", "--model", kStories, "--out", folder / "F.npy"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const Outcome outcome = run_pinion(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1) << "something is left beside the file";
  return read_npy(folder / "F.npy");
}

TEST(Logits, ShapeAndContentEqualGenerate) {
  const Npy last = logits({"--prompt", "Once upon a time"});
  EXPECT_NE(last.header.find("'descr': '<f4'"), std::string::npos);
  EXPECT_NE(last.header.find("'shape': (1, 512)"), std::string::npos);
  ASSERT_EQ(last.values.size(), 512u);
  const json answer =
      run_json({"generate", "--model", kStories, "--prompt", "Once upon a time", "--max-tokens", "1", "--json"});
  EXPECT_EQ(std::ranges::max_element(last.values) - last.values.begin(), answer["ids"][0]);
}

TEST(Logits, AllPositionsEqualPrefixes) {
  const Npy all = logits({"--prompt-ids", "1,403,407,261,378", "--all"});
  EXPECT_NE(all.header.find("'shape': (5, 512)"), std::string::npos);
  ASSERT_EQ(all.values.size(), 5u * 512u);
  const std::vector<std::string> prefixes = {"1", "1,403", "1,403,407", "1,403,407,261", "1,403,407,261,378"};
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const Npy one = logits({"--prompt-ids", prefixes[i]});
    EXPECT_TRUE(std::equal(one.values.begin(), one.values.end(), all.values.begin() + static_cast<long>(i) * 512));
  }
  EXPECT_EQ(logits({"--prompt-ids", "1,403,407,261,378", "--all", "--prefill-chunk", "2"}).values, all.values);
}

TEST(Logits, RequantisedCodesAreNoted) {
  const Folder folder;
  const auto said = [&](const std::string& model, const std::string& quant) {
    const std::vector<std::string> arguments = {"logits", "--model",        PINION_TEST_DATA "/families/" + model,
                                                "--out",  folder / "F.npy", "--prompt-ids",
                                                "4,5",    "--quant",        quant};
    const Outcome outcome = run_pinion(arguments);
    EXPECT_EQ(outcome.status, 0);
    return outcome.err;
  };
  EXPECT_EQ(said("phi3_awq", "w8a8"),
            "pinion: weights that the file holds as AWQ, 4 bits, groups of 4 become int8, rounded a second time, and "
            "activations are Pinion's own\n");
  EXPECT_EQ(said("phi3_awq", "none"), "pinion: weights that the file holds as AWQ, 4 bits, groups of 4 become bf16\n");
  EXPECT_EQ(said("phi3_awq", "w4a8"),
            "pinion: weights that the file holds as AWQ, 4 bits, groups of 4 (model.layers.0.self_attn.qkv_proj and 7 "
            "more: groups that are no multiple of 32) become 4 bits, rounded a second time, and activations are "
            "Pinion's own\n");
  EXPECT_EQ(said("llama_gptq", "w4a8"), "");
  EXPECT_EQ(said("qwen3_codes", "w8a8"), "");
  EXPECT_EQ(said("qwen3_codes", "w4a8"),
            "pinion: weights that the file holds as int8 become 4 bits, rounded a second time, and activations are "
            "Pinion's own\n");
}

TEST(Logits, FailuresLeaveNoFile) {
  const Folder folder;
  const auto run = [&](const std::string& ids, const std::string& out) {
    return run_pinion({"logits", "--model", kStories, "--prompt-ids", ids, "--out", out});
  };
  expect_failure(run("1,600", folder / "F.npy"), 1, "600");
  expect_failure(run("", folder / "F.npy"), 1, "no tokens");
  expect_failure(run("1", folder / "no/such/F.npy"), 1, "F.npy");
  EXPECT_TRUE(fs::is_empty(folder.path));
  std::string ids = "1";
  for (int i = 0; i < 512; ++i) ids += ",403";
  expect_failure(run(ids, folder / "F.npy"), 1, "513");
}

}  // namespace
}  // namespace pinion
