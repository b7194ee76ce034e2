// pinion tune: measures teams, access patterns and prefill chunks in rounds and saves the best for this machine. Under
// mpirun it measures the read bandwidth of each board instead, by which models are divided.
#include "engine/measure/tuning.h"
#include "kernels/base/clock.h"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "apps/bench/bench.h"
#include "apps/cli/boards.h"
#include "apps/cli/output_file.h"
#include "engine/forward/rope.h"
#include "engine/measure/bandwidth.h"
#include "engine/measure/statistics.h"
#include "kernels/access_pattern.h"

namespace pinion {
namespace {

struct TuneOptions {
  RunOptions run;
  double seconds = 60;
  bool forget = false;
  bool dry_run = false;
  bool json = false;
};

// A team with an access pattern and a prefill chunk.
struct Trial {
  Plan plan;
  Measured measured;
  bool is_dropped = false;
};

// Teams, access patterns with the best decode team, and chunks with the best prefill team.
struct Trials {
  std::vector<Trial> decode_teams, decode, prefill_teams, prefill;
};

struct Tuner {
  const TuneOptions& options;
  Topology topology = {};
  Runtime runtime = {};
  std::vector<float> logits = {};
  double start_seconds = 0;
  ProgressBar bar{"tuning"};
};

constexpr int kMinRounds = 2;  // a single round may have been disturbed by other processes
constexpr int kRounds = 3;     // rounds that fit into the time; dropped trials leave time for more

Trial make_trial(const Topology& topology, const std::vector<int32_t>& cpus, int64_t chunk) {
  Trial trial;
  trial.plan.decode = trial.plan.prefill = team_on(topology, cpus);
  trial.plan.prefill_chunk = chunk;
  trial.measured.size = std::ssize(cpus);
  trial.measured.is_default = cpus == default_team(topology) && chunk == kDefaultPrefillChunk;
  return trial;
}

Trial default_trial(const Topology& topology) {
  return make_trial(topology, default_team(topology), kDefaultPrefillChunk);
}

// Repeats the test for the given time, at least once, after a warm-up. rate: tokens per second.
Error measure_slice(Tuner& tuner, const Plan& plan, const BenchTest& test, double seconds, double* rate) {
  if (Error e = use_plan(plan, &tuner.runtime)) return e;
  std::unique_ptr<Session> session;
  if (Error e = open_session(tuner.runtime, {.context = test.tokens()}, &session)) return e;
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

std::vector<Measured> measured(const std::vector<Trial>& trials) {
  std::vector<Measured> all;
  for (const Trial& trial : trials) all.push_back(trial.measured);
  return all;
}

// Measures in rounds, A B C A B C, so that a drifting clock affects all trials alike. `until` is a time of now_seconds.
Error measure_trials(Tuner& tuner, const BenchTest& test, double until, std::vector<Trial>& trials) {
  const double slice = std::max(0.0, until - now_seconds()) / static_cast<double>(kRounds * trials.size());
  for (int round = 1; round <= kMinRounds || now_seconds() < until; ++round) {
    for (Trial& trial : trials) {
      if (trial.is_dropped) continue;
      double rate = 0;
      if (Error e = measure_slice(tuner, trial.plan, test, slice, &rate)) return e;
      trial.measured.rates.push_back(rate);
      tuner.bar.show((now_seconds() - tuner.start_seconds) / tuner.options.seconds);
    }
    if (round < kMinRounds) continue;
    const std::vector<Measured> all = measured(trials);
    for (Trial& trial : trials) trial.is_dropped = is_clearly_behind(trial.measured, all);
    if (std::ranges::count(trials, false, &Trial::is_dropped) == 1) break;
  }
  return {};
}

size_t best_trial(const std::vector<Trial>& trials) { return best_candidate(measured(trials)); }

TunedTeam tuned_team(const std::vector<Trial>& trials) {
  const Trial& best = trials[best_trial(trials)];
  const auto usual = std::ranges::find_if(trials, [](const Trial& trial) { return trial.measured.is_default; });
  return {best.plan.decode.cpus, median_of(best.measured.rates), median_of(usual->measured.rates)};
}

// Trials of the teams with at least `threads` threads.
std::vector<Trial> team_trials(const Topology& topology, size_t threads) {
  std::vector<Trial> trials;
  for (const std::vector<int32_t>& cpus : candidate_teams(topology)) {
    if (cpus.size() >= threads) trials.push_back(make_trial(topology, cpus, kDefaultPrefillChunk));
  }
  return trials;
}

BenchTest decode_test(const Tuner& tuner) {
  return {0, std::min<int64_t>(4, context_length(tuner.runtime.model->config)), 0};
}

// Access patterns on that team, and the untuned default for comparison.
Error tune_access(Tuner& tuner, const Plan& best, double until, std::vector<Trial>* out) {
  out->push_back(default_trial(tuner.topology));
  for (size_t row = 0; row < std::size(kAccessPatterns); ++row) {
    if (row == default_access_pattern() && best.decode.cpus == default_team(tuner.topology)) continue;
    Trial& trial = out->emplace_back(make_trial(tuner.topology, best.decode.cpus, kDefaultPrefillChunk));
    trial.plan.access = row;
    trial.measured.is_default = false;
  }
  return measure_trials(tuner, decode_test(tuner), until, *out);
}

// The longest prompt that the default team evaluates within `seconds`, a power of two.
Error choose_prompt(Tuner& tuner, double seconds, BenchTest* out) {
  constexpr int64_t kMinTokens = 16, kMaxTokens = 1024;
  const int64_t context = context_length(tuner.runtime.model->config);
  double rate = 0;
  const Plan usual = default_trial(tuner.topology).plan;
  if (Error e = measure_slice(tuner, usual, {std::min(kMinTokens, context), 0, 0}, 0, &rate)) return e;
  const auto tokens = static_cast<uint64_t>(std::clamp(rate * seconds, double{kMinTokens}, double{kMaxTokens}));
  *out = {std::min<int64_t>(std::bit_floor(tokens), context), 0, 0};
  return {};
}

// Uses the default chunk. Prefill is bound by arithmetic, so teams of less than half the default size are left out.
Error tune_prefill_team(Tuner& tuner, double until, std::vector<Trial>* out) {
  *out = team_trials(tuner.topology, (default_team(tuner.topology).size() + 1) / 2);
  const double slice = (until - now_seconds()) / static_cast<double>(kRounds * out->size());
  BenchTest test = {};
  if (Error e = choose_prompt(tuner, slice, &test)) return e;
  return measure_trials(tuner, test, until, *out);
}

// Chunks on that team, and the untuned default for comparison.
Error tune_chunk(Tuner& tuner, const Plan& best, double until, std::vector<Trial>* out) {
  out->push_back(default_trial(tuner.topology));
  constexpr int kChunks = 6;  // about as many chunk sizes are tried with a long prompt
  BenchTest test = {};
  if (Error e = choose_prompt(tuner, (until - now_seconds()) / (kMinRounds * kChunks), &test)) return e;
  for (const int64_t chunk : candidate_chunks(test.prompt_tokens, kDefaultPrefillChunk)) {
    if (chunk == kDefaultPrefillChunk && best.prefill.cpus == default_team(tuner.topology)) continue;
    out->push_back(make_trial(tuner.topology, best.prefill.cpus, chunk));
  }
  for (Trial& trial : *out) trial.measured.size = trial.plan.prefill_chunk;
  return measure_trials(tuner, test, until, *out);
}

// Spends half of the time on decode, which takes most of a conversation's time.
Error measure_all(Tuner& tuner, Trials* out) {
  tuner.start_seconds = now_seconds();
  const auto after = [&](double fraction) { return tuner.start_seconds + fraction * tuner.options.seconds; };
  out->decode_teams = team_trials(tuner.topology, 1);
  if (Error e = measure_trials(tuner, decode_test(tuner), after(0.3), out->decode_teams)) return e;
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

OrderedJson tune_json(const TuneOptions& options, const Tuning& tuning, const Trials& trials) {
  return {{"machine", tuning.key},
          {"decode_teams", trials_json(trials.decode_teams)},
          {"decode", trials_json(trials.decode)},
          {"prefill_teams", trials_json(trials.prefill_teams)},
          {"prefill", trials_json(trials.prefill)},
          {"file", options.dry_run ? OrderedJson(nullptr) : OrderedJson(tuning.path)}};
}

Error open_tuned_model(const TuneOptions& options, Tuner* out) {
  RunOptions run = options.run;
  run.plan = default_trial(out->topology).plan;
  if (Error e = open_with_progress(run, nullptr, &out->runtime)) return e;
  const Model& model = *out->runtime.model;
  out->logits.resize(model.config.vocab_size);
  if (model.weight_bytes < out->topology.last_level_cache_bytes) {
    note("this model fits into the caches, so the result may be slow for larger ones: tune with a model that you use");
  }
  return {};
}

Error open_tune_file(const Tuning& tuning, OutputFile* out) {
  if (tuning.path.empty()) return error("no folder for the result", "tune", "HOME or XDG_CONFIG_HOME");
  if (Error e = make_folder(std::filesystem::path(tuning.path).parent_path())) return e;
  return out->open(tuning.path);
}

// Removes the file if no machine is left in it.
Error write_tune_file(const Tuning& tuning, OutputFile& file) {
  if (tuning.machines.empty()) {
    if (std::remove(tuning.path.c_str()) == 0) return {};
    return error("cannot remove", tuning.path, {}, std::strerror(errno));
  }
  return file.finish(tune_file_text(tuning.machines));
}

int forget_tuning(Tuning tuning) {
  if (tuning.is_damaged) {
    note(tuning.reason.message() + "; removing the file");
    tuning.machines.clear();
  } else if (std::erase_if(tuning.machines, [&](const TunedMachine& row) { return row.machine == tuning.key; }) == 0) {
    print("nothing was saved for this machine\n");
    return kSuccess;
  }
  OutputFile file;
  if (Error e = open_tune_file(tuning, &file)) return fail(e);
  if (Error e = write_tune_file(tuning, file)) return fail(e);
  print("removed from " + tuning.path + "\n");
  return kSuccess;
}

// Reads the file again first: other machines may have written to it during the measurement.
Error save_tuning(const Tuner& tuner, const Trials& trials) {
  OutputFile file;
  Tuning tuning = read_tuning(tuner.topology);
  if (tuning.is_damaged) note(tuning.reason.message() + "; replaced");
  std::erase_if(tuning.machines, [&](const TunedMachine& entry) { return entry.machine == tuning.key; });
  const TuneOptions& options = tuner.options;
  tuning.machines.push_back({tuning.key, tuned_team(trials.decode), tuned_team(trials.prefill),
                             trials.prefill[best_trial(trials.prefill)].plan.prefill_chunk,
                             std::string(kAccessPatterns[trials.decode[best_trial(trials.decode)].plan.access].name),
                             model_name(options.run), mode_text(options.run), tuner.runtime.kernels->name, today(),
                             PINION_VERSION});
  if (Error e = open_tune_file(tuning, &file)) return e;
  return write_tune_file(tuning, file);
}

int run_tune(const TuneOptions& options) {
  Tuner tuner{options};
  if (Error e = read_topology(&tuner.topology)) return fail(e);
  const Tuning tuning = read_tuning(tuner.topology);
  if (options.forget) return forget_tuning(tuning);
  if (!options.run.has_model()) return fail_usage("no model: give --model or --synthetic");
  if (!options.dry_run) {
    OutputFile trial;  // fails now rather than after a minute of measuring; leaves nothing but the folder
    if (Error e = open_tune_file(tuning, &trial)) return fail(e);
  }
  if (Error e = open_tuned_model(options, &tuner)) return fail(e);
  Trials trials;
  if (Error e = measure_all(tuner, &trials)) return fail(e);
  for (const std::string& line : clock_limits("/sys", tuner.topology.cpus)) note(line);
  if (Error e = options.dry_run ? Error{} : save_tuning(tuner, trials)) return fail(e);
  return print_report(tune_json(options, tuning, trials), options.json, "tune");
}

// Read bandwidth of the decode team in bytes per second, while all boards measure.
Error measure_board_speed(const RunOptions& run, Exchange& exchange, double* out) {
  Plan plan;
  Runtime runtime;
  ReadBuffer buffer;
  Error e = make_plan(run, &plan);
  if (!e) e = use_plan(plan, &runtime);
  if (!e) e = allocate_read_buffer(*runtime.team, roof_buffer_bytes(), &buffer);
  if ((e = agree(exchange, e))) return e;  // also makes all boards begin together
  constexpr int kPasses = 5;
  *out = read_bandwidth(*runtime.team, buffer, kPasses);
  return {};
}

OrderedJson speeds_json(const std::vector<double>& speeds, bool is_saved) {
  const std::vector<double> bounds = bounds_by_speed(speeds);
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < speeds.size(); ++i) {
    list.push_back({{"board", i}, {"read_gb_per_s", speeds[i] / 1e9}, {"part", bounds[i + 1] - bounds[i]}});
  }
  return {{"boards", list}, {"kept", is_saved}, {"file", board_speed_file()}};
}

// Measures the boards together; each saves its own speed.
int tune_boards(Exchange& exchange, const TuneOptions& options) {
  const auto end_all = [&](const Error& e) { return !e ? kSuccess : exchange.is_first() ? fail(e) : kFailure; };
  const auto end = [&](const Error& local) { return end_all(agree(exchange, local)); };
  if (!exchange.is_first()) set_quiet();
  if (options.forget) return end(remove_board_speed());
  double speed = 0;
  if (const Error e = measure_board_speed(options.run, exchange, &speed)) return end_all(e);
  const std::vector<double> speeds = values_of_all(exchange, speed);
  if (const int status = end(options.dry_run ? Error{} : save_board_speed(speed)); status != kSuccess) return status;
  if (!exchange.is_first()) return kSuccess;
  return print_report(speeds_json(speeds, !options.dry_run), options.json, "tune_boards");
}

}  // namespace

Run setup_tune(Command app) {
  auto options = std::make_shared<TuneOptions>();
  add_model_or_synthetic_options(app, &options->run);
  add_number_options(app, &options->run);
  app.add_flag("--no-cache", options->run.no_cache);
  app.add_number("--seconds N", options->seconds, 1, 3600);
  app.add_flag("--dry-run", options->dry_run);
  app.add_flag("--forget", options->forget);
  app.add_flag("--json", options->json);
  return {.run = [options] { return run_tune(*options); },
          .on_all = [options](Exchange& exchange) { return tune_boards(exchange, *options); }};
}

}  // namespace pinion
