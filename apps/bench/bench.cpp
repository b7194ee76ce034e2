// pinion bench: measures prefill and decode, and compares decode with the read bandwidth measured in the same run.
#include "apps/bench/bench.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "apps/cli/output_file.h"
#include "apps/commands.h"

namespace pinion {
namespace {

int run_bench(BenchOptions options) {
  if (options.run.model.empty() && options.run.synthetic.empty()) {
    return fail_usage("no model: give --model or --synthetic");
  }
  if (options.threads.empty()) options.threads = {0};
  if (tests_of(options).empty()) return fail_usage("nothing to measure: -p and -n are 0, and there is no -pg");
  Runtime runtime;
  std::vector<BenchRecord> records;
  OutputFile plot;  // opened first, so that a wrong path fails before hours of measuring
  if (!options.plot.empty()) {
    if (Error e = plot.open(options.plot)) return fail(e);
  }
  if (Error e = measure(options, runtime, &records)) return fail(e);
  print_bench(options, runtime, records);
  std::set<std::string> clock_limits;
  for (const BenchRecord& r : records) clock_limits.insert(r.clock_limits.begin(), r.clock_limits.end());
  for (const std::string& line : clock_limits) note(line);
  if (!options.prompt_cache.empty()) {
    if (Error e = measure_prompt_cache(options, runtime)) return fail(e);
  }
  if (options.plot.empty()) return kSuccess;
  if (Error e = plot.finish(plot_svg(records))) return fail(e);
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
  return static_cast<size_t>(end) == text.size() && std::min(prompt, decode) > 0 &&
         std::max(prompt, decode) <= kMaxTestTokens;
}

void add_test_options(Command app, const std::shared_ptr<BenchOptions>& options) {
  const auto add_list = [&](const char* spelling, auto& list, double min, double max, const char* help) {
    app.add_number(spelling, list, min, max, help).list();
  };
  add_list("-p LIST", options->prompt_tokens, 0, kMaxTestTokens,
           "Prompt tokens of each prefill test: 512,4096 (default: 512); 0: none");
  add_list("-n LIST", options->decode_tokens, 0, kMaxTestTokens, "Tokens of each decode test (default: 128); 0: none");
  add_list("-d LIST", options->depths, 0, kMaxTestTokens,
           "Positions in the cache before each test: 0,4096 (default: 0)");
  add_list("-b LIST", options->batches, 1, 256, "Sequences decoded at once, for -n passes: 1,2,4,8,16");
  add_list("-v LIST", options->rows, 1, 256,
           "Rows of one sequence in a pass, as in the verification of drafts: 1,2,4,8");
  app.add_option("--pg P,N", options->both, "Also -pg: a prompt of P tokens, then N decoded tokens; repeatable")
      .check([](const std::string& text) {
        BenchTest test = {};
        return parse_pair(text, &test) ? std::string() : "want two counts like 512,128, have " + text;
      })
      .repeatable();
  app.add_path("--prompt-cache DIR", options->prompt_cache,
               "Also time the first token of texts that share the tokens of -p, from memory and from files in DIR");
  app.add_number("-r N", options->repetitions, 1, 10000, "Repetitions").show_default();
  add_list("-t,--threads LIST", options->threads, 1, kMaxThreads,
           "Thread counts: 1,2,4 (default: as tuned, else one per useful core)");
}

void add_report_options(Command app, const std::shared_ptr<BenchOptions>& options) {
  app.add_option("-o FORMAT", options->format, "Output: md, json, jsonl or csv")
      .one_of({"md", "json", "jsonl", "csv"})
      .show_default();
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
