// pinion bench: prefill and decode speed, decode also as a share of the read bandwidth measured in the same run.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "apps/commands.h"
#include "apps/machine.h"
#include "engine/bandwidth.h"
#include "engine/rope.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  std::string synthetic;
  int64_t prompt_tokens = 512;
  int64_t decode_tokens = 128;
  int32_t repetitions = 5;
  std::vector<int32_t> threads;
  std::vector<int64_t> depths = {0};
  std::string format = "md";
};

// One row of the report.
struct Record {
  std::string test;  // pp512, tg128, tg128@d4096
  int32_t threads;
  double mean;             // tokens a second
  double deviation;        // of the sample
  double bytes_per_token;  // read from memory: weights and, decoding, the KV cache
  double roof;             // bytes a second
  std::optional<double> roof_share;
};

struct Test {
  bool is_decode;
  int64_t tokens;
  int64_t depth;  // positions in the cache before it starts
};

std::string test_name(const Test& test) {
  return (test.is_decode ? "tg" : "pp") + std::to_string(test.tokens) +
         (test.depth > 0 ? "@d" + std::to_string(test.depth) : "");
}

std::vector<Test> tests_of(const Options& options) {
  std::vector<Test> tests;
  for (const int64_t depth : options.depths) {
    if (options.prompt_tokens > 0) tests.push_back({false, options.prompt_tokens, depth});
    if (options.decode_tokens > 0) tests.push_back({true, options.decode_tokens, depth});
  }
  return tests;
}

// K and V that a token at `position` reads, all layers.
double kv_bytes(const ModelConfig& config, bool kv_float, int64_t position) {
  int64_t positions = 0;
  for (const int64_t window : config.windows) positions += window > 0 ? std::min(window, position + 1) : position + 1;
  return static_cast<double>(positions * config.kv_heads * config.head_dim * 2 * (kv_float ? 4 : 2));
}

double bytes_per_token(const Model& model, const RunOptions& run, const Test& test) {
  const auto weights = static_cast<double>(model.bytes_per_token);
  if (test.is_decode) return weights + kv_bytes(model.config, kv_is_float(run), test.depth + test.tokens / 2);
  const int64_t passes = (test.tokens + run.prefill_chunk - 1) / run.prefill_chunk;
  return weights * static_cast<double>(passes) / static_cast<double>(test.tokens);
}

// Any ids do: speed does not depend on them.
std::vector<int32_t> some_ids(int64_t count, int64_t vocab) {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * 7919 + 1) % vocab);
  return ids;
}

Error run_once(Session& session, const Test& test, std::vector<float>& logits, double* seconds) {
  const std::vector<int32_t> ids = some_ids(test.tokens, session.model->config.vocab_size);
  rewind(session, test.depth);
  const double start = now_seconds();
  if (!test.is_decode) {
    if (Error e = evaluate(session, ids, false, logits.data())) return e;
  } else {
    for (const int32_t& id : ids) {
      if (Error e = evaluate(session, {&id, 1}, false, logits.data())) return e;
    }
  }
  *seconds = now_seconds() - start;
  return {};
}

Error run_test(const Runtime& runtime, const Options& options, const Test& test, double roof,
               const std::function<void()>& tick, Record* out) {
  const int64_t vocab = runtime.model->config.vocab_size;
  std::vector<float> logits(vocab);
  std::unique_ptr<Session> session;
  if (Error e = open_session(runtime, options.run, test.depth + test.tokens, &session)) return e;
  if (test.depth > 0) {
    if (Error e = evaluate(*session, some_ids(test.depth, vocab), false, logits.data())) return e;
  }
  const Test warm_up{test.is_decode, std::min<int64_t>(test.tokens, test.is_decode ? 8 : 64), test.depth};
  double seconds = 0;
  if (Error e = run_once(*session, warm_up, logits, &seconds)) return e;

  std::vector<double> rates;
  for (int32_t i = 0; i < options.repetitions; ++i) {
    if (Error e = run_once(*session, test, logits, &seconds)) return e;
    rates.push_back(static_cast<double>(test.tokens) / seconds);
    tick();
  }
  const auto count = static_cast<double>(rates.size());
  const double mean = std::accumulate(rates.begin(), rates.end(), 0.0) / count;
  double squares = 0;
  for (const double rate : rates) squares += (rate - mean) * (rate - mean);
  const double deviation = rates.size() > 1 ? std::sqrt(squares / (count - 1)) : 0.0;
  const double bytes = bytes_per_token(*runtime.model, options.run, test);
  *out = {test_name(test), runtime.team->size(), mean, deviation, bytes, roof, {}};
  if (test.is_decode) out->roof_share = bytes * mean / roof;
  return {};
}

Error open_bench_model(const Options& options, int32_t threads, std::unique_ptr<Model>* out) {
  ProgressBar bar("loading");
  const LoadOptions load = load_options(options.run, threads, &bar);
  if (!options.synthetic.empty()) return synthetic_model(options.synthetic, load, out);
  if (Error e = check_folder(options.run.model)) return e;
  return load_model(options.run.model, load, out);
}

Error check_context(const ModelConfig& config, const std::vector<Test>& tests) {
  const int64_t context = context_length(config);
  for (const Test& test : tests) {
    const int64_t positions = test.depth + test.tokens;
    if (positions <= context) continue;
    return error("the test is longer than the model's context", test_name(test),
                 "at most " + std::to_string(context) + " positions", std::to_string(positions));
  }
  return {};
}

