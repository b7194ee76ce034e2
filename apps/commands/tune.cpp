// pinion tune: measures teams, ways through the weights and prefill chunks in rounds, keeps the best for this machine,
// and says by how much.
#include "engine/measure/tuning.h"
#include "kernels/base/clock.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/cli/machine.h"
#include "apps/cli/output_file.h"
#include "apps/cli/sensors.h"
#include "apps/commands.h"
#include "apps/commands/tune_boards.h"
#include "engine/forward/rope.h"
#include "engine/measure/statistics.h"
#include "kernels/access_pattern.h"

namespace pinion {
namespace {

struct Options {
  RunOptions run;
  double seconds = 60;
  bool forget = false;
  bool dry_run = false;
  bool json = false;
};

// A team with a way through the weights and a chunk.
struct Trial {
  Plan plan;
  Measured measured;
  bool is_dropped = false;
};

// What was measured: teams for decode, access patterns with the best of them; teams for prefill, chunks with the best
// of them.
struct Trials {
  std::vector<Trial> decode_teams, decode, prefill_teams, prefill;
};

struct Tuner {
  const Options& options;
  Topology topology = {};
  Runtime runtime = {};
  std::vector<float> logits = {};
  double start_seconds = 0;
  ProgressBar bar{"tuning"};
};

constexpr int kLeastRounds = 2;  // one alone may have met somebody else's work
constexpr int kRounds = 3;       // that the time is cut for; what the dropped ones leave makes more

Trial make_trial(const Topology& topology, const std::vector<int32_t>& cpus, int64_t chunk) {
  Trial trial;
  trial.plan.decode = trial.plan.prefill = team_on(topology, cpus);
  trial.plan.prefill_chunk = chunk;
  trial.measured.is_default = cpus == default_team(topology) && chunk == kDefaultPrefillChunk;
  return trial;
}

// Tokens a second of a test repeated for so long, at least once; the cores and caches are warmed up before.
Error measure_slice(Tuner& tuner, const Plan& plan, const BenchTest& test, double seconds, double* rate) {
  if (Error e = use_plan(plan, &tuner.runtime)) return e;
  std::unique_ptr<Session> session;
  if (Error e = open_session(tuner.runtime, {.capacity = test.tokens()}, &session)) return e;
  const BenchTest warm_up{std::min<int64_t>(test.prompt_tokens, 16), std::min<int64_t>(test.decode_tokens, 1), 0};
  double once = 0, all = 0;
  if (Error e = run_once(*session, warm_up, tuner.logits, &once)) return e;
  int64_t tokens = 0;
  do {
    if (Error e = run_once(*session, test, tuner.logits, &once)) return e;
    tokens += test.tokens();
    all += once;
  } while (all < seconds);
  *rate = static_cast<double>(tokens) / all;
  return {};
}

// In rounds, A B C A B C: a clock that drifts is everybody's. `until` is a time of now_seconds.
Error measure_trials(Tuner& tuner, const BenchTest& test, double until, std::vector<Trial>& trials) {
  const double slice = std::max(0.0, until - now_seconds()) / static_cast<double>(kRounds * trials.size());
  for (int round = 1; round <= kLeastRounds || now_seconds() < until; ++round) {
    for (Trial& trial : trials) {
      if (trial.is_dropped) continue;
      double rate = 0;
      if (Error e = measure_slice(tuner, trial.plan, test, slice, &rate)) return e;
      trial.measured.rates.push_back(rate);
      tuner.bar.show((now_seconds() - tuner.start_seconds) / tuner.options.seconds);
    }
    if (round < kLeastRounds) continue;
    std::vector<Measured> all;
    for (const Trial& trial : trials) all.push_back(trial.measured);
    for (Trial& trial : trials) trial.is_dropped = is_clearly_behind(trial.measured, all);
    if (std::ranges::count(trials, false, &Trial::is_dropped) == 1) break;
  }
  return {};
}

size_t best_trial(const std::vector<Trial>& trials) {
  std::vector<Measured> all;
  for (const Trial& trial : trials) all.push_back(trial.measured);
  return best_of(all);
}

double default_rate(const std::vector<Trial>& trials) {
  const auto found = std::ranges::find_if(trials, [](const Trial& trial) { return trial.measured.is_default; });
  return median_of(found->measured.rates);
}

TunedTeam tuned_team(const std::vector<Trial>& trials) {
  const Trial& best = trials[best_trial(trials)];
  return {best.plan.decode.cpus, median_of(best.measured.rates), default_rate(trials)};
}

// Teams of at least `threads`.
std::vector<Trial> team_trials(const Topology& topology, size_t threads) {
  std::vector<Trial> trials;
  for (const std::vector<int32_t>& cpus : candidate_teams(topology)) {
    if (cpus.size() < threads) continue;
    trials.push_back(make_trial(topology, cpus, kDefaultPrefillChunk));
    trials.back().measured.size = std::ssize(cpus);
  }
  return trials;
}

BenchTest decode_test(const Tuner& tuner) {
  return {0, std::min<int64_t>(4, context_length(tuner.runtime.model->config)), 0};
}

Error tune_decode_team(Tuner& tuner, double until, std::vector<Trial>* out) {
  *out = team_trials(tuner.topology, 1);
  return measure_trials(tuner, decode_test(tuner), until, *out);
}

// The ways through the weights on that team, and what would run untuned to compare with.
Error tune_access(Tuner& tuner, const Plan& best, double until, std::vector<Trial>* out) {
  const std::vector<int32_t> usual = default_team(tuner.topology);
  out->push_back(make_trial(tuner.topology, usual, kDefaultPrefillChunk));
  for (size_t row = 0; row < std::size(kAccessPatterns); ++row) {
    if (row == default_access_pattern() && best.decode.cpus == usual) continue;
    Trial trial = make_trial(tuner.topology, best.decode.cpus, kDefaultPrefillChunk);
    trial.plan.access = row;
    trial.measured.is_default = false;
    out->push_back(std::move(trial));
  }
  for (Trial& trial : *out) trial.measured.size = std::ssize(trial.plan.decode.cpus);
  return measure_trials(tuner, decode_test(tuner), until, *out);
}

// The longest prompt that takes the default team no longer, a power of two.
Error choose_prompt(Tuner& tuner, double seconds, BenchTest* out) {
  constexpr int64_t kShortest = 16, kLongest = 1024;
  const int64_t context = context_length(tuner.runtime.model->config);
  double rate = 0;
  const Trial usual = make_trial(tuner.topology, default_team(tuner.topology), kDefaultPrefillChunk);
  if (Error e = measure_slice(tuner, usual.plan, {std::min(kShortest, context), 0, 0}, 0, &rate)) return e;
  const auto most = static_cast<uint64_t>(std::clamp(rate * seconds, double{kShortest}, double{kLongest}));
  *out = {std::min(static_cast<int64_t>(std::bit_floor(most)), context), 0, 0};
  return {};
}

// With the default chunk. Arithmetic is what bounds prefill: far fewer threads than the default's cannot win.
Error tune_prefill_team(Tuner& tuner, double until, std::vector<Trial>* out) {
  *out = team_trials(tuner.topology, (default_team(tuner.topology).size() + 1) / 2);
  const double share = (until - now_seconds()) / static_cast<double>(kRounds * out->size());
  BenchTest test = {};
  if (Error e = choose_prompt(tuner, share, &test)) return e;
  return measure_trials(tuner, test, until, *out);
}

// The chunks on that team, and what would run untuned to compare with.
Error tune_chunk(Tuner& tuner, const Plan& best, double until, std::vector<Trial>* out) {
  const std::vector<int32_t> usual = default_team(tuner.topology);
  out->push_back(make_trial(tuner.topology, usual, kDefaultPrefillChunk));
  constexpr int kChunks = 6;  // that a long prompt can tell apart
  BenchTest test = {};
  if (Error e = choose_prompt(tuner, (until - now_seconds()) / (kLeastRounds * kChunks), &test)) return e;
  for (const int64_t chunk : candidate_chunks(test.prompt_tokens, kDefaultPrefillChunk)) {
    if (chunk == kDefaultPrefillChunk && best.prefill.cpus == usual) continue;
    out->push_back(make_trial(tuner.topology, best.prefill.cpus, chunk));
  }
  for (Trial& trial : *out) trial.measured.size = trial.plan.prefill_chunk;
  return measure_trials(tuner, test, until, *out);
}

// Half of the time for decode, where that of a conversation goes.
Error measure_all(Tuner& tuner, Trials* out) {
  tuner.start_seconds = now_seconds();
  const auto after = [&](double share) { return tuner.start_seconds + share * tuner.options.seconds; };
  if (Error e = tune_decode_team(tuner, after(0.3), &out->decode_teams)) return e;
  const Plan& team = out->decode_teams[best_trial(out->decode_teams)].plan;
  if (Error e = tune_access(tuner, team, after(0.5), &out->decode)) return e;
  if (Error e = tune_prefill_team(tuner, after(0.75), &out->prefill_teams)) return e;
  return tune_chunk(tuner, out->prefill_teams[best_trial(out->prefill_teams)].plan, after(1), &out->prefill);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day = {};
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", gmtime_r(&now, &day));
  return text;
}

OrderedJson trials_json(const std::vector<Trial>& trials) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    list.push_back({{"cpus", trial.plan.decode.cpus},
                    {"prefill_chunk", trial.plan.prefill_chunk},
                    {"access", kAccessPatterns[trial.plan.access].name},
                    {"tokens_per_second", median_of(trial.measured.rates)},
                    {"rounds", trial.measured.rates.size()},
                    {"default", trial.measured.is_default},
                    {"chosen", i == best_trial(trials)}});
  }
  return list;
}

