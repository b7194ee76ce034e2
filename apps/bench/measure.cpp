// pinion bench: runs and times the tests.
#include <cmath>
#include <filesystem>

#include "apps/bench/bench.h"
#include "engine/forward/rope.h"
#include "engine/measure/bandwidth.h"
#include "engine/measure/statistics.h"
#include "engine/session/scheduler.h"
#include "kernels/base/clock.h"

namespace pinion {
namespace {

constexpr int64_t kGreedyCandidates = 1;  // the pass returns the most likely token only

// Bytes of K and V that a token at `position` reads, and of recurrent state that it reads and writes.
double cache_bytes(const ModelConfig& config, KvType kv_type, int64_t position) {
  const KvType type = cached_as(config, kv_type);
  const int64_t element_bytes = kv_element_bytes(type), scale_bytes = type == KvType::q8 ? 4 : 0;
  int64_t kv = 0;
  for (const LayerConfig& layer : config.layer) {
    const int64_t width = std::max(layer.head_dim, layer.value_dim);
    const int64_t positions = position + 1 - layer.first_seen(position);
    if (layer.attends) kv += positions * layer.kv_heads * 2 * (width * element_bytes + scale_bytes);
  }
  return static_cast<double>(kv + 2 * recurrent_state_of(config).bytes());
}

double bytes_per_token(const Runtime& runtime, const BenchTest& test) {
  const Model& model = *runtime.model;
  const int64_t middle = test.depth + test.prompt_tokens + test.decode_tokens / 2;
  const int64_t chunks = (test.prompt_tokens + runtime.prefill_chunk - 1) / runtime.prefill_chunk;
  const int64_t chunk = std::min(test.prompt_tokens, runtime.prefill_chunk);
  const double weights =
      static_cast<double>(chunks) * static_cast<double>(model.bytes_per_pass(chunk)) +
      static_cast<double>(test.decode_tokens) * static_cast<double>(model.bytes_per_pass(test.rows_of_pass()));
  const double caches = static_cast<double>(test.decode_tokens * std::max<int64_t>(1, test.batch));
  const double cache = caches * cache_bytes(model.config, runtime.kv, middle);
  return (weights + cache) / static_cast<double>(test.tokens());
}

// Arbitrary ids: the speed does not depend on them.
std::vector<int32_t> some_ids(int64_t count, int64_t vocab, int64_t seed = 0) {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * 7919 + seed * 104'729 + 1) % vocab);
  return ids;
}

// The CPUs of a test's record: those of the team that runs it, or the larger team if both run in turn.
const std::vector<int32_t>& cpus_of(const Plan& plan, const BenchTest& test) {
  if (test.decode_tokens == 0 || test.rows_of_pass() > 1) return plan.prefill.cpus;
  if (test.prompt_tokens == 0) return plan.decode.cpus;
  return plan.prefill.cpus.size() > plan.decode.cpus.size() ? plan.prefill.cpus : plan.decode.cpus;
}

// One test, which can be run repeatedly from the same state.
struct TimedTest {
  PassRunner* runner;
  std::function<Error(double* seconds)> run;
};

Error run_profiled(const TimedTest& timed, const BenchTest& test, BenchRecord* out) {
  PassRunner& session = *timed.runner;
  BenchProfile& profile = out->profile.emplace();
  const Team &decode = *session.team, &prefill = *session.prefill_team;
  profile.profile.workers.resize(std::max(decode.size(), prefill.size()));
  profile.tokens = test.tokens();
  profile.barriers = -decode.barriers() - prefill.barriers();
  profile.regions = -decode.regions() - prefill.regions();
  session.profile = &profile.profile;
  if (Error e = timed.run(&profile.seconds)) return e;
  session.profile = nullptr;
  profile.boards = session.followers.profiles(profile.profile);
  profile.barriers += decode.barriers() + prefill.barriers();
  profile.regions += decode.regions() + prefill.regions();
  profile.profile.workers.resize(out->cpus.size());
  return {};
}

// Times the repetitions, each after a measurement of the roof, which drifts. Reads the sensors of warm cores.
Error run_repetitions(const TimedTest& timed, const BenchOptions& options, Team& team, const ReadBuffer& buffer,
                      const std::function<void()>& tick, BenchRecord* out) {
  const BenchTest& test = out->test;
  const Sensors sensors = find_sensors(options.sysfs, out->cpus);
  SensorSample now = read_sensors(sensors);
  out->celsius = now.celsius;
  if (now.mhz) out->clock = {*now.mhz, *now.mhz};
  std::vector<double> rates, roofs, shares;
  std::optional<double> joules = 0.0;
  for (int32_t i = 0; i < options.repetitions; ++i) {
    roofs.push_back(read_bandwidth(team, buffer, 3));
    const SensorSample before = read_sensors(sensors);
    double seconds = 0;
    if (Error e = timed.run(&seconds)) return e;
    rates.push_back(static_cast<double>(test.tokens()) / seconds);
    shares.push_back(out->bytes_per_token * rates.back() / roofs.back());
    now = read_sensors(sensors);
    const std::optional<double> used = joules_between(sensors, before, now);
    joules = joules && used ? std::optional(*joules + *used) : std::nullopt;
    if (now.celsius) out->celsius = std::max(out->celsius.value_or(*now.celsius), *now.celsius);
    if (out->clock && now.mhz) out->clock->min_mhz = std::min(out->clock->min_mhz, *now.mhz);
    tick();
  }
  out->clock_limits = clock_limits(options.sysfs, out->cpus);
  if (out->clock && out->clock->throttled()) {
    out->clock_limits.push_back("CPUs " + cpus_text(out->cpus) +
                                ": throttled during the test (see MHz); cool the board, or wait until it has cooled");
  }
  const auto [mean, standard_error] = mean_of(rates);
  out->rates = {mean, standard_error * std::sqrt(static_cast<double>(rates.size())), median_of(rates)};
  out->roof = median_of(roofs);
  if (test.prompt_tokens == 0) out->roof_share = median_of(shares);
  if (joules) out->joules_per_token = *joules / static_cast<double>(test.tokens() * options.repetitions);
  return {};
}

// Passes of several rows of one sequence. All rows but the first are removed again, as rejected drafts are.
Error run_rows(Session& session, const BenchTest& test, std::vector<float>& logits, double* seconds) {
  const std::vector<int32_t> ids = some_ids(test.rows, session.model->config.vocab_size);
  rewind(session.sequence, test.depth);
  const double start = now_seconds();
  for (int64_t i = 0; i < test.decode_tokens; ++i) {
    if (Error e = evaluate(session, ids, true, logits.data(), kGreedyCandidates)) return e;
    rewind(session.sequence, test.depth + i + 1);
  }
  *seconds = now_seconds() - start;
  return {};
}

// Passes with one token of each sequence, timed once all of them decode.
Error run_batch(Scheduler& scheduler, const BenchTest& test, double* seconds) {
  const int64_t vocab = scheduler.model->config.vocab_size;
  std::vector<int64_t> submitted(test.batch);
  for (int64_t& id : submitted) {
    TextRequest request = {.prompt = some_ids(test.depth + 1, vocab),
                           .options = {.max_tokens = 1 << 30, .sampler = {}, .ignore_eos = true, .hash_logits = false},
                           .on_token = [](int32_t, const GenerateResult&) { return true; },
                           .on_end = [](const Error&, const GenerateResult&) {}};
    // Different beginnings, so that no sequence reuses the cache of another one.
    request.prompt[0] = static_cast<int32_t>(&id - submitted.data()) % static_cast<int32_t>(vocab);
    if (Error e = submit(scheduler, std::move(request), &id)) return e;
  }
  const auto decodes = [](const auto& stream) { return !stream->text.result.ids.empty(); };
  do {
    step(scheduler);
  } while (!scheduler.waiting.empty() || !std::ranges::all_of(scheduler.running, decodes));
  const double start = now_seconds();
  for (int64_t i = 0; i < test.decode_tokens; ++i) step(scheduler);
  *seconds = now_seconds() - start;
  int64_t running = 0;
  for (const int64_t id : submitted) running += cancel(scheduler, id);
  if (running == test.batch) return {};
  return error("the first sequences reach the end of the model's context before the last decode", test_name(test),
               "a smaller -d, -n or -b");
}

Error open_batch(const Runtime& runtime, const BenchTest& test, std::unique_ptr<Scheduler>* out, TimedTest* timed) {
  SchedulerOptions options = scheduler_options(runtime);
  options.sequences = test.batch;
  // The first sequences decode while the prompts of the last ones are evaluated.
  options.context = test.positions() + test.batch * (test.depth / options.rows_beside_decode + 1);
  if (Error e = open_scheduler(*runtime.model, *runtime.team, options, out)) return e;
  *timed = {out->get(), [batch = out->get(), test](double* seconds) { return run_batch(*batch, test, seconds); }};
  return {};
}

Error run_test(const Runtime& runtime, const BenchOptions& options, const std::function<void()>& tick,
               BenchRecord* out) {
  const BenchTest& test = out->test;
  const int64_t vocab = runtime.model->config.vocab_size;
  std::vector<float> logits(vocab * std::max<int64_t>(1, test.rows));
  std::unique_ptr<Session> session;
  std::unique_ptr<Scheduler> scheduler;
  TimedTest timed;
  double seconds = 0;
  if (test.batch > 0) {
    if (Error e = open_batch(runtime, test, &scheduler, &timed)) return e;
    if (Error e = timed.run(&seconds)) return e;
  } else {
    if (Error e = open_session(runtime, {.context = test.positions()}, &session)) return e;
    if (test.depth > 0) {
      if (Error e = evaluate(*session, some_ids(test.depth, vocab), false, logits.data())) return e;
      keep_snapshot(*session);  // start of each repetition
    }
    timed = {session.get(), [&, s = session.get()](double* taken) {
               return test.rows > 0 ? run_rows(*s, test, logits, taken) : run_once(*s, test, logits, taken);
             }};
    // The whole prompt: the first evaluation faults in the pages of the cache.
    const BenchTest warm_up{test.prompt_tokens, std::min<int64_t>(test.decode_tokens, 8), test.depth};
    if (Error e = run_once(*session, warm_up, logits, &seconds)) return e;
  }
  tick();
  out->bytes_per_token = bytes_per_token(runtime, test);
  Team& team = std::ranges::equal(runtime.team->cpus(), out->cpus) ? *runtime.team : *runtime.prefill_team;
  ReadBuffer buffer;
  const int64_t roof_bytes = options.roof_mb > 0 ? options.roof_mb << 20 : roof_buffer_bytes();
  if (Error e = allocate_read_buffer(team, roof_bytes, &buffer)) return e;
  if (Error e = run_repetitions(timed, options, team, buffer, tick, out)) return e;
  if (Exchange* exchange = runtime.model->exchange; exchange && test.prompt_tokens == 0) {
    if (Error e = measure_boards(*exchange, test, out->bytes_per_token, timed.run, &out->boards.emplace())) return e;
  }
  return options.profile ? run_profiled(timed, test, out) : Error{};
}

double pass_seconds(const BenchRecord& record) {
  return static_cast<double>(record.test.rows_of_pass()) / record.rates.median;
}

// Compares passes of several rows with the pass of one row in the same run, if there is one.
void compare_passes(std::vector<BenchRecord>& records) {
  for (BenchRecord& record : records) {
    const BenchTest& test = record.test;
    const auto one_row = std::ranges::find_if(records, [&](const BenchRecord& other) {
      const BenchTest& o = other.test;
      return o.prompt_tokens == 0 && o.rows_of_pass() == 1 && o.depth == test.depth &&
             (o.rows > 0) == (test.rows > 0) && o.decode_tokens == test.decode_tokens && other.cores == record.cores &&
             other.threads() == record.threads();
    });
    if (test.batch + test.rows == 0 || one_row == records.end()) continue;
    record.pass_cost = pass_seconds(record) / pass_seconds(*one_row);
  }
}

Error check_context(const ModelConfig& config, const std::vector<BenchTest>& tests) {
  const int64_t context = context_length(config);
  for (const BenchTest& test : tests) {
    const int64_t positions = test.positions();
    if (positions <= context) continue;
    return error("the test is longer than the model's context", test_name(test), at_most(context) + " positions",
                 positions);
  }
  return {};
}

struct NamedTeam {
  std::string cores;  // as given by --cores
  Plan plan;
};

// Combines every list of --cores with every thread count.
Error choose_teams(const BenchOptions& options, std::vector<NamedTeam>* out) {
  Topology topology;
  if (Error e = read_topology(&topology)) return e;
  const Tuning tuning = read_tuning(topology);
  RunOptions run = options.run;
  run.team.threads = std::ranges::min(options.threads);
  if (const std::string why = tuning_note(run, tuning); !why.empty()) note(why);
  for (const std::string_view cores : split(options.run.cores, ';')) {
    run.cores = cores;
    for (const int32_t threads : options.threads) {
      run.team.threads = threads;
      out->push_back({run.cores, Plan{}});
      if (Error e = make_plan(run, topology, tuning, &out->back().plan)) return e;
    }
  }
  return {};
}

// --- The prompt cache: the time to the first token of a new text, of one with another end, and after a restart.

constexpr int64_t kQuestionTokens = 20;

struct FirstToken {
  const char* name;
  int64_t read_tokens = 0;  // evaluated
  int64_t disk_tokens = 0;
  double seconds = 0;
};

// A system message of `shared` tokens and a question.
std::vector<int32_t> prompt_of(const Model& model, int64_t shared, int64_t question) {
  const int64_t vocab = model.config.vocab_size;
  std::vector<int32_t> prompt = some_ids(shared, vocab, 1);
  const std::vector<int32_t> rest = some_ids(kQuestionTokens, vocab, 1 + question);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  return prompt;
}

Error time_first_token(Scheduler& scheduler, std::vector<int32_t> prompt, FirstToken* out) {
  Error failure;
  const int64_t shared = std::ssize(prompt) - kQuestionTokens;
  TextRequest request = {.prompt = std::move(prompt),
                         .options = {.max_tokens = 1, .sampler = {}, .ignore_eos = true, .hash_logits = false},
                         .first_message_tokens = shared,
                         .on_token = [](int32_t, const GenerateResult&) { return true; },
                         .on_end =
                             [&](const Error& e, const GenerateResult& result) {
                               failure = e;
                               out->read_tokens = result.prefilled_tokens;
                               out->disk_tokens = result.loaded_tokens;
                             }};
  int64_t id = 0;
  const double start = now_seconds();
  if (Error e = submit(scheduler, std::move(request), &id)) return e;
  while (step(scheduler)) continue;
  out->seconds = now_seconds() - start;
  return failure;
}

Error open_cached(const Runtime& runtime, const std::string& flag, int64_t positions, std::unique_ptr<Scheduler>* out) {
  const SchedulerOptions options = scheduler_options(runtime, {.sequences = 2, .context = positions});
  if (Error e = open_scheduler(*runtime.model, *runtime.team, options, out)) return e;
  return open_prompt_cache(flag, **out, (*out)->free_sequences.front().state);
}

}  // namespace

Error run_once(Session& session, const BenchTest& test, std::vector<float>& logits, double* seconds) {
  const std::vector<int32_t> ids = some_ids(test.tokens(), session.model->config.vocab_size);
  const std::span<const int32_t> prompt = std::span(ids).first(test.prompt_tokens);
  if (const int64_t left = rewind(session.sequence, test.depth); left != test.depth) {
    return error("too little memory to keep the recurrent state for each repetition", "bench",
                 std::to_string(test.depth) + " tokens", left);
  }
  const double start = now_seconds();
  if (Error e = prompt.empty() ? Error{} : evaluate(session, prompt, false, logits.data(), kGreedyCandidates)) return e;
  for (const int32_t& id : std::span(ids).subspan(prompt.size())) {
    if (Error e = evaluate(session, {&id, 1}, false, logits.data(), kGreedyCandidates)) return e;
  }
  *seconds = now_seconds() - start;
  return {};
}

Error measure(const BenchOptions& options, Runtime& runtime, std::vector<BenchRecord>* out) {
  std::vector<NamedTeam> teams;
  if (Error e = choose_teams(options, &teams)) return e;
  RunOptions run = options.run;
  run.plan = std::ranges::max(teams, {}, [](const NamedTeam& team) { return team.plan.decode.cpus.size(); }).plan;
  if (Error e = open_with_progress(run, nullptr, &runtime)) return e;
  const std::vector<BenchTest> tests = tests_of(options);
  if (Error e = check_context(runtime.model->config, tests)) return e;

  ProgressBar bar("measuring");
  const double runs = static_cast<double>(teams.size() * tests.size()) * (options.repetitions + 1);  // with warm-ups
  double done = 0;
  const auto tick = [&] { bar.show(++done / runs); };
  for (const NamedTeam& team : teams) {
    if (Error e = use_plan(team.plan, &runtime)) return e;
    for (const BenchTest& test : tests) {
      BenchRecord record;
      record.test = test;
      record.cores = team.cores;
      record.cpus = cpus_of(team.plan, test);
      if (Error e = run_test(runtime, options, tick, &record)) return e;
      out->push_back(std::move(record));
    }
  }
  compare_passes(*out);
  return {};
}

Error measure_prompt_cache(const BenchOptions& options, const Runtime& runtime) {
  for (const int64_t shared : options.prompt_tokens) {
    const int64_t positions = shared + kQuestionTokens + 2;
    FirstToken rows[] = {{"first time"}, {"another question"}, {"first time, after a restart"}};
    // A folder of its own: an earlier run left the same texts.
    const std::string folder = options.prompt_cache + "/bench-" + std::to_string(now_ns());
    for (size_t i = 0; i < std::size(rows); i += 2) {
      std::unique_ptr<Scheduler> scheduler;
      if (Error e = open_cached(runtime, folder, positions, &scheduler)) return e;
      if (Error e = time_first_token(*scheduler, prompt_of(*runtime.model, shared, 1), &rows[i])) return e;
      if (i > 0) continue;
      if (Error e = time_first_token(*scheduler, prompt_of(*runtime.model, shared, 2), &rows[1])) return e;
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    print("\n| " + std::to_string(shared) + " common tokens, then " + std::to_string(kQuestionTokens) +
          " | tokens read | from disk | first token (s) | of the first time |\n|---|---:|---:|---:|---:|\n");
    for (const FirstToken& row : rows) {
      print("| " + std::string(row.name) + " | " + std::to_string(row.read_tokens) + " | " +
            std::to_string(row.disk_tokens) +
            formatted(" | %.3f | %.4f |\n", row.seconds, row.seconds / rows[0].seconds));
    }
  }
  return {};
}

}  // namespace pinion