Error measure(const Options& options, Runtime& runtime, std::vector<Record>* out) {
  std::vector<TeamCpus> teams;
  for (const int32_t threads : options.threads) {
    if (Error e = choose_cpus(options.run.cores, threads, &teams.emplace_back())) return e;
  }
  if (Error e = select_kernels(options.run.kernels, &runtime.kernels)) return e;
  const auto largest = std::ranges::max_element(teams, {}, [](const TeamCpus& team) { return team.cpus.size(); });
  if (Error e = open_bench_model(options, static_cast<int32_t>(largest->cpus.size()), &runtime.model)) return e;
  const std::vector<Test> tests = tests_of(options);
  if (Error e = check_context(runtime.model->config, tests)) return e;

  ProgressBar bar("measuring");
  const double runs = static_cast<double>(teams.size() * tests.size()) * options.repetitions;
  double done = 0;
  const auto tick = [&] { bar.show(++done / runs); };
  for (const TeamCpus& team : teams) {
    runtime.team = std::make_unique<Team>(team.cpus, team.clusters);
    double roof = 0;
    if (Error e = measure_read_bandwidth(*runtime.team, roof_buffer_bytes(), 5, &roof)) return e;
    for (const Test& test : tests) {
      if (Error e = run_test(runtime, options, test, roof, tick, &out->emplace_back())) return e;
    }
  }
  return {};
}

void print_json_report(const Options& options, const Runtime& runtime, const std::vector<Record>& records) {
  OrderedJson list = OrderedJson::array();
  for (const Record& record : records) {
    list.push_back({{"test", record.test},
                    {"threads", record.threads},
                    {"tokens_per_second_mean", record.mean},
                    {"tokens_per_second_stddev", record.deviation},
                    {"repetitions", options.repetitions},
                    {"bytes_per_token", record.bytes_per_token},
                    {"roof_gb_per_s", record.roof / 1e9},
                    {"roof_share", record.roof_share ? OrderedJson(*record.roof_share) : OrderedJson(nullptr)},
                    {"model", options.synthetic.empty() ? options.run.model : options.synthetic},
                    {"parameters", runtime.model->parameters},
                    {"quant", options.run.quant},
                    {"kv", kv_name(options.run)},
                    {"kernels", runtime.kernels->name},
                    {"machine", cpu_name()},
                    {"compiler", compiler_name()},
                    {"version", PINION_VERSION}});
  }
  print_json(list, 2);
}

void print_table(const Options& options, const Runtime& runtime, const std::vector<Record>& records) {
  const bool is_csv = options.format == "csv";
  if (is_csv) {
    print("test,threads,tokens_per_second_mean,tokens_per_second_stddev,bytes_per_token,roof_gb_per_s,roof_share\n");
  } else {
    print(cpu_name() + ", " + compiler_name() + ", pinion " PINION_VERSION ", kernels " + runtime.kernels->name +
          ", quant " + options.run.quant + ", kv " + std::string(kv_name(options.run)) + "\n\n");
    print("| test | threads | tokens/s | MB/token | roof GB/s | share of roof |\n|:--|--:|--:|--:|--:|--:|\n");
  }
  for (const Record& record : records) {
    char line[256];
    char share[32] = "";
    if (record.roof_share) std::snprintf(share, sizeof share, is_csv ? "%.4f" : "%.3f", *record.roof_share);
    const char* layout = is_csv ? "%s,%d,%.3f,%.3f,%.0f,%.3f,%s\n" : "| %s | %d | %.2f ± %.2f | %.3f | %.2f | %s |\n";
    const double unit = is_csv ? 1 : 1e6;
    std::snprintf(line, sizeof line, layout, record.test.c_str(), record.threads, record.mean, record.deviation,
                  record.bytes_per_token / unit, record.roof / 1e9, share);
    print(line);
  }
}

int run(Options options) {
  if (options.run.model.empty() && options.synthetic.empty())
    return fail_usage("no model: give --model or --synthetic");
  if (options.threads.empty()) options.threads = {0};
  if (tests_of(options).empty()) return fail_usage("nothing to measure: -p and -n are both 0");
  Runtime runtime;
  std::vector<Record> records;
  if (Error e = measure(options, runtime, &records)) return fail(e);
  if (options.format == "json") {
    print_json_report(options, runtime, records);
  } else {
    print_table(options, runtime, records);
  }
  return kSuccess;
}

}  // namespace

Run setup_bench(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::Option* model = add_model_option(app, &options->run);
  app.add_option("--synthetic", options->synthetic, "Instead: random weights of the shape a config.json describes")
      ->excludes(model)
      ->type_name("CONFIG.json");
  const CLI::Validator tokens = in_range(0, 1 << 24);
  app.add_option("-p", options->prompt_tokens, "Prompt tokens of the prefill test; 0 leaves it out")
      ->check(tokens)
      ->type_name("N")
      ->capture_default_str();
  app.add_option("-n", options->decode_tokens, "Tokens of the decode test; 0 leaves it out")
      ->check(tokens)
      ->type_name("N")
      ->capture_default_str();
  app.add_option("-r", options->repetitions, "Repetitions")
      ->check(in_range(1, 10000))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("-t,--threads", options->threads, "Thread counts: 1,2,4 (default: one for each core that helps)")
      ->check(in_range(1, kMaxThreads))
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("-d", options->depths, "Positions in the cache before each test: 0,4096 (default: 0)")
      ->check(tokens)
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("-o", options->format, "Output: md, json or csv")
      ->check(CLI::IsMember({"md", "json", "csv"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  add_number_options(app, &options->run);
  add_speed_options(app, &options->run);
  return [options] { return run(*options); };
}

}  // namespace pinion
