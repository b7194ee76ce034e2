// pinion pack and the weight cache, which may change nothing but the speed.
#include <cstring>
#include <set>

#include "tests/apps/program.h"

namespace pinion {
namespace {

const std::vector<std::string> kTell = {"generate", "--model",      kStories, "--prompt",
                                        "Once",     "--max-tokens", "24",     "--json"};

// Expects one line on stderr, or none if `told` is empty.
void expect_told(const Outcome& outcome, const std::string& told) {
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::ranges::count(outcome.err, '\n'), told.empty() ? 0 : 1) << outcome.err;
  EXPECT_NE(outcome.err.find(told), std::string::npos) << outcome.err;
}

json tell(const std::string& cache_home, const std::vector<std::string>& more = {}, const std::string& told = "") {
  std::vector<std::string> arguments = kTell;
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = run_pinion(arguments, "", cache_home);
  expect_told(outcome, told);
  return json::parse(outcome.out, nullptr, false);
}

bool from_cache(const json& answer) { return answer["stats"]["weights_from_cache"].get<bool>(); }

fs::path only_file(const fs::path& folder) {
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  return fs::directory_iterator(folder)->path();
}

TEST(Pack, SecondRunUsesCacheWithSameOutput) {
  for (const std::string quant : {"w8a8", "none"}) {
    const Folder home;
    const json plain = tell(home.path, {"--quant", quant, "--no-cache"});
    EXPECT_FALSE(from_cache(plain));
    EXPECT_TRUE(fs::is_empty(home.path));
    for (const bool is_there : {false, true}) {
      const json answer = tell(home.path, {"--quant", quant});
      EXPECT_EQ(from_cache(answer), is_there);
      EXPECT_EQ(answer["text"], plain["text"]);
      EXPECT_EQ(answer["stats"]["logits_hash"], plain["stats"]["logits_hash"]);
    }
    EXPECT_FALSE(from_cache(tell(home.path, {"--quant", quant, "--no-cache"})));
  }
}

TEST(Pack, CorruptFileIsReplaced) {
  const Folder home;
  const json plain = tell(home.path);
  const fs::path file = only_file(home.path / "pinion");
  const std::string whole = read_file(file);
  for (const std::string& bad :
       {std::string(), whole.substr(0, whole.size() / 2), "x" + whole.substr(1), whole + "x"}) {
    write_file(file, bad);
    const json answer = tell(home.path);
    EXPECT_FALSE(from_cache(answer));
    EXPECT_EQ(answer["text"], plain["text"]);
    EXPECT_TRUE(read_file(file) == whole);
    EXPECT_TRUE(from_cache(tell(home.path)));
  }
}

TEST(Pack, MissingCacheFolderDoesNotStopRun) {
  const Folder home;
  write_file(home / "pinion", "a file, not a folder");
  for (int run = 0; run < 2; run++) EXPECT_FALSE(from_cache(tell(home.path, {}, "the next start packs again")));
  EXPECT_FALSE(from_cache(tell("/proc", {}, "the next start packs again"))) << "where nobody may write";
}

// Limits the size of files, to simulate a full disk.
TEST(Pack, FullDiskIsReportedOnce) {
  const Folder home;
  const json plain = tell(home.path, {"--no-cache"});
  const std::string command = "ulimit -f 64; XDG_CACHE_HOME=" + quoted(home.path) + " " + command_line(kTell) + " >" +
                              quoted(home / "out") + " 2>" + quoted(home / "err");
  const int status = std::system(command.c_str());
  const Outcome outcome = {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read_file(home / "out"),
                           read_file(home / "err")};
  expect_told(outcome, "cannot write packed weights");
  EXPECT_EQ(json::parse(outcome.out, nullptr, false)["text"], plain["text"]);
  EXPECT_TRUE(fs::is_empty(home.path / "pinion"));
}

TEST(Pack, UnfinishedFilesAreRemoved) {
  const Folder home;
  tell(home.path);
  const fs::path file = only_file(home.path / "pinion");
  write_file(file.string() + ".a1b2c3", "pinion packed weights\nhalf");
  EXPECT_TRUE(from_cache(tell(home.path)));
  EXPECT_EQ(only_file(home.path / "pinion"), file);
}

// A cache file, with functions to damage and restore it.
struct Damaged {
  Folder home;
  json plain = tell(home.path);
  fs::path file = only_file(home.path / "pinion");
  std::string whole = read_file(file);
  // The weights are followed by their hashes and, in the last 64 bytes, the boot of the last check.
  size_t weights_end = whole.size() - 64 - 8 - (whole.size() / (1 << 20) + 1) * 8;

