// pinion bench: the options, what was measured, and the functions that measure, print and draw.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/common.h"
#include "apps/cli/sensors.h"
#include "engine/forward/profile.h"

namespace pinion {

struct BenchOptions {
  RunOptions run;  // cores: lists separated by ';'
  std::vector<int64_t> prompt_tokens = {512};
  std::vector<int64_t> decode_tokens = {128};
  std::vector<std::string> both;  // -pg P,N: a prompt, then that many tokens
  int32_t repetitions = 5;
  std::vector<int32_t> threads;
  std::vector<int64_t> depths = {0};
  std::vector<int64_t> texts;  // -b: decoded at once, each with a row of a pass
  std::vector<int64_t> rows;   // -v: of one text in a pass, as where drafts are verified
  std::string format = "md";
  bool profile = false;
  std::string plot;  // file of the picture; empty: none
  std::string sysfs = "/sys";
  int64_t roof_mb = 0;  // what the roof reads; 0: several times the last-level cache
};

// A prompt, tokens decoded one by one, or the one and then the other. Or passes of several rows: decode_tokens of them.
struct BenchTest {
  int64_t prompt_tokens;
  int64_t decode_tokens;
  int64_t depth;      // positions in the cache before it starts
  int64_t texts = 0;  // decoded at once; 0: this test does not say
  int64_t rows = 0;   // of one text in a pass; 0: this test does not say

  int64_t rows_of_pass() const { return std::max<int64_t>({1, texts, rows}); }
  int64_t tokens() const { return prompt_tokens + decode_tokens * rows_of_pass(); }
  // Of a text at the end.
  int64_t positions() const { return depth + prompt_tokens + decode_tokens + (texts > 0 ? 2 : rows); }
};

std::string test_name(const BenchTest& test);  // pp512, tg128, pp512+tg128, tg128@d4096, tg128xb8, tg128xv4
std::vector<BenchTest> tests_of(const BenchOptions& options);

struct Rates {
  double mean = 0;       // tokens a second
  double deviation = 0;  // of the sample
  double median = 0;
};

Rates rates_of(const std::vector<double>& rates);

// The last folder of its path.
std::string model_name(const RunOptions& run);

// One test of one row in a pass, timed, from its depth on, which the session has reached before. logits: [vocab], for
// whatever comes out.
Error run_once(Session& session, const BenchTest& test, std::vector<float>& logits, double* seconds);

// One repetition apart from the timed ones, with the clock read at every stage.
struct BenchProfile {
  Profile profile;
  std::vector<BoardProfile> boards;  // by rank; empty where the model is on one
  double seconds = 0;
  int64_t tokens = 0;
  int64_t barriers = 0;
  int64_t regions = 0;
};

// The same as shares of its time. Stages with their waiting, `outside` and nothing else make 1.
struct ProfileShares {
  std::array<double, kStages> stages;   // mean of the workers
  std::array<double, kStages> waiting;  // of that, at barriers
  std::vector<double> workers_waiting;  // of each worker's own time
  double outside;                       // of the parallel region
  double waiting_all;                   // mean of the workers
  double repeated;                      // done by every worker for itself: no gain from more of them
};

ProfileShares shares_of(const BenchProfile& profile, bool one_token);

// Of a token that several boards decode, seen from the first of them, and what such tokens would cost others.
struct BoardsCost {
  int32_t boards = 0;
  double part = 0;  // of the weights that this board has
  double seconds = 0;
  double compute_seconds = 0;
  double exchange_seconds = 0;  // of the same gathers when nobody computes
  double waiting_seconds = 0;   // in gathers beyond that: for slower boards
  double gathers = 0;
  double received_bytes = 0;
  double bytes = 0;  // that this board reads of its memory
  // Of small gathers and of large ones: what one costs, and how fast bytes come.
  double latency_seconds = 0;
  double bytes_per_second = 0;

  double modelled_exchange() const { return gathers * latency_seconds + received_bytes / bytes_per_second; }
  double read_bandwidth() const { return bytes / compute_seconds; }
  double modelled_token(int32_t count) const;  // on so many boards like this one
  double least_bytes() const;                  // of weights a token, from which on so many boards are faster than one
};

struct BenchRecord {
  BenchTest test;
  std::string cores;  // as --cores said it
  std::vector<int32_t> cpus;
  Rates rates;
  double bytes_per_token = 0;             // read from memory: weights and, decoding, the KV cache
  double roof = 0;                        // bytes a second, the median of those measured before each repetition
  std::optional<double> roof_share;       // the median of the repetitions' own
  std::optional<double> pass_cost;        // of a pass of several rows over one of one row in the same run
  std::optional<ClockRange> clock;        // while it ran
  std::vector<std::string> clock_limits;  // what held it back, in words
  std::optional<double> celsius;          // the highest seen
  std::optional<double> joules_per_token;
  std::optional<BenchProfile> profile;
  std::optional<BoardsCost> boards;

  int32_t threads() const { return static_cast<int32_t>(cpus.size()); }
};

// As printf writes it; none: nothing.
std::string number(const char* layout, const std::optional<double>& value);

// Of a test that decodes: run() runs it once. Other boards follow.
Error measure_boards(Exchange& exchange, const BenchTest& test, double bytes_per_token,
                     const std::function<Error(double* seconds)>& run, BoardsCost* out);
std::string boards_text(const BenchRecord& record);
OrderedJson boards_json(const BoardsCost& cost);
// Where the same time went on every board.
std::string board_stages_text(const BenchProfile& profile);
OrderedJson board_stages_json(const BenchProfile& profile);

Error measure(const BenchOptions& options, Runtime& runtime, std::vector<BenchRecord>* out);
void print_report(const BenchOptions& options, const Runtime& runtime, const std::vector<BenchRecord>& records);
std::string plot_svg(const std::vector<BenchRecord>& records);

}  // namespace pinion
