// pinion bench: measures prefill and decode, compares decode with the read bandwidth of the same run, prints tables.
#include "apps/bench/bench.h"

#include <nlohmann/json.hpp>

#include "apps/cli/output_file.h"
#include "apps/commands.h"
#include "apps/model/build.h"

namespace pinion {
namespace {

OrderedJson json_or_null(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson profile_json(const BenchRecord& record) {
  const BenchProfile& p = *record.profile;
  const bool one_token = record.test.prompt_tokens == 0 && record.test.rows_of_pass() == 1;
  const double total_ns = p.seconds * 1e9, all_ns = total_ns * static_cast<double>(p.profile.workers.size());
  const auto per_token = [&](auto count) { return static_cast<double>(count) / static_cast<double>(p.tokens); };
  std::array<double, kStages> work = {}, wait = {};  // ns of all workers
  double outside = 1, waiting = 0, repeated = 0;     // shares of all_ns
  OrderedJson stages = OrderedJson::array(), workers = OrderedJson::array();
  for (size_t w = 0; w < p.profile.workers.size(); ++w) {
    OrderedJson work_ms = OrderedJson::object(), wait_ms = OrderedJson::object();
    double waited_ns = 0;
    for (size_t i = 0; i < kStages; ++i) {
      const StageTime& time = p.profile.workers[w].stages[i];
      const std::string name(kStageNames[i]);
      work_ms[name] = per_token(time.work_ns) / 1e6;
      wait_ms[name] = per_token(time.wait_ns) / 1e6;
      work[i] += static_cast<double>(time.work_ns);
      wait[i] += static_cast<double>(time.wait_ns);
      waited_ns += static_cast<double>(time.wait_ns);
    }
    workers.push_back({{"cpu", record.cpus[w]},
                       {"waiting_share", waited_ns / total_ns},
                       {"work_ms_per_token", work_ms},
                       {"wait_ms_per_token", wait_ms}});
  }
  for (size_t i = 0; i < kStages; ++i) {
    const double share = (work[i] + wait[i]) / all_ns;
    stages.push_back({{"stage", kStageNames[i]},
                      {"ms_per_token", share * per_token(p.seconds * 1e3)},
                      {"share", share},
                      {"waiting_share", wait[i] / all_ns}});
    outside -= share;
    waiting += wait[i] / all_ns;
    if (one_token && is_repeated(Stage(i))) repeated += work[i] / all_ns;
  }
  // Stages, which include their waiting, and `outside` add up to 1. Work that every worker repeats does not scale with
  // their number.
  OrderedJson json = {{"ms_per_token", per_token(p.seconds * 1e3)},
                      {"regions_per_token", per_token(p.regions)},
                      {"barriers_per_token", per_token(p.barriers)},
                      {"waiting_share", waiting},
                      {"repeated_share", repeated},
                      {"outside_share", std::max(0.0, outside)},  // stages and total are from different clocks
                      {"stages", stages},
                      {"workers", workers}};
  if (!p.boards.empty()) json["boards"] = board_stages_json(p);
  return json;
}

OrderedJson record_json(const BenchOptions& options, const Runtime& runtime, const BenchRecord& record) {
  OrderedJson json = {{"test", test_name(record.test)},
                      {"threads", record.threads()},
                      {"cores", record.cores.empty() ? OrderedJson(nullptr) : OrderedJson(record.cores)},
                      {"cpus", record.cpus},
                      {"prompt_tokens", record.test.prompt_tokens},
                      {"decode_tokens", record.test.decode_tokens},
                      {"depth", record.test.depth},
                      {"texts", std::max<int64_t>(1, record.test.batch)},
                      {"rows_of_pass", record.test.rows_of_pass()},
                      {"pass_over_one_row", json_or_null(record.pass_cost)},
                      {"tokens_per_second_mean", record.rates.mean},
                      {"tokens_per_second_stddev", record.rates.deviation},
                      {"tokens_per_second_median", record.rates.median},
                      {"repetitions", options.repetitions},
                      {"bytes_per_token", record.bytes_per_token},
                      {"roof_gb_per_s", record.roof / 1e9},
                      {"roof_share", json_or_null(record.roof_share)},
                      {"mhz_first", record.clock ? OrderedJson(record.clock->first_mhz) : OrderedJson(nullptr)},
                      {"mhz_least", record.clock ? OrderedJson(record.clock->min_mhz) : OrderedJson(nullptr)},
                      {"throttled", record.clock ? OrderedJson(record.clock->throttled()) : OrderedJson(nullptr)},
                      {"clock_limits", record.clock_limits},
                      {"celsius", json_or_null(record.celsius)},
                      {"joules_per_token", json_or_null(record.joules_per_token)},
                      {"model", options.run.synthetic.empty() ? options.run.model : options.run.synthetic},
                      {"parameters", count_parameters(runtime.model->config).all},
                      {"active_parameters", active_parameters(runtime.model->config)},
                      {"model_bytes", runtime.model->weight_bytes},
                      {"quant", quant_name(options.run)},
                      {"rotate", options.run.load.rotate},
                      {"head", head_name(options.run)},
                      {"kv", kv_name(options.run)},
                      {"kernels", runtime.kernels->name},
                      {"machine", cpu_name()},
                      {"compiler", compiler_name()},
                      {"version", PINION_VERSION},
                      {"commit", build_commit()},
                      {"command", command_line()}};
  if (record.boards) json["boards"] = boards_json(*record.boards);
  if (record.profile) json["profile"] = profile_json(record);
  return json;
}

int print_bench(const BenchOptions& options, const OrderedJson& report) {
  const OrderedJson& records = report["records"];
  if (options.format == "json") {
    print_json(records, 2);
  } else if (options.format == "jsonl") {
    for (const OrderedJson& record : records) print_json(record);
  } else {
    return print_report(report, false, "bench_" + options.format);
  }
  return kSuccess;
}

// --- Command line

int run_bench(BenchOptions options) {
  if (!options.run.has_model()) return fail_usage("no model: give --model or --synthetic");
  if (options.threads.empty()) options.threads = {0};
  if (tests_of(options).empty()) return fail_usage("nothing to measure: -p and -n are 0, and there is no -pg");
  Runtime runtime;
  std::vector<BenchRecord> records;
  OutputFile plot;  // opened first, so that a wrong path fails before hours of measuring
  if (Error e = options.plot.empty() ? Error{} : plot.open(options.plot)) return fail(e);
  if (Error e = measure(options, runtime, &records)) return fail(e);
  OrderedJson report = {
      {"records", OrderedJson::array()}, {"name", model_name(options.run)}, {"mode", mode_text(options.run)}};
  std::set<std::string> clock_limits;
  for (const BenchRecord& r : records) {
    report["records"].push_back(record_json(options, runtime, r));
    clock_limits.insert(r.clock_limits.begin(), r.clock_limits.end());
  }
  if (const int status = print_bench(options, report); status != kSuccess) return status;
  for (const std::string& line : clock_limits) note(line);
  if (Error e = options.prompt_cache.empty() ? Error{} : measure_prompt_cache(options, runtime)) return fail(e);
  if (options.plot.empty()) return kSuccess;
  std::string picture;
  if (Error e = report_text(report, "bench_svg", &picture)) return fail(e);
  if (Error e = plot.finish(picture)) return fail(e);
  return kSuccess;
}

constexpr int64_t kMaxTestTokens = 1 << 24;

// "512,128"
bool parse_pair(const std::string& text, BenchTest* out) {
  long long prompt = 0, decode = 0;
  int end = 0;
  if (std::sscanf(text.c_str(), "%9lld,%9lld%n", &prompt, &decode, &end) != 2) return false;
  out->prompt_tokens = prompt;
  out->decode_tokens = decode;
  return end == std::ssize(text) && std::min(prompt, decode) > 0 && std::max(prompt, decode) <= kMaxTestTokens;
}

void add_test_options(Command app, const std::shared_ptr<BenchOptions>& options) {
  const auto add = [&](const char* spelling, auto& list, double min, double max) {
    app.add_number(spelling, list, min, max).list();
  };
  add("-p LIST", options->prompt_tokens, 0, kMaxTestTokens);
  add("-n LIST", options->decode_tokens, 0, kMaxTestTokens);
  add("-d LIST", options->depths, 0, kMaxTestTokens);
  add("-b LIST", options->batches, 1, 256);
  add("-v LIST", options->rows, 1, 256);
  app.add_option("--pg P,N", options->both).check([](const std::string& text) {
    BenchTest test = {};
    return parse_pair(text, &test) ? std::string() : "want two counts like 512,128, have " + text;
  });
  app.add_path("--prompt-cache DIR", options->prompt_cache);
  app.add_number("-r N", options->repetitions, 1, 10000);
  add("-t,--threads LIST", options->threads, 1, kMaxThreads);
}

void add_report_options(Command app, const std::shared_ptr<BenchOptions>& options) {
  app.add_option("-o FORMAT", options->format).one_of({"md", "json", "jsonl", "csv"});
  app.add_flag("--profile", options->profile);
  app.add_path("--plot F.svg", options->plot);
  // For tests.
  app.add_option("--sysfs DIR", options->sysfs).hidden();
  app.add_number("--roof-mb N", options->roof_mb, 2, 1 << 20).hidden();
}

}  // namespace

std::string test_name(const BenchTest& test) {
  std::string name;
  if (test.prompt_tokens > 0) name = "pp" + std::to_string(test.prompt_tokens);
  if (test.decode_tokens > 0) name += (name.empty() ? "tg" : "+tg") + std::to_string(test.decode_tokens);
  if (test.batch > 0) name += "xb" + std::to_string(test.batch);
  if (test.rows > 0) name += "xv" + std::to_string(test.rows);
  return name + (test.depth > 0 ? "@d" + std::to_string(test.depth) : "");
}

std::vector<BenchTest> tests_of(const BenchOptions& options) {
  std::vector<BenchTest> tests;
  for (const int64_t depth : options.depths) {
    for (const int64_t prompt : options.prompt_tokens) {
      if (prompt > 0) tests.push_back({prompt, 0, depth});
    }
    for (const int64_t decode : options.decode_tokens) {
      if (decode == 0) continue;
      if (options.batches.empty() && options.rows.empty()) tests.push_back({0, decode, depth});
      for (const int64_t batch : options.batches) tests.push_back({0, decode, depth, batch, 0});
      for (const int64_t rows : options.rows) tests.push_back({0, decode, depth, 0, rows});
    }
    for (const std::string& pair : options.both) {
      BenchTest test = {0, 0, depth};
      if (parse_pair(pair, &test)) tests.push_back(test);
    }
  }
  return tests;
}

Run setup_bench(Command app) {
  auto options = std::make_shared<BenchOptions>();
  add_model_or_synthetic_options(app, &options->run);
  add_test_options(app, options);
  add_report_options(app, options);
  add_number_options(app, &options->run);
  app.add_flag("--no-cache", options->run.no_cache);
  add_speed_options(app, &options->run);
  app.find("--cores").joined(';').describe(
      "Cores to use: 0-3,8 or big, little, all; several sets: 0-3;4-7 or repeated");
  // Rank 0 tests all thread counts; the other boards use one team.
  const auto prepare_follower = [options] {
    if (!options->threads.empty()) options->run.team.threads = std::ranges::max(options->threads);
  };
  return {[options] { return run_bench(*options); }, {&options->run}, {}, prepare_follower};
}

}  // namespace pinion
