// pinion bench on several boards: the cost of a token's exchanges, measured and modelled for other numbers of boards.
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/bench/bench.h"
#include "engine/runtime/follow.h"

namespace pinion {
namespace {

constexpr int64_t kRounds = 21;

// Seconds of one gather; `bytes` is the sum over all boards.
double gather_seconds(Exchange& exchange, int64_t bytes) {
  constexpr int64_t kGathers = 8;
  const std::vector<int64_t> sizes(kGathers, bytes);
  return time_gathers_on_all(exchange, sizes, kRounds) / kGathers;
}

constexpr std::array kModelledCounts = {1, 2, 3, 4, 8};

}  // namespace

double BoardsCost::modelled_token(int32_t count) const {
  const double reading = bytes / share / read_bandwidth();
  if (count == 1) return reading;
  // Each board receives all results but its own.
  const double all = received_bytes / (1.0 - 1.0 / boards), others = 1.0 - 1.0 / count;
  return reading / count + gathers * latency_seconds + all * others / bytes_per_second;
}

double BoardsCost::min_bytes() const { return modelled_exchange() * read_bandwidth() * boards / (boards - 1); }

Error measure_boards(Exchange& exchange, const BenchTest& test, double bytes_per_token,
                     const std::function<Error(double* seconds)>& run, BoardsCost* out) {
  Exchange::Traffic& traffic = exchange.traffic;
  traffic = {};
  traffic.records_sizes = true;
  double seconds = 0;
  if (Error e = run(&seconds)) return e;
  const auto tokens = static_cast<double>(test.tokens());
  const int64_t passes = test.decode_tokens;
  const Exchange::Traffic seen = std::exchange(traffic, {});
  const Shares& shares = exchange.shares();
  out->boards = shares.ranks;
  out->share = shares.bounds.empty() ? 1.0 / shares.ranks : shares.bounds[1];
  out->bytes = bytes_per_token;
  out->seconds = seconds / tokens;
  out->gathers = static_cast<double>(seen.gathers) / tokens;
  out->received_bytes = static_cast<double>(seen.received_bytes) / tokens;
  const double in_gathers = static_cast<double>(seen.ns) * 1e-9 / tokens;
  out->compute_seconds = out->seconds - in_gathers;
  // The gathers of the last pass; all passes have the same.
  const std::span<const int64_t> sizes = std::span(seen.sizes).last(std::ssize(seen.sizes) / passes);
  out->exchange_seconds = time_gathers_on_all(exchange, sizes, kRounds) / static_cast<double>(test.rows_of_pass());
  out->waiting_seconds = std::max(0.0, in_gathers - out->exchange_seconds);
  constexpr int64_t kSmall = 1024, kLarge = 1 << 15;  // typical sizes of a layer's gathers
  const double small = gather_seconds(exchange, kSmall), large = gather_seconds(exchange, kLarge);
  const double others = 1.0 - 1.0 / shares.ranks;
  out->bytes_per_second = (kLarge - kSmall) * others / std::max(large - small, 1e-9);
  out->latency_seconds = std::max(0.0, small - kSmall * others / out->bytes_per_second);
  return {};
}

OrderedJson boards_json(const BoardsCost& c) {
  OrderedJson others = OrderedJson::array();
  for (const int32_t count : kModelledCounts) {
    others.push_back({{"boards", count}, {"ms_per_token", c.modelled_token(count) * 1e3}});
  }
  return {{"boards", c.boards},
          {"part", c.share},
          {"ms_per_token", c.seconds * 1e3},
          {"compute_ms", c.compute_seconds * 1e3},
          {"exchange_ms", c.exchange_seconds * 1e3},
          {"waiting_ms", c.waiting_seconds * 1e3},
          {"messages", c.gathers},
          {"received_bytes", c.received_bytes},
          {"latency_ms", c.latency_seconds * 1e3},
          {"network_mb_per_s", c.bytes_per_second / 1e6},
          {"modelled_exchange_ms", c.modelled_exchange() * 1e3},
          {"read_gb_per_s", c.read_bandwidth() / 1e9},
          {"least_gb", c.min_bytes() / 1e9},
          {"modelled", others}};
}

OrderedJson board_stages_json(const BenchProfile& profile) {
  const auto ms = [&](double ns) { return ns * 1e-6 / static_cast<double>(profile.tokens); };
  OrderedJson json = OrderedJson::array();
  for (const BoardProfile& board : profile.boards) {
    OrderedJson stages = OrderedJson::object();
    double outside = profile.seconds * 1e9, waiting = 0;
    for (size_t i = 0; i < kStages; ++i) {
      const auto work = static_cast<double>(board.stages[i].work_ns),
                 wait = static_cast<double>(board.stages[i].wait_ns);
      stages[std::string(kStageNames[i])] = ms(work + wait);
      waiting += wait;
      outside -= work + wait;
    }
    json.push_back({{"stages_ms_per_token", stages},
                    {"outside_ms_per_token", ms(std::max(0.0, outside))},  // stages and total are from different clocks
                    {"waiting_ms_per_token", ms(waiting)},                 // at barriers: part of the stages
                    {"exchanging_ms_per_token", ms(static_cast<double>(board.exchange_ns))}});  // of worker 0
  }
  return json;
}

}  // namespace pinion