// What a table's trials differ in besides their teams.
struct Column {
  const char* heading = nullptr;
  std::string (*text)(const Plan&) = nullptr;
};
constexpr Column kChunkColumn = {"chunk", [](const Plan& plan) { return std::to_string(plan.prefill_chunk); }};
constexpr Column kAccessColumn = {"access pattern",
                                  [](const Plan& plan) { return std::string(kAccessPatterns[plan.access].name); }};

void print_table(const char* heading, const std::vector<Trial>& trials, const Column& column) {
  print(std::string("| ") + heading + " on CPUs | threads | " +
        (column.heading ? std::string(column.heading) + " | " : "") + "tokens/s | rounds | |\n|:--|--:|" +
        (column.heading ? "--:|" : "") + "--:|--:|:--|\n");
  for (size_t i = 0; i < trials.size(); ++i) {
    const Trial& trial = trials[i];
    const std::vector<int32_t>& cpus = trial.plan.decode.cpus;
    const char* marks = i == best_trial(trials)     ? (trial.measured.is_default ? "chosen, default" : "chosen")
                        : trial.measured.is_default ? "default"
                                                    : "";
    print("| " + cpus_text(cpus) + " | " + std::to_string(cpus.size()) + " | " +
          (column.text ? column.text(trial.plan) + " | " : "") + rate_text(median_of(trial.measured.rates), 1) + " | " +
          std::to_string(trial.measured.rates.size()) + " | " + marks + " |\n");
  }
  print("\n");
}

