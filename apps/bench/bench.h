// pinion bench: the options, the results, and the functions that measure.
#pragma once

#include "apps/cli/common.h"
#include "apps/cli/sensors.h"
#include "engine/forward/probes.h"
#include "kernels/base/text.h"

namespace pinion {

struct BenchOptions {
  RunOptions run;  // cores: lists separated by ';'
  std::vector<int64_t> prompt_tokens = {512};
  std::vector<int64_t> decode_tokens = {128};
  std::vector<std::string> both;  // -pg P,N: a prompt, then N decoded tokens
  int32_t repetitions = 5;
  std::vector<int32_t> threads;
  std::vector<int64_t> depths = {0};
  std::vector<int64_t> batches;  // -b: sequences decoded at once, one row of a pass each
  std::vector<int64_t> rows;     // -v: rows of one sequence in a pass, as in the verification of drafts
  std::string format = "md";
  bool profile = false;
  std::string prompt_cache;  // folder; empty: not measured
  std::string plot;          // file of the picture; empty: none
  std::string sysfs = "/sys";
  int64_t roof_mb = 0;  // buffer for the roof; 0: several times the last-level cache
};

// A prompt, tokens decoded one by one, or both in turn; with `batch` or `rows`, decode_tokens passes of several rows.
struct BenchTest {
  int64_t prompt_tokens;
  int64_t decode_tokens;
  int64_t depth;      // positions in the cache before it starts
  int64_t batch = 0;  // sequences decoded at once; 0: not a -b test
  int64_t rows = 0;   // rows of one sequence in a pass; 0: not a -v test

  int64_t rows_of_pass() const { return std::max<int64_t>({1, batch, rows}); }
  int64_t tokens() const { return prompt_tokens + decode_tokens * rows_of_pass(); }
  // Length of a sequence at the end.
  int64_t positions() const { return depth + prompt_tokens + decode_tokens + (batch > 0 ? 2 : rows); }
};

std::string test_name(const BenchTest& test);  // pp512, tg128, pp512+tg128, tg128@d4096, tg128xb8, tg128xv4
std::vector<BenchTest> tests_of(const BenchOptions& options);

struct Rates {
  double mean = 0;       // tokens per second
  double deviation = 0;  // sample standard deviation
  double median = 0;
};

// Times a test with one row per pass, from its depth on, which the session has reached. logits: [vocab], scratch.
Error run_once(Session& session, const BenchTest& test, std::vector<float>& logits, double* seconds);

// A repetition in addition to the timed ones, with the clock read at every stage.
struct BenchProfile {
  Profile profile;
  std::vector<BoardProfile> boards;  // by rank; empty: the model is on one board
  double seconds = 0;
  int64_t tokens = 0;
  int64_t barriers = 0;
  int64_t regions = 0;
};

// Cost of a token decoded by several boards, as measured on rank 0, and a model of it for other numbers of boards.
struct BoardsCost {
  int32_t boards = 0;
  double share = 0;  // of the weights, on this board
  double seconds = 0;
  double compute_seconds = 0;
  double exchange_seconds = 0;  // of the same gathers without computation
  double waiting_seconds = 0;   // further time in gathers: waiting for slower boards
  double gathers = 0;
  double received_bytes = 0;
  double bytes = 0;  // read from this board's memory
  // Fitted to the times of a small and a large gather.
  double latency_seconds = 0;
  double bytes_per_second = 0;

  double modelled_exchange() const { return gathers * latency_seconds + received_bytes / bytes_per_second; }
  double read_bandwidth() const { return bytes / compute_seconds; }
  double modelled_token(int32_t count) const;  // seconds on `count` boards like this one
  double min_bytes() const;                    // weights per token from which these boards are faster than one
};

struct BenchRecord {
  BenchTest test;
  std::string cores;  // as given by --cores
  std::vector<int32_t> cpus;
  Rates rates;
  double bytes_per_token = 0;             // read from memory: weights and, in decode, the KV cache
  double roof = 0;                        // bytes per second: median of measurements before each repetition
  std::optional<double> roof_share;       // median over the repetitions
  std::optional<double> pass_cost;        // time of a pass of several rows over that of one row in the same run
  std::optional<ClockRange> clock;        // during the repetitions
  std::vector<std::string> clock_limits;  // reasons for a lower clock
  std::optional<double> celsius;          // maximum
  std::optional<double> joules_per_token;
  std::optional<BenchProfile> profile;
  std::optional<BoardsCost> boards;

  int32_t threads() const { return static_cast<int32_t>(cpus.size()); }
};

// Measures a decode test while the other boards follow. run() runs it once.
Error measure_boards(Exchange& exchange, const BenchTest& test, double bytes_per_token,
                     const std::function<Error(double* seconds)>& run, BoardsCost* out);
OrderedJson boards_json(const BoardsCost& cost);
OrderedJson board_stages_json(const BenchProfile& profile);  // time by stage on each board

Error measure(const BenchOptions& options, Runtime& runtime, std::vector<BenchRecord>* out);
// Prints a table for each length of -p, from a single run: each takes the time of a whole prompt.
Error measure_prompt_cache(const BenchOptions& options, const Runtime& runtime);

}  // namespace pinion