  void flip(size_t byte, bool since_boot) const {
    std::string text = whole;
    text[byte] = static_cast<char>(text[byte] ^ 1 << byte % 8);
    if (!since_boot) text[text.size() - 64] ^= 1;
    write_file(file, text);
  }
  Outcome run(const std::vector<std::string>& arguments) const { return run_pinion(arguments, "", home.path); }
};

TEST(Pack, CheckFindsFlippedBits) {
  const Damaged d;
  for (size_t i = 0; i < 12; i++) {
    d.flip(4096 + (d.weights_end - 4097) * i / 11, true);
    expect_told(d.run({"pack", "--model", kStories, "--check"}), "damaged weights, repacked: 1 of 1 segments");
    ASSERT_TRUE(read_file(d.file) == d.whole) << i;
  }
  const Outcome right = d.run({"pack", "--model", kStories, "--check"});
  expect_told(right, "");
  EXPECT_NE(right.out.find("was there, checked"), std::string::npos) << right.out;
  d.flip(d.weights_end + 3, true);  // damages the hashes, so the weights cannot be checked
  EXPECT_EQ(d.run({"pack", "--model", kStories, "--check"}).status, 0);
  EXPECT_TRUE(read_file(d.file) == d.whole);
}

// A change to the file has the same effect.
TEST(Pack, FirstStartAfterBootFindsDamage) {
  const Damaged d;
  for (const bool since_boot : {false, true}) {
    for (const bool is_quiet : {false, true}) {
      d.flip(20'000, since_boot);
      std::vector<std::string> command = kTell;
      if (is_quiet) command.push_back("--quiet");
      expect_failure(
          d.run(command), 1,
          "damaged weights, repacked at the next start: 1 of 1 segments; the output of this run may be wrong");
      EXPECT_FALSE(fs::exists(d.file));
      expect_told(d.run(kTell), "");
      ASSERT_TRUE(read_file(d.file) == d.whole);
    }
  }
  const json answer = tell(d.home.path);
  EXPECT_TRUE(from_cache(answer));
  EXPECT_EQ(answer["stats"]["logits_hash"], d.plain["stats"]["logits_hash"]);
}

TEST(Pack, GoldenChecksWeightsFirst) {
  const Damaged d;
  write_file(d.home / "prompts.json", R"([{"prompt": "Once", "max_tokens": 8}])");
  const std::vector<std::string> record = {
      "golden", "record", "--model", kStories, "--prompts", d.home / "prompts.json", "--out", d.home / "G.json"};
  const std::vector<std::string> check = {"golden", "check", "--model", kStories, "--golden", d.home / "G.json"};
  d.flip(30'000, true);
  expect_told(d.run(record), "damaged weights, repacked");
  d.flip(90'000, true);
  expect_told(d.run(check), "damaged weights, repacked");
  EXPECT_TRUE(read_file(d.file) == d.whole);
  expect_told(d.run(check), "");
}

TEST(Pack, FileAndSizeArePrinted) {
  const Folder home;
  const Outcome first = run_pinion({"pack", "--model", kStories}, "", home.path);
  EXPECT_EQ(first.status, 0) << first.err;
  const fs::path file = only_file(home.path / "pinion");
  EXPECT_TRUE(first.out.starts_with(file.string() + ": ")) << first.out;
  EXPECT_NE(run_pinion({"pack", "--model", kStories}, "", home.path).out.find("was there"), std::string::npos);
  EXPECT_TRUE(from_cache(tell(home.path)));
  EXPECT_FALSE(from_cache(tell(home.path, {"--keep", "lm_head"})));
  const Outcome shown = run_pinion({"inspect", "--model", kStories, "--json"}, "", home.path);
  EXPECT_EQ(json::parse(shown.out)["weight_cache"]["file"], file.string());
  EXPECT_EQ(json::parse(shown.out)["weight_cache"]["state"], "usable");
}

TEST(Pack, MtpLayerHasOwnFile) {
  const Folder home;
  const std::vector<std::string> arguments = {"pack", "--model", PINION_TEST_DATA "/families/qwen3_5_mtp"};
  const Outcome first = run_pinion(arguments, "", home.path);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(std::ranges::count(first.out, '\n'), 2) << first.out;
  EXPECT_NE(first.out.find(".packed: for --speculate mtp, "), std::string::npos) << first.out;
  EXPECT_EQ(std::distance(fs::directory_iterator(home.path / "pinion"), {}), 2);
  const Outcome again = run_pinion(arguments, "", home.path);
  EXPECT_EQ(std::ranges::count(again.out, '\n'), 2) << again.out;
  EXPECT_NE(again.out.rfind("was there"), again.out.find("was there")) << again.out;
}

TEST(Pack, PackWithoutCacheIsAnError) {
  const Folder home;
  write_file(home / "pinion", "a file, not a folder");
  expect_failure(run_pinion({"pack", "--model", kStories}, "", home.path), 1, "pinion");
  expect_failure(run_pinion({"pack", "--model", "/nonexistent"}, "", home.path), 1, "no such folder");
}

// --- Packed models, which travel

const std::string kFamilies = PINION_TEST_DATA "/families/";

Outcome pack_to(const std::string& model, const std::string& out, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"pack", "--model", model, "--out", out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_pinion(arguments);
}

// The logits of some tokens, as text.
std::string logits_of(const std::string& model, const std::vector<std::string>& more,
                      const std::string& ids = "1,5,9") {
  const Folder folder;
  std::vector<std::string> arguments = {"logits",       "--model", model,   "--all",
                                        "--prompt-ids", ids,       "--out", folder / "l"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = run_pinion(arguments);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return read_file(folder / "l");
}

// Floats, codes that are kept or quantised again, ternary weights, fused and separate experts, MLA, recurrent layers,
// per-layer embeddings, heads that are tied and stored.
TEST(PackedModel, LogitsEqualThoseOfTheSource) {
  const std::vector<std::pair<std::string, std::string>> models = {
      {"qwen3", "none"},           {"qwen3", "w8a8"},         {"gemma3n", "w4a8"},        {"qwen3_ternary", "w4a8"},
      {"deepseek_v3", "w4a8"},     {"gpt_oss_mxfp4", "w8a8"}, {"qwen3_5_moe", "w4a8"},    {"llama_gptq", "w4a8"},
      {"qwen3_moe_codes", "w8a8"}, {"glm4_moe_lite", "w8a8"}, {"falcon_h1", "w4a8"},      {"llama_fp8_tensors", "none"},
      {"phi3_awq", "w4a8"},        {"bitnet", "w4a8"},        {"gpt_neox_codes", "w8a8"}, {"kimi_linear", "w4a8"}};
  for (const auto& [family, quant] : models) {
    const Folder folder;
    const Outcome packed = pack_to(kFamilies + family, folder / "packed", {"--quant", quant});
    ASSERT_EQ(packed.status, 0) << family << packed.err;
    const std::string source = logits_of(kFamilies + family, {"--quant", quant});
    EXPECT_TRUE(!source.empty() && logits_of(folder / "packed", {}) == source) << family << " " << quant;
  }
}

TEST(PackedModel, OptionsAndDraftLayerTravel) {
  const Folder folder;
  const std::vector<std::string> options = {"--quant", "w4a8", "--head", "w4", "--keep", "layers.1.", "--no-rotate"};
  ASSERT_EQ(pack_to(kFamilies + "qwen3", folder / "a", options).status, 0);
  const std::string source = logits_of(kFamilies + "qwen3", options);
  EXPECT_TRUE(logits_of(folder / "a", {}) == source);
  EXPECT_TRUE(logits_of(folder / "a", options) == source);
  ASSERT_EQ(pack_to(folder / "a", folder / "copy").status, 0);
  EXPECT_TRUE(read_file(folder / "a/model.safetensors") == read_file(folder / "copy/model.safetensors"));

  ASSERT_EQ(pack_to(kFamilies + "qwen3_5_mtp", folder / "mtp").status, 0);
  std::vector<json> answers;
  for (const std::string& model : {kFamilies + "qwen3_5_mtp", folder / "mtp"}) {
    answers.push_back(
        run_json(generate(model, {"--prompt-ids", "1,5,9", "--max-tokens", "16", "--json", "--speculate", "mtp"})));
  }
  EXPECT_EQ(answers[0]["ids"], answers[1]["ids"]);
  EXPECT_EQ(answers[0]["stats"]["logits_hash"], answers[1]["stats"]["logits_hash"]);
  EXPECT_EQ(answers[0]["stats"]["drafted"], answers[1]["stats"]["drafted"]);
  EXPECT_TRUE(from_cache(answers[1]));
}

// A packed copy of the stories model, with some files beside it.
struct Travelled {
  Folder folder;
  std::string path = folder / "packed", file = path + "/model.safetensors";

  Travelled() {
    const Folder source;
    copy_stories(source);
    write_file(source / "LICENSE.txt", "may be copied");
    write_file(source / "notes.bin", "stays");
    EXPECT_EQ(pack_to(source.path, path, {"--quant", "w4a8"}).status, 0);
  }
  Outcome run(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = generate(path, {"--prompt", "Once", "--max-tokens", "8", "--json"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_pinion(arguments);
  }
};

TEST(PackedModel, FolderHasAllThatModelNeeds) {
  const Travelled t;
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(t.path)) names.insert(entry.path().filename().string());
  EXPECT_EQ(names, std::set<std::string>({"LICENSE.txt", "config.json", "model.safetensors", "pack.json",
                                          "tokenizer.json", "tokenizer.model", "tokenizer_config.json"}));
  EXPECT_EQ(std::distance(fs::directory_iterator(t.folder.path), {}), 1) << "no temporary folder";
  EXPECT_LT(fs::file_size(t.file), fs::file_size(kStories + "/model.safetensors"));
  const json packed = read_json(t.path + "/pack.json");
  EXPECT_EQ(packed["quant"], "w4a8");
  EXPECT_EQ(run_json({"inspect", "--model", t.path, "--json"})["packed"], packed);
  EXPECT_EQ(run_json({"inspect", "--model", kStories, "--json"})["packed"], nullptr);
}

// 512 rows of 64 numbers: blocks of 34 bytes for 32 in place of 64.
TEST(PackedModel, EmbeddingsInInt8) {
  const Folder folder;
  std::vector<json> ids;
  std::vector<int64_t> sizes;
  for (const std::string type : {"none", "w8"}) {
    const Outcome packed = pack_to(kStories, folder / type, {"--quant", "w8a8", "--embedding", type});
    ASSERT_EQ(packed.status, 0) << packed.err;
    sizes.push_back(static_cast<int64_t>(fs::file_size(folder / (type + "/model.safetensors"))));
    ids.push_back(run_json(generate(folder / type, {"--prompt", "Once upon", "--max-tokens", "8", "--json"}))["ids"]);
  }
  EXPECT_NEAR(static_cast<double>(sizes[0] - sizes[1]), 512 * 2 * (64 - 34), 256);
  EXPECT_EQ(ids[0], ids[1]);
  EXPECT_NE(logits_of(folder / "none", {}), logits_of(folder / "w8", {}));
  ASSERT_EQ(pack_to(folder / "w8", folder / "again", {"--embedding", "w8"}).status, 0) << "rounded already";
  EXPECT_EQ(logits_of(folder / "again", {}), logits_of(folder / "w8", {}));
  expect_failure(run_pinion({"pack", "--model", kStories, "--embedding", "w8"}), 1, "needs --out");
  expect_failure(pack_to(kFamilies + "qwen3_moe_mixed", folder / "x", {"--embedding", "w8"}), 1, "multiple of 32");
}

TEST(PackedModel, GoldenFileOfTheSourceHolds) {
  const Travelled t;
  write_file(t.folder / "P.json", R"(["Once upon a time", "The cat"])");
  const auto record = [&](const std::string& model, const std::string& out) {
    const Outcome outcome = run_pinion({"golden", "record", "--model", model, "--prompts", t.folder / "P.json",
                                        "--quant", "w4a8", "--max-tokens", "16", "--out", t.folder / out});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return read_json(t.folder / out);
  };
  EXPECT_EQ(record(kStories, "source.json"), record(t.path, "packed.json"));
  const Outcome check = run_pinion({"golden", "check", "--model", t.path, "--golden", t.folder / "source.json"});
  EXPECT_EQ(check.status, 0) << check.out << check.err;
}

// The embedding stays Q8_0, matrices keep their codes or are quantised again.
TEST(PackedModel, GgufFilesTravel) {
  const Folder folder;
  const std::string path = folder / "packed", golden = folder / "G.json";
  const std::string file = PINION_TEST_DATA "/gguf/stories260k_q4_0.gguf";
  write_file(folder / "P.json", R"(["Once upon a time", "The cat"])");
  for (const char* quant : {"none", "w8a8", "w4a8"}) {
    SCOPED_TRACE(quant);
    fs::remove_all(path);
    ASSERT_EQ(pack_to(file, path, {"--quant", quant}).status, 0);
    const Outcome recorded = run_pinion({"golden", "record", "--model", file, "--prompts", folder / "P.json", "--quant",
                                         quant, "--max-tokens", "8", "--out", golden});
    ASSERT_EQ(recorded.status, 0) << recorded.err;
    const Outcome check = run_pinion({"golden", "check", "--model", path, "--golden", golden});
    EXPECT_EQ(check.status, 0) << check.out << check.err;
    const json inspect = run_json({"inspect", "--model", path, "--json"});
    EXPECT_EQ(inspect["packed"]["source"], "stories260k_q4_0.gguf");
    EXPECT_EQ(inspect["packed"]["source_format"], "GGUF");
    EXPECT_EQ(inspect["packed"]["quant"], quant);
    const std::vector<std::string> tail = {"--prompt", "Once", "--max-tokens", "8", "--json"};
    EXPECT_EQ(run_json(generate(path, tail))["stats"]["logits_hash"],
              run_json(generate(file, {"--quant", quant, "--prompt", "Once", "--max-tokens", "8",
                                       "--json"}))["stats"]["logits_hash"]);
  }
  EXPECT_EQ(run_pinion({"pack", "--model", path, "--check"}).status, 0);
}

TEST(PackedModel, OtherCalibrationHoldsInGoldenFilesAndDrafts) {
  const Folder folder;
  const std::string path = folder / "new/parents/packed", text = kStories + "/tokenizer_config.json";
  ASSERT_EQ(pack_to(kStories, path, {"--quant", "w4a8", "--calibrate", text}).status, 0);
  write_file(folder / "P.json", R"(["Once upon a time"])");
  ASSERT_EQ(run_pinion({"golden", "record", "--model", path, "--prompts", folder / "P.json", "--max-tokens", "8",
                        "--out", folder / "G.json"})
                .status,
            0);
  const Outcome check = run_pinion({"golden", "check", "--model", path, "--golden", folder / "G.json"});
  EXPECT_EQ(check.status, 0) << check.out << check.err;
  const Outcome drafted = run_pinion(generate(kStories, {"--prompt", "Once", "--max-tokens", "8", "--quant", "w4a8",
                                                         "--calibrate", "none", "--head", "w4", "--speculate", path}));
  EXPECT_EQ(drafted.status, 0) << drafted.err;
}

TEST(PackedModel, OtherOptionsAreRefusedByName) {
  const Travelled t;
  EXPECT_EQ(t.run({"--quant", "w4a8"}).status, 0);
  expect_failure(t.run({"--quant", "w8a8"}), 1,
                 "--quant: packed otherwise; pack its source for this: want w4a8, have w8a8");
  expect_failure(t.run({"--head", "w4"}), 1, "packed otherwise");
  expect_failure(t.run({"--keep", "lm_head"}), 1, "packed otherwise");
  expect_failure(t.run({"--no-rotate"}), 1, "packed otherwise");
  expect_failure(t.run({"--calibrate", "none"}), 1, "--calibrate: packed otherwise");
  expect_failure(t.run({"--calibrate", t.path + "/config.json"}), 1, "--calibrate: packed otherwise");
  expect_failure(t.run({"--lora", t.path}), 1, "--lora: packed otherwise");
  expect_failure(pack_to(kStories, t.path), 1, "not an empty folder");
}

TEST(PackedModel, DamageIsFound) {
  const Travelled t;
  const std::string whole = read_file(t.file);
  const auto expect_damage = [&](const std::string& text, const std::string& cause, bool is_found_at_once) {
    fs::remove(t.file);
    write_file(t.file, text);
    if (is_found_at_once) expect_failure(t.run(), 1, cause);
    expect_failure(run_pinion({"pack", "--model", t.path, "--check"}), 1, cause);
    EXPECT_TRUE(read_file(t.file) == text) << "it is no cache file";
  };
  EXPECT_EQ(run_pinion({"pack", "--model", t.path, "--check"}).status, 0);
  uint64_t begin = 0;
  std::memcpy(&begin, whole.data(), sizeof begin);
  begin += sizeof begin;
  for (size_t i = 0; i < 8; i++) {
    std::string text = whole;
    text[begin + (whole.size() - 200 - begin) * i / 7] ^= 4;
    expect_damage(text, "damaged", false);
  }
  expect_damage(whole.substr(0, whole.size() - 1), "download it again", true);
  std::string text = whole;
  text.replace(text.find("version 4"), 9, "version 5");
  expect_damage(text, "packed by pinion", true);
  text = whole;
  text.replace(text.find("w4n ["), 3, "w4z");
  expect_damage(text, "does not fit the packed matrices", true);
  text = whole;
  text.replace(text.find("norm.weight"), 11, "nirm.weight");
  expect_damage(text, "no such tensor in the packed model", true);
}

TEST(PackedModel, FullDiskLeavesNothing) {
  const Folder folder;
  const std::string command = "ulimit -f 64; " +
                              command_line({"pack", "--model", kStories, "--out", folder / "packed"}) +
                              " >/dev/null 2>" + quoted(folder / "err");
  const int status = std::system(("XDG_CACHE_HOME=" + quoted(folder / "cache") + "; " + command).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_NE(read_file(folder / "err").find("cannot write packed weights"), std::string::npos)
      << read_file(folder / "err");
  for (const auto& entry : fs::directory_iterator(folder.path)) EXPECT_EQ(entry.path().filename(), "err");
}

}  // namespace
}  // namespace pinion
