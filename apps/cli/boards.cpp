#include "apps/cli/boards.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "apps/cli/output_file.h"
#include "apps/model/build.h"
#include "engine/boards/exchange.h"
#include "engine/runtime/follow.h"
#include "kernels/base/hash.h"
#include "loader/checkpoint/model_folder.h"
#include "loader/files/json.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

constexpr int64_t kSpeedFileFormat = 1;
constexpr int64_t kMaxSpeedFileBytes = 4096;
constexpr double kMaxGbPerSecond = 1e6;

// Gives faster boards a larger share if the speeds of all boards are known and differ enough.
void set_shares_by_speed(Exchange& exchange) {
  constexpr double kAlike = 0.97;
  const std::vector<double> speeds = values_of_all(exchange, saved_board_speed());
  const auto [min, max] = std::ranges::minmax(speeds);
  if (min > 0 && min < kAlike * max) exchange.set_bounds(bounds_by_speed(speeds));
}

// Locked for good by the first report of a loss and by stop_reporting_losses(), so that no second report follows.
std::mutex reporting;
std::function<std::string()> save_now;

// Rank 0 prints the one line. The other boards only end: mpirun notices, and ends rank 0 with SIGTERM.
void report_loss(Error failure) {
  reporting.lock();
  if (launched_process().rank > 0) return;
  if (const std::string saved = save_now ? save_now() : ""; !saved.empty()) {
    failure.actual += (failure.actual.empty() ? "" : "; ") + saved;
  }
  fail(failure);
}

int termination_pipe[2] = {-1, -1};

// Reports SIGTERM as a loss: mpirun sends it to the remaining processes when one has died.
void report_termination() {
  if (pipe2(termination_pipe, O_CLOEXEC) != 0) return;
  struct sigaction action = {};
  action.sa_handler = [](int) { [[maybe_unused]] const ssize_t written = write(termination_pipe[1], "", 1); };
  action.sa_flags = SA_RESTART;  // otherwise a read of standard input would fail and look like its end
  sigaction(SIGTERM, &action, nullptr);
  std::thread([] {
    char byte = 0;
    while (read(termination_pipe[0], &byte, 1) != 1) continue;
    report_loss(error("ended by mpirun, as when another board is lost", "run", {}, "SIGTERM"));
    std::_Exit(kFailure);
  }).detach();
}

}  // namespace

void stop_reporting_losses() { reporting.lock(); }

void save_when_board_lost(std::function<std::string()> save) {
  const std::lock_guard lock(reporting);
  save_now = std::move(save);
}

Error connect_launched_boards(std::unique_ptr<Exchange>* out) {
  if (launched_process().count == 1) return {};
  if (Error e = join_boards(report_loss, out)) return e;
  if (launched_process().rank == 0) report_termination();
  // Messages between boards have no stable format.
  const std::string build = std::string(PINION_VERSION) + " " + build_commit();
  const uint64_t hash = hash_bytes(std::as_bytes(std::span(build)));
  return agree_on(**out, hash, "is of another build than the first board: want " + build);
}

std::optional<int> parse_on_boards(Exchange& exchange, const std::function<std::optional<int>()>& parse) {
  set_silent(!exchange.is_first());
  const std::optional<int> status = parse();
  set_silent(false);
  const Error local = status ? error("its command line is wrong, or asks for help", "") : Error{};
  const Error e = agree(exchange, local);
  if (status || !e) return status;
  return exchange.is_first() ? fail(e) : kFailure;
}

int run_on_boards(Exchange& exchange, const Run& run) {
  if (run.on_all) {
    if (Error e = agree(exchange, {})) return exchange.is_first() ? fail(e) : kFailure;
    return run.on_all(exchange);
  }
  const auto given = std::ranges::find_if(run.shared, &RunOptions::has_model);
  RunOptions* shared = given == run.shared.end() ? nullptr : *given;
  if (shared) exchange.timeout_seconds = shared->board_timeout_seconds;
  set_shares_by_speed(exchange);
  if (exchange.is_first()) {
    if (Error e = agree(exchange, {})) return fail(e);
    if (shared) shared->exchange = &exchange;
    const int status = run.run();
    stop_followers(exchange);
    return status;
  }
  if (run.prepare_follower) run.prepare_follower();
  RuntimeOptions options;
  Error local;
  set_quiet();  // rank 0 reads the calibration text and reports on it
  if (shared) local = runtime_options(*shared, load_options(*shared), [](const std::string&) {}, &options);
  if (agree(exchange, local)) return kFailure;
  options.exchange = &exchange;
  run_follower(std::move(options));
  return kSuccess;
}

std::string board_speed_file() {
  std::array<char, 256> host = {};
  const std::string folder = default_config_folder();
  if (folder.empty() || gethostname(host.data(), host.size() - 1) != 0) return {};
  return folder + "/boards/" + host.data() + ".json";
}

double saved_board_speed() {
  const std::string path = board_speed_file();
  std::string text;
  Json json;
  if (path.empty() || read_text_file(path, kMaxSpeedFileBytes, &text) || parse_json(text, path, &json)) return 0;
  JsonFields fields{json, path};
  const int64_t format = fields.integer("format");
  const double speed = fields.number("read_gb_per_s", {}, 0, kMaxGbPerSecond);
  return fields.error || format != kSpeedFileFormat ? 0 : speed * 1e9;
}

Error save_board_speed(double bytes_per_second) {
  const std::string path = board_speed_file();
  if (path.empty()) return error("no folder for the result", "tune", "HOME or XDG_CONFIG_HOME");
  if (Error e = make_folder(std::filesystem::path(path).parent_path())) return e;
  const OrderedJson json = {{"format", kSpeedFileFormat}, {"read_gb_per_s", bytes_per_second / 1e9}};
  return write_output_file(path, json.dump(2) + "\n");
}

Error remove_board_speed() {
  const std::string path = board_speed_file();
  std::error_code code;
  std::filesystem::remove(path, code);
  return code ? error("cannot remove", path, {}, code.message()) : Error{};
}

}  // namespace pinion
