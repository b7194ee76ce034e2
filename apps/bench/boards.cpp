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

// One board's milliseconds per token.
struct BoardStages {
  std::array<double, kStages> stages = {};
  double waiting = 0;  // part of `stages` spent at barriers
  double outside = 0;
  double exchanging = 0;  // of worker 0
};

std::vector<BoardStages> board_stages(const BenchProfile& p) {
  const double ms = 1e-6 / static_cast<double>(p.tokens);
  std::vector<BoardStages> all;
  for (const BoardProfile& board : p.boards) {
    BoardStages& out = all.emplace_back();
    out.outside = p.seconds * 1e9 * ms;
    out.exchanging = static_cast<double>(board.exchange_ns) * ms;
    for (size_t i = 0; i < kStages; ++i) {
      const double waiting = static_cast<double>(board.stages[i].wait_ns) * ms;
      out.stages[i] = static_cast<double>(board.stages[i].work_ns) * ms + waiting;
      out.waiting += waiting;
      out.outside -= out.stages[i];
    }
    out.outside = std::max(0.0, out.outside);  // stages and total are from different clocks
  }
  return all;
}

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

std::string boards_text(const BenchRecord& record) {
  const BoardsCost& c = *record.boards;
  std::string text =
      "\n" + test_name(record.test) +
      formatted(
          " on %d boards, %.3f of the weights here: %.3f ms a token = %.3f computing + %.3f exchanging + %.3f "
          "waiting for slower boards; %.0f messages and %.3f MB received a token\n",
          c.boards, c.share, c.seconds * 1e3, c.compute_seconds * 1e3, c.exchange_seconds * 1e3,
          c.waiting_seconds * 1e3, c.gathers, c.received_bytes / 1e6);
  text +=
      formatted("model: %.0f exchanges x %.4f ms + %.3f MB at %.0f MB/s = %.3f ms; weights at %.2f GB/s a board\n\n",
                c.gathers, c.latency_seconds * 1e3, c.received_bytes / 1e6, c.bytes_per_second / 1e6,
                c.modelled_exchange() * 1e3, c.read_bandwidth() / 1e9);
  text += "| boards like this | ms/token | tokens/s |\n|--:|--:|--:|\n";
  for (const int32_t count : kModelledCounts) {
    const double seconds = c.modelled_token(count);
    text += formatted("| %d | %.3f | %.2f |\n", count, seconds * 1e3, 1 / seconds);
  }
  return text + formatted("\n%d boards are faster than one from %.3f GB of weights a token on\n", c.boards,
                          c.min_bytes() / 1e9);
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

std::string board_stages_text(const BenchProfile& profile) {
  const std::vector<BoardStages> boards = board_stages(profile);
  std::string text = "\n| ms/token |", line = "|:--|";
  for (size_t i = 0; i < boards.size(); ++i) text += " board " + std::to_string(i) + " |", line += "--:|";
  text += "\n" + line + "\n";
  const auto add = [&](std::string_view name, const auto& value) {
    if (std::ranges::all_of(boards, [&](const BoardStages& board) { return value(board) == 0; })) return;
    text += "| " + std::string(name) + " |";
    for (const BoardStages& board : boards) text += formatted(" %.4f |", value(board));
    text += "\n";
  };
  for (size_t i = 0; i < kStages; ++i) add(kStageTraits[i].name, [i](const BoardStages& b) { return b.stages[i]; });
  add("outside", [](const BoardStages& board) { return board.outside; });
  add("stages: waiting at barriers", [](const BoardStages& board) { return board.waiting; });
  add("worker 0: in exchanges", [](const BoardStages& board) { return board.exchanging; });
  return text;
}

OrderedJson board_stages_json(const BenchProfile& profile) {
  OrderedJson json = OrderedJson::array();
  for (const BoardStages& board : board_stages(profile)) {
    OrderedJson stages = OrderedJson::object();
    for (size_t i = 0; i < kStages; ++i) stages[std::string(kStageTraits[i].name)] = board.stages[i];
    json.push_back({{"stages_ms_per_token", stages},
                    {"outside_ms_per_token", board.outside},
                    {"waiting_ms_per_token", board.waiting},
                    {"exchanging_ms_per_token", board.exchanging}});
  }
  return json;
}

}  // namespace pinion
