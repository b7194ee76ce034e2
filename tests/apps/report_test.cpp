// pinion bench and cpu: fields for scripts, and the texts that the templates of apps/reports make of them.
#include <set>
#include <sstream>

#include "apps/cli/console.h"
#include "tests/apps/program.h"

namespace pinion {
namespace {

TEST(Bench, JsonHasOneRecordPerTest) {
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

TEST(Bench, LengthOptionsTakeLists) {
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

TEST(Bench, TestBeyondContextIsRefused) {
  expect_failure(run_pinion({"bench", "--model", kStories, "-p", "513"}), 1, "513");
}

// A quick run over the stories model.
// Two sequences or rows at once, compared with one in the same run.
TEST(Bench, BatchesAndRows) {
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

TEST(Bench, JsonLinesHaveOneRecordEach) {
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

TEST(Bench, TableRowsHaveAllColumns) {
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

// Stages of other models.
bool is_idle(const json& stage, bool has_router) {
  static const std::set<std::string> others = {"q_latent",  "kv_latent", "v_latent", "state_x",    "state_dt",
                                               "state_out", "streams",   "laurel",   "layer_gate", "layer_out"};
  const std::string name = stage["stage"];
  return others.contains(name) || (name == "router" && !has_router);
}

TEST(Bench, ProfileSharesAddUpToOne) {
  const json records = run_json(bench({"-t", "1,2", "-pg", "8,8", "--profile", "-o", "json"}));
  ASSERT_EQ(records.size(), 6u);
  for (const json& record : records) {
    const json& profile = record["profile"];
    double sum = profile["outside_share"];
    EXPECT_GE(sum, 0.0);
    for (const json& stage : profile["stages"]) {
      EXPECT_EQ(stage["share"] > 0.0, !is_idle(stage, false)) << stage;
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

TEST(Bench, EveryFormatHasTheProfile) {
  const std::string md = run_pinion(bench({"-t", "2", "--profile"})).out;
  for (const char* part : {"| gate_up |", "| outside |", "| worker |", "barriers a token"}) {
    EXPECT_NE(md.find(part), std::string::npos) << part << md;
  }
  EXPECT_NE(run_pinion(bench({"-t", "1", "--profile", "-o", "csv"})).out.find(",gate_up_ms_per_token,"),
            std::string::npos);
}

TEST(Bench, CoreListsAreSwept) {
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

TEST(Bench, SensorsAreReported) {
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

TEST(Bench, BytesPerTokenCountActiveExpertsOnly) {
  const json records = run_json({"bench", "--model", PINION_TEST_DATA "/families/qwen3_moe_mixed", "-p", "8", "-n", "4",
                                 "-r", "1", "-t", "2", "--profile", "-o", "json"});
  ASSERT_EQ(records.size(), 2u);
  // Without the head's low halves: 128 rows of 36 inputs, padded.
  const double all = records[0]["model_bytes"].get<double>() - 128 * 64 / 2;
  EXPECT_EQ(records[0]["bytes_per_token"].get<double>() * 8, all) << "8 tokens of 2 experts each may take all 5";
  EXPECT_LT(records[1]["bytes_per_token"].get<double>(), 0.85 * all);
  EXPECT_GT(records[0]["parameters"], records[0]["active_parameters"]);
  for (const json& record : records) {
    for (const json& stage : record["profile"]["stages"]) {
      EXPECT_EQ(stage["share"] > 0.0, !is_idle(stage, true)) << stage;
    }
  }
}

TEST(Bench, ErrorsAreOneLine) {
  expect_failure(run_pinion(bench({"--plot", "/nonexistent/speed.svg"})), 1, "/nonexistent/speed.svg");
  expect_failure(run_pinion(bench({"-pg", "512,128"})), 1, "pp512+tg128");
  expect_failure(run_pinion(bench({"-pg", "512"})), 2, "--pg");
  expect_failure(run_pinion(bench({"-pg", "0,4"})), 2, "--pg");
  expect_failure(run_pinion(bench({"-o", "xml"})), 2, "xml");
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

// --- Texts

std::string text_of(const char* name, const char* report) {
  std::string text;
  const Error e = report_text(OrderedJson::parse(report), name, &text);
  EXPECT_FALSE(e) << e.message();
  return text;
}

// Another machine's report, which lacks features, kernels and memory.
TEST(ReportText, CpusAndBytes) {
  EXPECT_EQ(text_of("cpu", R"({"cpu": "DIR", "cores": [{"cpu": 4, "kind": 1, "package": 0, "max_mhz": 1800}],
      "team": [0, 1, 2, 5, 7, 8], "why_team": "a", "prefill_team": [-1, -1], "prefill_chunk": 256,
      "why_prefill_chunk": "b", "default_team": [3], "why_default_team": "c", "tuning": {"state": "none"},
      "clock_limits": ["CPU 3: slow"], "last_level_cache_bytes": 33554432})"),
            "DIR\ncores:\n  cpu 4, kind 1, package 0, up to 1800 MHz\ndecode team: CPUs 0-2,5,7-8  (a)\n"
            "prefill team: CPUs any,any, 256 tokens a pass  (chunk: b)\ndefault team: CPUs 3  (c)\ntuning: none\n"
            "clock: CPU 3: slow\nlast-level cache: 33.6 MB\n");
}

TEST(ReportText, BytesHaveUnits) {
  EXPECT_EQ(text_of("inspect", R"({"name": "a b", "flag": true, "list": ["x", 1, null], "rate": 1e-06,
      "memory_bytes": {"a": 0, "b": 999, "c": 1000, "d": 99949, "e": 99950, "f": 999499, "g": 999500, "h": 5e15},
      "run": {"cpus": [0, 1], "quant": "w8a8"}})"),
            "name: a b\nflag: true\nlist: [\"x\",1,null]\nrate: 1e-06\nmemory:\n  a: 0 B\n  b: 999 B\n  c: 1.0 kB\n"
            "  d: 99.9 kB\n  e: 100 kB\n  f: 999 kB\n  g: 1.0 MB\n  h: 5000 TB\nrun:\n  cpus: [0,1]\n  quant: w8a8\n");
}

TEST(ReportText, QualityHasSignificantDigits) {
  const std::string text = text_of("quality", R"({"predicted_tokens": 7, "window_tokens": 512, "traced_tokens": 64,
      "mode": "w8a8", "kv": "q8", "reference_perplexity": {"value": 123456.7, "standard_error": 15095.2},
      "perplexity": {"value": 9.999961, "standard_error": 0.0}, "perplexity_ratio": {"value": 1.0, "standard_error": 0.1},
      "kl": {"value": 0.000012345678, "standard_error": 9.96e-7}, "kl_99th_percentile": 0.5,
      "same_top": {"value": 0.98765, "standard_error": 0.00123},
      "widest_inputs": [{"worst": 123.45, "mean": 6.0, "quantised_worst": 1.25, "quantised_mean": 0, "matrix": "m"}]})");
  for (const char* line :
       {"none:  123457 +- 15095\n", "KV q8: 10 +- 0\n", "two:  1 +- 0.1\n", "0.000012346 +- 0.000001, 99 %",
        "at most 0.5\n", "likeliest:    98.765 +- 0.12 %\n", "\n   123.5    6.0     1.2    0.0  m\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

// Columns that are empty in all records are omitted.
TEST(ReportText, BenchTables) {
  const char* report = R"({"name": "demo", "mode": "w8a8", "records": [
      {"test": "pp8", "threads": 1, "cores": null, "texts": 1, "pass_over_one_row": null, "tokens_per_second_mean": 1000.5,
       "tokens_per_second_stddev": 2, "tokens_per_second_median": 1000, "bytes_per_token": 2e6, "roof_gb_per_s": 20.125,
       "roof_share": null, "mhz_first": null, "mhz_least": null, "throttled": null, "celsius": null,
       "joules_per_token": null, "parameters": 2000000, "model_bytes": 2200000, "kernels": "scalar", "machine": "PC",
       "compiler": "gcc", "version": "1", "commit": "c", "kv": "q8"},
      {"test": "tg4xb2", "threads": 2, "cores": null, "texts": 2, "pass_over_one_row": 1.5, "tokens_per_second_mean": 10,
       "tokens_per_second_stddev": 0, "tokens_per_second_median": 10, "bytes_per_token": 2e6, "roof_gb_per_s": 20,
       "roof_share": 0.5, "mhz_first": 1800, "mhz_least": 900, "throttled": true, "celsius": null,
       "joules_per_token": 0.000123456, "parameters": 2000000, "model_bytes": 2200000, "kernels": "scalar"}]})";
  EXPECT_EQ(
      text_of("bench_md", report),
      "PC, gcc, pinion 1 c, kernels scalar, quant w8a8, kv q8\n\n"
      "| model | size | params | threads | test | tokens/s | median | MB/token | roof GB/s | per text | "
      "pass over 1 row | share of roof | MHz | J/token |\n"
      "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |\n"
      "| demo w8a8 | 2.2 MB | 2.00 M | 1 | pp8 | 1000.50 ± 2.00 | 1000.00 | 2.000 | 20.12 |  |  |  |  |  |\n"
      "| demo w8a8 | 2.2 MB | 2.00 M | 2 | tg4xb2 | 10.00 ± 0.00 | 10.00 | 2.000 | 20.00 | 5.00 | 1.500 | 0.500 | "
      "1800 to 900, throttled | 0.0001235 |\n");
  EXPECT_EQ(text_of("bench_csv", report),
            "test,threads,tokens_per_second_mean,tokens_per_second_stddev,bytes_per_token,roof_gb_per_s,roof_share,"
            "tokens_per_second_median,pass_over_one_row,mhz_first,mhz_least,throttled,joules_per_token\n"
            "pp8,1,1000.500,2.000,2000000,20.125,,1000.000,,,,,\n"
            "tg4xb2,2,10.000,0.000,2000000,20.000,0.5000,10.000,1.5000,1800,900,1,0.000123456\n");
}

}  // namespace
}  // namespace pinion
