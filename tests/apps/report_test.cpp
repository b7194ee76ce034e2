// pinion bench, inspect and cpu: the fields that scripts read.
#include <sstream>

#include "tests/apps/program.h"

namespace pinion {
namespace {

TEST(Bench, JsonHasOneRecordATest) {
  const json records = run_json(
      {"bench", "--model", kStories, "-p", "16", "-n", "4", "-r", "1", "-t", "1,2", "-d", "0,32", "-o", "json"});
  std::vector<std::string> tests;
  for (const json& record : records) {
    tests.push_back(record["test"]);
    for (const char* field : {"tokens_per_second_mean", "tokens_per_second_stddev", "tokens_per_second_median",
                              "bytes_per_token", "roof_gb_per_s"}) {
      EXPECT_TRUE(record[field].is_number()) << field;
    }
    for (const char* field :
         {"model", "quant", "kv", "kernels", "machine", "compiler", "version", "commit", "command"}) {
      EXPECT_TRUE(record[field].is_string()) << field;
    }
    const bool is_decode = record["test"].get<std::string>().starts_with("tg");
    EXPECT_EQ(record["roof_share"].is_number(), is_decode);
    if (!is_decode) continue;
    const double share = record["bytes_per_token"].get<double>() * record["tokens_per_second_median"].get<double>() /
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

TEST(Bench, LengthsAreLists) {
  const json records = run_json(
      {"bench", "--model", kStories, "-p", "8,16", "-n", "0,2,4", "-d", "0,3", "-r", "1", "-t", "1", "-o", "json"});
  std::vector<std::string> tests;
  for (const json& record : records) tests.push_back(record["test"]);
  EXPECT_EQ(tests, (std::vector<std::string>{"pp8", "pp16", "tg2", "tg4", "pp8@d3", "pp16@d3", "tg2@d3", "tg4@d3"}));
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

// A quick run over the stories model.
// Two texts or rows at once beside one, in the same run.
TEST(Bench, TextsAndRows) {
  const json records = run_json({"bench", "--model", kStories, "-p", "0", "-n", "6", "-d", "0,40", "-r", "1", "-t", "1",
                                 "-b", "1,3", "-v", "1,2", "-o", "json"});
  std::vector<std::string> names;
  for (const json& record : records) {
    names.push_back(record["test"]);
    EXPECT_GT(record["tokens_per_second_median"], 0.0);
    EXPECT_GT(record["pass_over_one_row"], 0.0);
    if (record["rows_of_pass"] == 1) {
      EXPECT_EQ(record["pass_over_one_row"], 1.0);
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"tg6xb1", "tg6xb3", "tg6xv1", "tg6xv2", "tg6xb1@d40", "tg6xb3@d40",
                                             "tg6xv1@d40", "tg6xv2@d40"}));
  EXPECT_EQ(records[1]["rows_of_pass"], 3);
  EXPECT_EQ(records[1]["texts"], 3);
  EXPECT_EQ(records[3]["rows_of_pass"], 2);
  const Outcome table =
      run_pinion({"bench", "--model", kStories, "-p", "0", "-n", "4", "-r", "1", "-t", "1", "-b", "1,2"});
  EXPECT_NE(table.out.find("per text | pass over 1 row"), std::string::npos) << table.out << table.err;
}

std::vector<std::string> bench(const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {"bench", "--model", kStories, "-p", "16", "-n", "8", "-r", "2"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return arguments;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Bench, JsonLinesHoldOneRecordEach) {
  const Outcome outcome = run_pinion(bench({"-t", "1", "-pg", "16,4", "-o", "jsonl"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> tests;
  for (const std::string& line : lines_of(outcome.out)) {
    const json record = json::parse(line);
    tests.push_back(record["test"]);
    EXPECT_NE(record["command"].get<std::string>().find(" -pg 16,4 -o jsonl"), std::string::npos);
    EXPECT_GT(record["tokens_per_second_median"], 0.0);
    EXPECT_FALSE(record.contains("profile"));
  }
  EXPECT_EQ(tests, (std::vector<std::string>{"pp16", "tg8", "pp16+tg4"}));
}

TEST(Bench, EveryRowOfATableHasEveryColumn) {
  for (const char* format : {"md", "csv"}) {
    const Outcome outcome = run_pinion(bench({"-t", "1,2", "-o", format}));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const char separator = format == std::string("md") ? '|' : ',';
    int rows = 0;
    int64_t columns = 0;
    for (const std::string& line : lines_of(outcome.out)) {
      if (separator == '|' && !line.starts_with('|')) continue;
      if (++rows == 1) columns = std::ranges::count(line, separator);
      EXPECT_EQ(std::ranges::count(line, separator), columns) << line;
    }
    EXPECT_EQ(rows, separator == '|' ? 6 : 5) << outcome.out;
  }
}

TEST(Bench, ProfileSharesMakeOne) {
  const json records = run_json(bench({"-t", "1,2", "-pg", "8,8", "--profile", "-o", "json"}));
  ASSERT_EQ(records.size(), 6u);
  for (const json& record : records) {
    const json& profile = record["profile"];
    double sum = profile["outside_share"];
    EXPECT_GE(sum, 0.0);
    for (const json& stage : profile["stages"]) {
      EXPECT_EQ(stage["share"] > 0.0, stage["stage"] != "router") << stage;
      EXPECT_GE(stage["waiting_share"], 0.0) << stage;
      EXPECT_LE(stage["waiting_share"], stage["share"]) << stage;
      sum += stage["share"].get<double>();
    }
    EXPECT_NEAR(sum, 1.0, 1e-6) << profile;
    EXPECT_EQ(profile["workers"].size(), record["threads"]);
    EXPECT_LT(profile["waiting_share"], 1.0);
    const bool is_decode = record["test"] == "tg8";
    EXPECT_EQ(profile["repeated_share"] > 0.0, is_decode);
    EXPECT_EQ(profile["regions_per_token"] == 1.0, is_decode);
  }
}

TEST(Bench, ProfileIsPartOfEveryFormat) {
  const std::string md = run_pinion(bench({"-t", "2", "--profile"})).out;
  for (const char* part : {"| gate_up |", "| outside |", "| worker |", "barriers a token"}) {
    EXPECT_NE(md.find(part), std::string::npos) << part << md;
  }
  EXPECT_NE(run_pinion(bench({"-t", "1", "--profile", "-o", "csv"})).out.find(",gate_up_ms_per_token,"),
            std::string::npos);
}

TEST(Bench, CoresAreSweptAsLists) {
  expect_failure(run_pinion(bench({"--cores", ""})), 2, "no cores");
  const std::string cpu = std::to_string(run_json({"cpu", "--json"})["team"][0].get<int>());
  for (const std::vector<std::string>& cores :
       {std::vector<std::string>{"--cores", cpu + ";all"}, {"--cores", cpu, "--cores", "all"}}) {
    std::vector<std::string> arguments = bench({"-t", "1", "-o", "json"});
    arguments.insert(arguments.end(), cores.begin(), cores.end());
    const json records = run_json(arguments);
    ASSERT_EQ(records.size(), 4u);
    EXPECT_EQ(records[0]["cores"], cpu);
    EXPECT_EQ(records[3]["cores"], "all");
  }
  expect_failure(run_pinion(bench({"--cores", cpu + ";0-99999"})), 1, "0-99999");
}

TEST(Bench, WhatTheBoardSaysIsReported) {
  const Folder sys;
  const auto put = [&](const std::string& name, const std::string& text) {
    fs::create_directories((sys.path / name).parent_path());
    write_file(sys.path / name, text);
  };
  const std::string cpu = std::to_string(run_json({"cpu", "--json"})["team"][0].get<int>());
  const auto run = [&](const std::string& format) {
    return run_pinion(bench({"-t", "1", "--cores", cpu, "--sysfs", sys.path, "-o", format})).out;
  };
  const json silent = json::parse(run("json"));
  for (const char* field : {"mhz_first", "throttled", "celsius", "joules_per_token"}) {
    EXPECT_TRUE(silent[0][field].is_null()) << field;
  }
  EXPECT_EQ(run("md").find("MHz"), std::string::npos);
  put("devices/system/cpu/cpu" + cpu + "/cpufreq/scaling_cur_freq", "1800000\n");
  put("class/thermal/thermal_zone0/temp", "61500\n");
  put("class/thermal/thermal_zone0/type", "soc-thermal\n");
  put("class/thermal/thermal_zone1/temp", "99000\n");
  put("class/thermal/thermal_zone1/type", "battery\n");
  put("class/powercap/intel-rapl:0/name", "package-0\n");
  put("class/powercap/intel-rapl:0/energy_uj", "1000\n");
  const json record = json::parse(run("json"))[0];
  EXPECT_EQ(record["mhz_first"], 1800.0);
  EXPECT_EQ(record["throttled"], false);
  EXPECT_EQ(record["celsius"], 61.5);
  EXPECT_EQ(record["joules_per_token"], 0.0);
  EXPECT_NE(run("md").find("| MHz | °C | J/token |"), std::string::npos);
  EXPECT_EQ(record["clock_limits"], json::array());
  put("devices/system/cpu/cpu" + cpu + "/cpufreq/scaling_governor", "powersave\n");
  const Outcome slow = run_pinion(bench({"-t", "1", "--cores", cpu, "--sysfs", sys.path, "-o", "json"}));
  EXPECT_NE(slow.err.find("pinion: CPUs " + cpu + ": governor powersave; run: "), std::string::npos) << slow.err;
  EXPECT_EQ(json::parse(slow.out)[0]["clock_limits"].size(), 1u);
}

TEST(Bench, CountsATokensExpertsOnly) {
  const json records = run_json({"bench", "--model", PINION_TEST_DATA "/families/qwen3_moe_mixed", "-p", "8", "-n", "4",
                                 "-r", "1", "-t", "2", "--profile", "-o", "json"});
  ASSERT_EQ(records.size(), 2u);
  const double all = records[0]["model_bytes"];
  EXPECT_EQ(records[0]["bytes_per_token"].get<double>() * 8, all) << "8 tokens of 2 experts each may take all 5";
  EXPECT_LT(records[1]["bytes_per_token"].get<double>(), 0.85 * all);
  EXPECT_GT(records[0]["parameters"], records[0]["active_parameters"]);
  for (const json& record : records) {
    for (const json& stage : record["profile"]["stages"]) EXPECT_GT(stage["share"], 0.0) << stage;
  }
}

TEST(Bench, WhatCannotBeMeasuredIsOneLine) {
  expect_failure(run_pinion(bench({"--plot", "/nonexistent/speed.svg"})), 1, "/nonexistent/speed.svg");
  expect_failure(run_pinion(bench({"-pg", "512,128"})), 1, "pp512+tg128");
  expect_failure(run_pinion(bench({"-pg", "512"})), 2, "--pg");
  expect_failure(run_pinion(bench({"-pg", "0,4"})), 2, "--pg");
  expect_failure(run_pinion(bench({"-o", "xml"})), 2, "xml");
}

TEST(Inspect, DescribesWithoutLoading) {
  const json report = run_json({"inspect", "--model", kStories, "--json"});
  EXPECT_EQ(report["family"], "llama");
  EXPECT_EQ(report["parameters"], 260032);
  EXPECT_EQ(report["context"], 512);
  EXPECT_EQ(report["memory_bytes"]["embedding_mapped"], 512 * 64 * 2);
  EXPECT_EQ(report["fits"]["weights"], true);
  EXPECT_EQ(report["fits"]["positions"], 512);
  EXPECT_NE(report["fits"]["available"].get<std::string>().find(" MB "), std::string::npos);
  EXPECT_EQ(report["run"]["quant"], "w8a8");
  const json kept = run_json({"inspect", "--model", kStories, "--keep", "lm_head", "--json"});
  EXPECT_GT(kept["memory_bytes"]["head"], report["memory_bytes"]["head"]);
  EXPECT_NE(run_pinion({"inspect", "--model", kStories}).out.find("family: llama"), std::string::npos);
  EXPECT_EQ(report["rope_theta"], 10000.0);
  EXPECT_GT(report["rms_norm_eps"], 0.0);
  EXPECT_EQ(report["tensors"], 2 + 5 * 9);
  EXPECT_GT(report["tensor_bytes"], 2 * 260032 - 1);
  EXPECT_EQ(report["tokenizer_file"], "tokenizer.json");
  EXPECT_EQ(report["chat_template"], false);
  EXPECT_EQ(report["ignored_fields"], json::array());
  EXPECT_EQ(report["generation"]["temperature"], 0.0);
  EXPECT_EQ(report["generation"]["dry_multiplier"], 0.0);
  EXPECT_GT(report["memory_bytes"]["available"], 0);
  const std::string text = run_pinion({"inspect", "--model", kDemo, "--json"}).out;
  EXPECT_NE(text.find("\"temperature\":0.6,"), std::string::npos) << "as in the file, not as a double of a float";
  EXPECT_NE(text.find("\"rms_norm_eps\":1e-06,"), std::string::npos) << text;
  const json demo = json::parse(text, nullptr, false);
  EXPECT_EQ(demo["chat_template"], true);
  EXPECT_FALSE(demo["generation"]["eos_ids"].empty());
  const json window = run_json({"inspect", "--model", PINION_TEST_DATA "/families/mistral_window", "--json"});
  EXPECT_GT(window["sliding_window"], 0);
  expect_failure(run_pinion({"inspect", "--model", "/nonexistent"}), 1, "no such folder");
}

TEST(Inspect, SaysWhichMatricesAreCodesOfTheFile) {
  const std::string coded = PINION_TEST_DATA "/families/llama_codes";
  const json report = run_json({"inspect", "--model", coded, "--json"});
  EXPECT_EQ(report["quantised_file"], true);
  EXPECT_EQ(report["matrices"]["codes_kept"], 12);
  EXPECT_EQ(report["matrices"]["floats_to_codes"], 3);
  EXPECT_EQ(report["matrices"]["without_codes"], json::parse(R"({"lm_head": 1, "model.layers.{}.self_attn.o_proj": 1,
                                                               "model.layers.{}.mlp.down_proj": 1})"));
  const json none = run_json({"inspect", "--model", coded, "--quant", "none", "--json"});
  EXPECT_EQ(none["matrices"]["codes_to_bf16"], 12);
  EXPECT_EQ(none["matrices"]["floats_to_bf16"], 3);
  EXPECT_EQ(none["parameters"], report["parameters"]);
  const json plain = run_json({"inspect", "--model", kStories, "--json"});
  EXPECT_EQ(plain["quantised_file"], false);
  EXPECT_EQ(plain["matrices"]["floats_to_codes"], 36);  // seven for each of five layers, and the head
  EXPECT_FALSE(plain["matrices"].contains("without_codes"));
}

TEST(Inspect, SaysWhichMatricesAreTernary) {
  const std::string ternary = PINION_TEST_DATA "/families/qwen3_ternary";
  const json report = run_json({"inspect", "--model", ternary, "--json"});
  EXPECT_EQ(report["matrices"]["ternary_to_w2"], 2 * 7 - 1);
  EXPECT_EQ(report["matrices"]["floats_to_codes"], 2);
  const json none = run_json({"inspect", "--model", ternary, "--quant", "none", "--json"});
  EXPECT_FALSE(none["matrices"].contains("ternary_to_w2"));
  EXPECT_LT(report["memory_bytes"]["layers"], none["memory_bytes"]["layers"]);
}

TEST(Inspect, NamesTheFormatOfCodesThatAreReadThroughFloats) {
  const std::string families = PINION_TEST_DATA "/families/";
  const json awq = run_json({"inspect", "--model", families + "phi3_awq", "--quant", "w8a8", "--json"});
  EXPECT_EQ(awq["stored_as"], json::parse(R"(["AWQ, 4 bits, groups of 4"])"));
  EXPECT_EQ(awq["matrices"]["codes_kept"], 0);
  EXPECT_EQ(awq["matrices"]["codes_to_codes"], 2 * 7);
  EXPECT_EQ(awq["matrices"]["floats_to_codes"], 1);
  // Not those of the words in the file: as many as the same model has without codes.
  const json plain = run_json({"inspect", "--model", families + "phi3", "--json"});
  EXPECT_EQ(awq["parameters"], plain["parameters"]);
  EXPECT_TRUE(plain["stored_as"].is_null());
  const json blocks = run_json({"inspect", "--model", families + "qwen3_moe_fp8_blocks", "--json"});
  EXPECT_EQ(blocks["stored_as"], json::parse(R"(["FP8 E4M3, blocks of 16 x 24"])"));
}

TEST(Inspect, AFileOf4BitCodesRunsIn4Bits) {
  const std::string families = PINION_TEST_DATA "/families/";
  const auto inspect = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"inspect", "--json", "--model"});
    return run_json(arguments);
  };
  const json gptq = inspect({families + "llama_gptq"});
  EXPECT_EQ(gptq["run"]["quant"], "w4a8");
  EXPECT_EQ(gptq["run"]["why_quant"], "the file has 4-bit codes");
  EXPECT_EQ(gptq["stored_as"], json::parse(R"(["GPTQ, 4 bits, groups of 32"])"));
  EXPECT_EQ(gptq["matrices"]["codes_kept"], 2 * 7);
  EXPECT_EQ(gptq["matrices"]["floats_to_codes"], 1) << "the head";
  EXPECT_FALSE(gptq["matrices"].contains("why_not_kept"));
  const json bytes = inspect({families + "qwen2_w4a8"});
  EXPECT_EQ(bytes["run"]["quant"], "w4a8");
  EXPECT_EQ(bytes["stored_as"], json::parse(R"(["int-quantized, 4 bits with zeros, groups of 32"])"));
  EXPECT_EQ(bytes["matrices"]["codes_kept"], 2 * 7);
  const json w8 = inspect({families + "llama_gptq", "--quant", "w8a8"});
  EXPECT_EQ(w8["run"]["quant"], "w8a8");
  EXPECT_EQ(w8["run"]["why_quant"], "as asked");
  EXPECT_EQ(w8["matrices"]["codes_to_codes"], 2 * 7);
  EXPECT_LT(gptq["memory_bytes"]["layers"], w8["memory_bytes"]["layers"]);
  const json narrow = inspect({families + "mixtral_awq", "--quant", "w4a8"});
  EXPECT_EQ(narrow["matrices"]["codes_to_w4"], 2 * (4 + 3 * 5));
  EXPECT_EQ(narrow["matrices"]["why_not_kept"], json::parse(R"(["groups that are no multiple of 32"])"));
  for (const char* other :
       {"mixtral_awq", "llama_gptq_order", "qwen3_5_beside_vision_packed", "qwen3_codes", "gpt_oss_mxfp4"}) {
    const json report = inspect({families + other});
    EXPECT_EQ(report["run"]["quant"], "w8a8") << other << ": 8 bits, no integers, or none that stay";
    EXPECT_EQ(report["run"]["why_quant"], "default");
  }
}

TEST(Inspect, FourBits) {
  const auto inspect = [](std::vector<std::string> options) {
    std::vector<std::string> arguments = {"inspect", "--model", kStories, "--json"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_json(arguments);
  };
  const json w8 = inspect({"--quant", "w8a8"}), w4 = inspect({"--quant", "w4a8"});
  EXPECT_EQ(w4["matrices"]["floats_to_w4"], 35);
  EXPECT_EQ(w4["matrices"]["floats_to_codes"], 1) << "the head";
  EXPECT_EQ(w4["memory_bytes"]["head"], w8["memory_bytes"]["head"]);
  EXPECT_LT(w4["memory_bytes"]["layers"].get<double>(), 0.6 * w8["memory_bytes"]["layers"].get<double>());
  const json head = inspect({"--quant", "w4a8", "--head", "w4", "--keep", "k_proj"});
  EXPECT_EQ(head["matrices"]["floats_to_w4"], 31);
  EXPECT_EQ(head["matrices"]["floats_to_bf16"], 5);
  EXPECT_EQ(head["memory_bytes"]["head"], 8 * 2 * (1024 + 128) + 512 * 4);
  const json none = inspect({"--head", "none"});
  EXPECT_GT(none["memory_bytes"]["head"], w8["memory_bytes"]["head"]);
  EXPECT_EQ(inspect({"--head", "none", "--keep", "lm_head"})["memory_bytes"]["head"], none["memory_bytes"]["head"]);
  const std::vector<std::string> contradiction = {"inspect", "--model", kStories, "--head", "w8", "--keep", "lm_head"};
  expect_failure(run_pinion(contradiction), 1, "lm_head.weight: to be kept");
}

TEST(Inspect, TellsWhatATokenTakesOfAMixture) {
  const std::string mixed = PINION_TEST_DATA "/families/qwen3_moe_mixed";
  const json report = run_json({"inspect", "--model", mixed, "--json"});
  EXPECT_EQ(report["experts"], json::parse(R"({"count": 5, "per_token": 2, "intermediate_size": 20, "layers": 1})"));
  EXPECT_EQ(report["parameters"].get<int64_t>() - report["active_parameters"].get<int64_t>(), 3 * 3 * 20 * 36);
  const json coded = run_json({"inspect", "--model", PINION_TEST_DATA "/families/qwen3_moe_codes", "--json"});
  EXPECT_EQ(coded["active_parameters"], coded["parameters"]) << "every token takes every expert";
  EXPECT_EQ(coded["matrices"]["codes_kept"], 2 * (4 + 3 * 4));
  EXPECT_EQ(coded["matrices"]["floats_to_bf16"], 2) << "routers";
  EXPECT_EQ(coded["matrices"]["without_codes"], json::parse(R"({"lm_head": 1, "model.layers.{}.mlp.gate": 2})"));
  const json dense = run_json({"inspect", "--model", kStories, "--json"});
  EXPECT_TRUE(dense["experts"].is_null());
  EXPECT_EQ(dense["active_parameters"], dense["parameters"]);
}

// 2 layers of 5 experts in one tensor of gates and ups and one of downs; the head is a matrix of its own.
TEST(Inspect, TellsWhatBecomesOfStackedExperts) {
  const json plain = run_json({"inspect", "--model", PINION_TEST_DATA "/families/granite_moe", "--json"});
  EXPECT_EQ(plain["matrices"]["floats_to_codes"], 2 * (4 + 3 * 5) + 1);
  EXPECT_EQ(plain["matrices"]["floats_to_bf16"], 2) << "routers";
  const json shared = run_json({"inspect", "--model", PINION_TEST_DATA "/families/granite_moe_shared", "--json"});
  EXPECT_EQ(shared["matrices"]["floats_to_codes"], 2 * (4 + 3 + 3 * 5) + 1);
  EXPECT_EQ(shared["experts"]["shared_intermediate_size"], 28);
}

// 2 layers of 4 experts, 3 matrices each; numbers are counted, not bytes.
TEST(Inspect, TellsWhatBecomesOfExpertsInFourBits) {
  const std::string model = PINION_TEST_DATA "/families/gpt_oss_mxfp4";
  const json report = run_json({"inspect", "--model", model, "--json"});
  EXPECT_EQ(report["quantised_file"], true);
  EXPECT_EQ(report["matrices"]["codes_to_codes"], 24);
  EXPECT_EQ(report["matrices"]["floats_to_codes"], 2 * 4 + 1);
  const int64_t attention = 2 * 64 * 64 + 2 * 64 * 32 + 64 + 2 * 32 + 64 + 4, router = 4 * 64 + 4;
  const int64_t experts = 4 * (3 * 64 * 32 + 2 * 32 + 64);
  EXPECT_EQ(report["parameters"], 2 * 120 * 64 + 64 + 2 * (attention + router + experts + 2 * 64));
  EXPECT_EQ(report["parameters"].get<int64_t>() - report["active_parameters"].get<int64_t>(),
            2 * (3 * 64 * 32 + 2 * 32 + 64));
  const json none = run_json({"inspect", "--model", model, "--quant", "none", "--json"});
  EXPECT_EQ(none["matrices"]["codes_to_bf16"], 24);
  EXPECT_EQ(none["parameters"], report["parameters"]);
  const json plain = run_json({"inspect", "--model", PINION_TEST_DATA "/families/gpt_oss", "--json"});
  EXPECT_EQ(plain["quantised_file"], false);
  EXPECT_EQ(plain["matrices"]["floats_to_codes"], 2 * (4 + 3 * 5) + 1);

  const Folder folder;
  const auto logits = [&](const char* quant) {
    return run_pinion(
        {"logits", "--model", model, "--prompt-ids", "5,6", "--quant", quant, "--out", folder / "logits.npy"});
  };
  EXPECT_NE(logits("w8a8").err.find("MXFP4 become int8, rounded a second time"), std::string::npos);
  EXPECT_EQ(logits("none").err.find("MXFP4"), std::string::npos);
}

// Two of three layers keep a state: what an eight times longer text reads more of is one layer's.
TEST(Inspect, TellsARecurrentStateFromTheCache) {
  const std::string model = PINION_TEST_DATA "/families/qwen3_5_beside_vision";
  const json report = run_json({"inspect", "--model", model, "--json"});
  EXPECT_EQ(report["recurrent_layers"], 2);
  const int64_t state = 2 * 4 * (4 * 96 + 2 * 12 * 32),
                kv = 2 * 2 * (16 + 4);  // a position: K and V of two heads of 16 codes and a scale
  EXPECT_EQ(report["memory_bytes"]["recurrent_state"], state);
  EXPECT_EQ(report["memory_bytes"]["kv_per_1024_positions"], 1024 * kv + 4 * 2 * 64) << "a centre for each head of 256";
  const json alone = run_json({"inspect", "--model", PINION_TEST_DATA "/families/qwen3_5", "--json"});
  EXPECT_EQ(report["parameters"], alone["parameters"]) << "without the vision tower";

  const json records =
      run_json({"bench", "--model", model, "-p", "16", "-n", "4", "-r", "2", "-t", "1", "-d", "0,32", "-o", "json"});
  ASSERT_EQ(records.size(), 4u);  // pp16, tg4, both at 32
  const double first = records[1]["bytes_per_token"], later = records[3]["bytes_per_token"];
  EXPECT_EQ(first, records[1]["model_bytes"].get<double>() + 2 * state + 3 * kv);
  EXPECT_EQ(later - first, 32 * kv);
  EXPECT_EQ(run_json({"inspect", "--model", kStories, "--json"})["memory_bytes"]["recurrent_state"], 0);
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
  EXPECT_GT(report["barrier_us"], 0.0);
}

}  // namespace
}  // namespace pinion