void print_result(const Options& options, const Tuning& tuning, const Trials& trials) {
  const std::string file = options.dry_run ? "" : tuning.path;
  if (options.json) {
    return print_json({{"machine", tuning.key},
                       {"decode_teams", trials_json(trials.decode_teams)},
                       {"decode", trials_json(trials.decode)},
                       {"prefill_teams", trials_json(trials.prefill_teams)},
                       {"prefill", trials_json(trials.prefill)},
                       {"file", file.empty() ? OrderedJson(nullptr) : OrderedJson(file)}});
  }
  print_table("decode", trials.decode_teams, {});
  print_table("decode", trials.decode, kAccessColumn);
  print_table("prefill", trials.prefill_teams, {});
  print_table("prefill", trials.prefill, kChunkColumn);
  print(options.dry_run ? "nothing kept: --dry-run\n" : "kept for this machine in " + file + "\n");
}

Error prepare(const Options& options, Tuner* out) {
  RunOptions run = options.run;
  run.plan = make_trial(out->topology, default_team(out->topology), kDefaultPrefillChunk).plan;
  if (Error e = open_with_progress(run, &out->runtime)) return e;
  const Model& model = *out->runtime.model;
  out->logits.resize(static_cast<size_t>(model.config.vocab_size));
  if (model.weight_bytes < out->topology.last_level_cache_bytes) {
    note(
        "this model fits into the caches; what is best for it may be slow for larger ones: tune with those that you "
        "use");
  }
  return {};
}

