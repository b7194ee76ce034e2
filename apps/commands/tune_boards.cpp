// pinion tune under mpirun: how fast each board reads memory, all at once, which decides how much of a model it gets.
#include "apps/commands/tune_boards.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/cli/board_speed.h"
#include "engine/measure/bandwidth.h"

namespace pinion {
namespace {

// By the team that decodes.
Error measure_speed(const RunOptions& run, Exchange& exchange, double* out) {
  Plan plan;
  Runtime runtime;
  ReadBuffer buffer;
  Error e = make_plan(run, &plan);
  if (!e) e = use_plan(plan, &runtime);
  if (!e) e = allocate_read_buffer(*runtime.team, roof_buffer_bytes(), &buffer);
  if ((e = agree(exchange, e))) return e;  // after which all begin together
  constexpr int kPasses = 5;
  *out = read_bandwidth(*runtime.team, buffer, kPasses);
  return {};
}

void print_speeds(const std::vector<double>& speeds, bool is_kept, bool as_json) {
  const std::vector<double> parts = parts_by(speeds);
  OrderedJson list = OrderedJson::array();
  std::string table = "| board | reads GB/s | its part |\n|--:|--:|--:|\n";
  for (size_t i = 0; i < speeds.size(); ++i) {
    const double part = parts[i + 1] - parts[i];
    list.push_back({{"board", i}, {"read_gb_per_s", speeds[i] / 1e9}, {"part", part}});
    char row[96];
    std::snprintf(row, sizeof row, "| %zu | %.2f | %.3f |\n", i, speeds[i] / 1e9, part);
    table += row;
  }
  if (as_json) return print_json({{"boards", list}, {"kept", is_kept}});
  print(table +
        (is_kept ? "\nkept on each board in " + board_speed_file() + " or its like\n" : "\nnothing kept: --dry-run\n"));
}

}  // namespace

int tune_boards(Exchange& exchange, const RunOptions& run, const TuneBoardsOptions& options) {
  const auto end = [&](const Error& own) {
    const Error e = agree(exchange, own);
    if (!e) return kSuccess;
    return exchange.is_first() ? fail(e) : kFailure;
  };
  if (!exchange.is_first()) be_quiet();
  if (options.forget) return end(forget_board_speed());
  double speed = 0;
  if (const Error e = measure_speed(run, exchange, &speed)) return exchange.is_first() ? fail(e) : kFailure;
  const std::vector<double> speeds = numbers_of_all(exchange, speed);
  if (const int status = end(options.dry_run ? Error{} : keep_board_speed(speed)); status != kSuccess) return status;
  if (exchange.is_first()) print_speeds(speeds, !options.dry_run, options.json);
  return kSuccess;
}

}  // namespace pinion
