// pinion bench: prints tables, CSV and JSON.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
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
  const std::string parameters =
      formatted("%.2f M", static_cast<double>(count_parameters(runtime.model->config).all) / 1e6);
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

}  // namespace

std::string model_name(const RunOptions& run) {
  const bool is_file = !run.synthetic.empty();
  if (const std::string name = repository_name(run.model); !is_file && !name.empty()) return name;
  std::filesystem::path path = std::filesystem::absolute(is_file ? run.synthetic : run.model).lexically_normal();
  if (is_file || path.filename().empty()) path = path.parent_path();
  return path.filename();
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

}  // namespace pinion
