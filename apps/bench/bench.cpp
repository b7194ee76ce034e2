// pinion bench: measures prefill and decode, compares decode with the read bandwidth of the same run, prints tables.
#include "apps/bench/bench.h"

#include <nlohmann/json.hpp>
#include <set>

#include "apps/cli/output_file.h"
#include "apps/commands.h"
#include "apps/model/build.h"

namespace pinion {
namespace {

std::string formatted_if(const char* layout, const std::optional<double>& value) {
  return value ? formatted(layout, *value) : "";
}

std::optional<double> rate_per_sequence(const BenchRecord& r) {
  return r.test.batch > 0 ? std::optional(r.rates.median / static_cast<double>(r.test.batch)) : std::nullopt;
}

OrderedJson json_or_null(const std::optional<double>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

bool one_token(const BenchTest& test) { return test.prompt_tokens == 0 && test.rows_of_pass() == 1; }

double ms_per_token(const BenchProfile& profile) { return profile.seconds * 1e3 / static_cast<double>(profile.tokens); }

double per_token(const BenchProfile& profile, int64_t count) {
  return static_cast<double>(count) / static_cast<double>(profile.tokens);
}

// --- Table: md and csv

struct ReportColumn {
  std::string heading;
  std::function<std::string(const BenchRecord&)> cell;
  bool optional = false;  // omitted if it is empty in all records
};

std::string clock_text(const BenchRecord& r) {
  if (!r.clock) return {};
  if (!r.clock->throttled()) return formatted("%.0f", r.clock->first_mhz);
  return formatted("%.0f to %.0f, throttled", r.clock->first_mhz, r.clock->min_mhz);
}

std::vector<ReportColumn> md_columns(const BenchOptions& options, const Runtime& runtime) {
  const std::string name = model_name(options.run) + " " + mode_text(options.run);
  const std::string size = bytes_text(static_cast<double>(runtime.model->weight_bytes));
  const auto parameters = formatted("%.2f M", static_cast<double>(count_parameters(runtime.model->config).all) / 1e6);
  using Record = BenchRecord;
  return {
      {"model", [=](const Record&) { return name; }},
      {"size", [=](const Record&) { return size; }},
      {"params", [=](const Record&) { return parameters; }},
      {"cores", [](const Record& r) { return r.cores; }, true},
      {"threads", [](const Record& r) { return std::to_string(r.threads()); }},
      {"test", [](const Record& r) { return test_name(r.test); }},
      {"tokens/s", [](const Record& r) { return formatted("%.2f ± %.2f", r.rates.mean, r.rates.deviation); }},
      {"median", [](const Record& r) { return formatted("%.2f", r.rates.median); }},
      {"MB/token", [](const Record& r) { return formatted("%.3f", r.bytes_per_token / 1e6); }},
      {"roof GB/s", [](const Record& r) { return formatted("%.2f", r.roof / 1e9); }},
      {"per text", [](const Record& r) { return formatted_if("%.2f", rate_per_sequence(r)); }, true},
      {"pass over 1 row", [](const Record& r) { return formatted_if("%.3f", r.pass_cost); }, true},
      {"share of roof", [](const Record& r) { return formatted_if("%.3f", r.roof_share); }, true},
      {"MHz", clock_text, true},
      {"°C", [](const Record& r) { return formatted_if("%.0f", r.celsius); }, true},
      {"J/token", [](const Record& r) { return formatted_if("%.4g", r.joules_per_token); }, true},
  };
}

std::vector<ReportColumn> csv_columns(bool with_profile) {
  using Record = BenchRecord;
  std::vector<ReportColumn> columns = {
      {"test", [](const Record& r) { return test_name(r.test); }},
      {"threads", [](const Record& r) { return std::to_string(r.threads()); }},
      {"tokens_per_second_mean", [](const Record& r) { return formatted("%.3f", r.rates.mean); }},
      {"tokens_per_second_stddev", [](const Record& r) { return formatted("%.3f", r.rates.deviation); }},
      {"bytes_per_token", [](const Record& r) { return formatted("%.0f", r.bytes_per_token); }},
      {"roof_gb_per_s", [](const Record& r) { return formatted("%.3f", r.roof / 1e9); }},
      {"roof_share", [](const Record& r) { return formatted_if("%.4f", r.roof_share); }},
      {"tokens_per_second_median", [](const Record& r) { return formatted("%.3f", r.rates.median); }},
      {"pass_over_one_row", [](const Record& r) { return formatted_if("%.4f", r.pass_cost); }, true},
      {"cores", [](const Record& r) { return r.cores.empty() ? "" : '"' + r.cores + '"'; }, true},
      {"mhz_first", [](const Record& r) { return r.clock ? formatted("%.0f", r.clock->first_mhz) : ""; }, true},
      {"mhz_least", [](const Record& r) { return r.clock ? formatted("%.0f", r.clock->min_mhz) : ""; }, true},
      {"throttled", [](const Record& r) { return r.clock ? std::to_string(r.clock->throttled()) : ""; }, true},
      {"celsius", [](const Record& r) { return formatted_if("%.1f", r.celsius); }, true},
      {"joules_per_token", [](const Record& r) { return formatted_if("%.6g", r.joules_per_token); }, true},
  };
  if (!with_profile) return columns;
  for (size_t i = 0; i < kStages; ++i) {
    columns.push_back({std::string(kStageTraits[i].name) + "_ms_per_token", [i](const Record& r) {
                         const double share = shares_of(*r.profile, one_token(r.test)).stages[i];
                         return formatted("%.6f", share * ms_per_token(*r.profile));
                       }});
  }
  columns.push_back({"waiting_share", [](const Record& r) {
                       return formatted("%.4f", shares_of(*r.profile, one_token(r.test)).waiting_all);
                     }});
  return columns;
}

void print_bench_table(std::vector<ReportColumn> columns, const std::vector<BenchRecord>& records, bool is_csv) {
  std::erase_if(columns, [&](const ReportColumn& column) {
    return column.optional &&
           std::ranges::all_of(records, [&](const BenchRecord& record) { return column.cell(record).empty(); });
  });
  const auto print_row = [&](const auto& cell) {
    std::string line;
    for (const ReportColumn& column : columns) {
      line += is_csv ? (line.empty() ? "" : ",") : (line.empty() ? "| " : " | ");
      line += cell(column);
    }
    print(line + (is_csv ? "\n" : " |\n"));
  };
  print_row([](const ReportColumn& column) { return column.heading; });
  if (!is_csv) print_row([](const ReportColumn&) { return std::string("--:"); });
  for (const BenchRecord& record : records) print_row([&](const ReportColumn& column) { return column.cell(record); });
}

// --- Profile

void print_profile(const BenchRecord& record) {
  const BenchProfile& p = *record.profile;
  const ProfileShares shares = shares_of(p, one_token(record.test));
  const double ms = ms_per_token(p);
  print("\n" + test_name(record.test) + ", " + std::to_string(record.threads()) + " threads" +
        (record.cores.empty() ? "" : " on " + record.cores) +
        formatted(
            ": %.3f ms a token, %.2f regions and %.1f barriers a token, waiting %.1f %%, repeated by every worker "
            "%.1f %%\n\n",
            ms, per_token(p, p.regions), per_token(p, p.barriers), shares.waiting_all * 100, shares.repeated * 100));
  print("| stage | ms/token | share | of that waiting |\n|:--|--:|--:|--:|\n");
  for (size_t i = 0; i < kStages; ++i) {
    if (shares.stages[i] == 0) continue;  // stages of other models
    print("| " + std::string(kStageTraits[i].name) +
          formatted(" | %.4f | %.3f | %.3f |\n", shares.stages[i] * ms, shares.stages[i],
                    shares.waiting[i] / shares.stages[i]));
  }
  print(formatted("| outside | %.4f | %.3f | |\n", shares.outside * ms, shares.outside));
  print("\n| worker | CPU | ms/token waiting | share waiting |\n|--:|--:|--:|--:|\n");
  for (size_t i = 0; i < shares.workers_waiting.size(); ++i) {
    const std::string cpu = record.cpus[i] < 0 ? "any" : std::to_string(record.cpus[i]);
    print(formatted("| %zu | %s | %.4f | %.3f |\n", i, cpu.c_str(), shares.workers_waiting[i] * ms,
                    shares.workers_waiting[i]));
  }
  if (!p.boards.empty()) print(board_stages_text(p));
}

OrderedJson profile_json(const BenchRecord& record) {
  const BenchProfile& p = *record.profile;
  const ProfileShares shares = shares_of(p, one_token(record.test));
  OrderedJson stages = OrderedJson::array(), workers = OrderedJson::array();
  for (size_t i = 0; i < kStages; ++i) {
    stages.push_back({{"stage", kStageTraits[i].name},
                      {"ms_per_token", shares.stages[i] * ms_per_token(p)},
                      {"share", shares.stages[i]},
                      {"waiting_share", shares.waiting[i]}});
  }
  for (size_t w = 0; w < p.profile.workers.size(); ++w) {
    OrderedJson work_ms = OrderedJson::object(), wait_ms = OrderedJson::object();
    for (size_t i = 0; i < kStages; ++i) {
      const StageTime& time = p.profile.workers[w].stages[i];
      work_ms[std::string(kStageTraits[i].name)] = per_token(p, time.work_ns) / 1e6;
      wait_ms[std::string(kStageTraits[i].name)] = per_token(p, time.wait_ns) / 1e6;
    }
    workers.push_back({{"cpu", record.cpus[w]},
                       {"waiting_share", shares.workers_waiting[w]},
                       {"work_ms_per_token", work_ms},
                       {"wait_ms_per_token", wait_ms}});
  }
  OrderedJson json = {{"ms_per_token", ms_per_token(p)},
                      {"regions_per_token", per_token(p, p.regions)},
                      {"barriers_per_token", per_token(p, p.barriers)},
                      {"waiting_share", shares.waiting_all},
                      {"repeated_share", shares.repeated},
                      {"outside_share", shares.outside},
                      {"stages", stages},
                      {"workers", workers}};
  if (!p.boards.empty()) json["boards"] = board_stages_json(p);
  return json;
}

// --- JSON

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

void print_bench(const BenchOptions& options, const Runtime& runtime, const std::vector<BenchRecord>& records) {
  if (options.format == "json") {
    OrderedJson list = OrderedJson::array();
    for (const BenchRecord& record : records) list.push_back(record_json(options, runtime, record));
    return print_json(list, 2);
  }
  if (options.format == "jsonl") {
    for (const BenchRecord& record : records) print_json(record_json(options, runtime, record));
    return;
  }
  if (options.format == "csv") return print_bench_table(csv_columns(options.profile), records, true);
  print(cpu_name() + ", " + compiler_name() + ", pinion " PINION_VERSION " " + build_commit() + ", kernels " +
        runtime.kernels->name + ", quant " + mode_text(options.run) + ", kv " + std::string(kv_name(options.run)) +
        "\n\n");
  print_bench_table(md_columns(options, runtime), records, false);
  for (const BenchRecord& record : records) {
    if (record.boards) print(boards_text(record));
    if (record.profile) print_profile(record);
  }
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
  print_bench(options, runtime, records);
  std::set<std::string> clock_limits;
  for (const BenchRecord& r : records) clock_limits.insert(r.clock_limits.begin(), r.clock_limits.end());
  for (const std::string& line : clock_limits) note(line);
  if (Error e = options.prompt_cache.empty() ? Error{} : measure_prompt_cache(options, runtime)) return fail(e);
  if (Error e = options.plot.empty() ? Error{} : plot.finish(plot_svg(records))) return fail(e);
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
  const auto add = [&](const char* spelling, auto& list, double min, double max, const char* help) {
    app.add_number(spelling, list, min, max, help).list();
  };
  add("-p LIST", options->prompt_tokens, 0, kMaxTestTokens,
      "Prompt tokens of each prefill test: 512,4096 (default: 512); 0: none");
  add("-n LIST", options->decode_tokens, 0, kMaxTestTokens, "Tokens of each decode test (default: 128); 0: none");
  add("-d LIST", options->depths, 0, kMaxTestTokens, "Positions in the cache before each test: 0,4096 (default: 0)");
  add("-b LIST", options->batches, 1, 256, "Sequences decoded at once, for -n passes: 1,2,4,8,16");
  add("-v LIST", options->rows, 1, 256, "Rows of one sequence in a pass, as in the verification of drafts: 1,2,4,8");
  app.add_option("--pg P,N", options->both, "Also -pg: a prompt of P tokens, then N decoded tokens; repeatable")
      .check([](const std::string& text) {
        BenchTest test = {};
        return parse_pair(text, &test) ? std::string() : "want two counts like 512,128, have " + text;
      });
  app.add_path("--prompt-cache DIR", options->prompt_cache,
               "Also time the first token of texts that share the tokens of -p, from memory and from files in DIR");
  app.add_number("-r N", options->repetitions, 1, 10000, "Repetitions");
  add("-t,--threads LIST", options->threads, 1, kMaxThreads,
      "Thread counts: 1,2,4 (default: as tuned, else one per useful core)");
}

void add_report_options(Command app, const std::shared_ptr<BenchOptions>& options) {
  app.add_option("-o FORMAT", options->format, "Output: md, json, jsonl or csv").one_of({"md", "json", "jsonl", "csv"});
  app.add_flag("--profile", options->profile, "Also report the time by stage and worker, and the waits at barriers");
  app.add_path("--plot F.svg", options->plot, "Also draw speed against threads, and the stages with --profile");
  // For tests.
  app.add_option("--sysfs DIR", options->sysfs, "Folder of the machine's sensors").hidden();
  app.add_number("--roof-mb N", options->roof_mb, 2, 1 << 20, "Size of the buffer for the roof").hidden();
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
  add_cache_option(app, &options->run);
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