// Writing the file: its folder and the file are opened before anything long begins. Without a machine left it goes.
Error open_tune_file(const Tuning& tuning, OutputFile* out) {
  if (tuning.path.empty()) return error("no folder for the result", "tune", "HOME or XDG_CONFIG_HOME");
  std::error_code code;
  const std::filesystem::path folder = std::filesystem::path(tuning.path).parent_path();
  std::filesystem::create_directories(folder, code);
  if (code) return error("cannot make the folder", folder.string(), {}, code.message());
  return out->open(tuning.path);
}

Error write_tune_file(const Tuning& tuning, OutputFile& file) {
  if (tuning.machines.empty()) {
    if (std::remove(tuning.path.c_str()) == 0) return {};
    return error("cannot remove", tuning.path, {}, std::strerror(errno));
  }
  const std::string text = tune_file_text(tuning.machines);
  if (Error e = file.write(text.data(), text.size())) return e;
  return file.finish();
}

int forget(Tuning tuning) {
  if (tuning.is_damaged) {  // what it held is lost to every machine already
    note(tuning.reason.message() + "; removing the file");
    tuning.machines.clear();
  } else if (std::erase_if(tuning.machines, [&](const TunedMachine& one) { return one.machine == tuning.key; }) == 0) {
    print("nothing was kept for this machine\n");
    return kSuccess;
  }
  OutputFile file;
  if (Error e = open_tune_file(tuning, &file)) return fail(e);
  if (Error e = write_tune_file(tuning, file)) return fail(e);
  print("forgotten in " + tuning.path + "\n");
  return kSuccess;
}

// What others have kept meanwhile stays.
Error keep(const Tuner& tuner, const Trials& trials) {
  OutputFile file;
  Tuning tuning = read_tuning(tuner.topology);
  if (tuning.is_damaged) note(tuning.reason.message() + "; replaced");
  std::erase_if(tuning.machines, [&](const TunedMachine& one) { return one.machine == tuning.key; });
  const Options& options = tuner.options;
  tuning.machines.push_back({tuning.key, tuned_team(trials.decode), tuned_team(trials.prefill),
                             trials.prefill[best_trial(trials.prefill)].plan.prefill_chunk,
                             std::string(kAccessPatterns[trials.decode[best_trial(trials.decode)].plan.access].name),
                             model_name(options.run), mode_text(options.run), tuner.runtime.kernels->name, today(),
                             PINION_VERSION});
  if (Error e = open_tune_file(tuning, &file)) return e;
  return write_tune_file(tuning, file);
}

int run(const Options& options) {
  Tuner tuner{options};
  if (Error e = read_topology(&tuner.topology)) return fail(e);
  const Tuning tuning = read_tuning(tuner.topology);
  if (options.forget) return forget(tuning);
  if (options.run.model.empty() && options.run.synthetic.empty()) {
    return fail_usage("no model: give --model or --synthetic");
  }
  if (!options.dry_run) {
    // Whether it can be written is better known before a minute of measuring. Nothing stays of it but the folder.
    OutputFile trial;
    if (Error e = open_tune_file(tuning, &trial)) return fail(e);
  }
  if (Error e = prepare(options, &tuner)) return fail(e);
  Trials trials;
  if (Error e = measure_all(tuner, &trials)) return fail(e);
  for (const std::string& line : clock_limits("/sys", tuner.topology.cpus)) note(line);
  if (!options.dry_run) {
    if (Error e = keep(tuner, trials)) return fail(e);
  }
  print_result(options, tuning, trials);
  return kSuccess;
}

}  // namespace

Run setup_tune(Command app) {
  auto options = std::make_shared<Options>();
  add_model_or_synthetic_options(app, &options->run);
  add_number_options(app, &options->run);
  add_cache_option(app, &options->run);
  app.add_option("--seconds", options->seconds, "About how long to measure")
      .range(1, 3600)
      .type_name("N")
      .show_default();
  app.add_flag("--dry-run", options->dry_run, "Measure, and keep nothing");
  app.add_flag("--forget", options->forget, "Measure nothing: remove what was kept for this machine");
  app.add_flag("--json", options->json, "Print one JSON object");
  return {.run = [options] { return run(*options); },
          .on_all =
              [options](Exchange& exchange) {
                return tune_boards(exchange, options->run, {options->forget, options->dry_run, options->json});
              }};
}

}  // namespace pinion
