#include "apps/cli/boards.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "apps/cli/board_speed.h"
#include "apps/model/build.h"
#include "engine/boards/mpi.h"
#include "engine/runtime/follow.h"
#include "kernels/base/hash.h"

namespace pinion {
namespace {

// Until it goes, what is written to this descriptor is lost.
class Muted {
 public:
  explicit Muted(int descriptor) : descriptor_(descriptor), kept_(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    dup2(nowhere, descriptor);
    close(nowhere);
  }
  ~Muted() {
    if (kept_ < 0) return;
    dup2(kept_, descriptor_);
    close(kept_);
  }
  Muted(const Muted&) = delete;
  Muted& operator=(const Muted&) = delete;

 private:
  int descriptor_;
  int kept_;
};

// The options of the model that the command line has given; null: none that boards could share.
RunOptions* shared_by(const Run& run) {
  const auto is_given = [](const RunOptions* one) { return !one->model.empty() || !one->synthetic.empty(); };
  const auto found = std::ranges::find_if(run.shared, is_given);
  return found == run.shared.end() ? nullptr : *found;
}

// How this board runs it.
Error settle_follower(const RunOptions& shared, RuntimeOptions* out) {
  be_quiet();  // what a text calibrates is told by the first board, which reads it
  return runtime_options(shared, load_options(shared), [](const std::string&) {}, out);
}

// Faster boards get more, where all are known to be so fast and it makes a difference.
void settle_parts(Exchange& exchange) {
  constexpr double kAlike = 0.97;
  const std::vector<double> speeds = numbers_of_all(exchange, kept_board_speed());
  const auto [least, most] = std::ranges::minmax(speeds);
  if (least > 0 && least < kAlike * most) exchange.set_parts(parts_by(speeds));
}

std::mutex keeping;  // held by whoever tells of a loss, from then on, and at the end: nobody tells of another
std::function<std::string()> keep_now;

// On the first board the one line; what the others notice makes mpirun end it, which it tells.
void tell_loss(Error failure) {
  keeping.lock();
  if (launched_process().rank > 0) return;
  if (const std::string kept = keep_now ? keep_now() : ""; !kept.empty()) {
    failure.actual += (failure.actual.empty() ? "" : "; ") + kept;
  }
  fail(failure);
}

int ended_by_launcher[2] = {-1, -1};  // a pipe

// mpirun ends the processes that are left when one has died.
void end_when_told() {
  if (pipe2(ended_by_launcher, O_CLOEXEC) != 0) return;
  struct sigaction action = {};
  action.sa_handler = [](int) { [[maybe_unused]] const ssize_t written = write(ended_by_launcher[1], "", 1); };
  action.sa_flags = SA_RESTART;  // or who reads takes the signal for the end of the input
  sigaction(SIGTERM, &action, nullptr);
  std::thread([] {
    char byte = 0;
    while (read(ended_by_launcher[0], &byte, 1) != 1) continue;
    tell_loss(error("ended by mpirun, as when another board is lost", "run", {}, "SIGTERM"));
    std::_Exit(kFailure);
  }).detach();
}

}  // namespace

void end_of_losses() { keeping.lock(); }

void keep_when_lost(std::function<std::string()> keep) {
  const std::lock_guard lock(keeping);
  keep_now = std::move(keep);
}

Error join_others(std::unique_ptr<Exchange>* out) {
  if (launched_process().count == 1) return {};
  if (Error e = join_boards(tell_loss, out)) return e;
  if (launched_process().rank == 0) end_when_told();
  const std::string build =
      std::string(PINION_VERSION) + " " + build_commit();  // what they tell one another is its own
  const uint64_t own = hash_bytes(std::as_bytes(std::span(build)));
  return agree_on(**out, own, "is of another build than the first board: want " + build);
}

std::optional<int> parse_on_boards(Exchange& exchange, const std::function<std::optional<int>()>& parse) {
  std::optional<int> status;
  if (exchange.is_first()) {
    status = parse();
  } else {
    const Muted out(STDOUT_FILENO), err(STDERR_FILENO);
    status = parse();
  }
  const Error own = status ? error("its command line is not one to go on with", "") : Error{};
  const Error e = agree(exchange, own);
  if (status || !e) return status;
  return exchange.is_first() ? fail(e) : kFailure;
}

int run_on_boards(Exchange& exchange, const Run& run) {
  if (run.on_all) {
    if (Error e = agree(exchange, {})) return exchange.is_first() ? fail(e) : kFailure;
    return run.on_all(exchange);
  }
  RunOptions* shared = shared_by(run);
  if (shared) exchange.most_seconds = shared->board_seconds;
  settle_parts(exchange);
  if (exchange.is_first()) {
    if (Error e = agree(exchange, {})) return fail(e);
    if (shared) shared->exchange = &exchange;
    const int status = run.run();
    end_following(exchange);
    return status;
  }
  if (run.settle_follower) run.settle_follower();
  RuntimeOptions options;
  const Error own = shared ? settle_follower(*shared, &options) : Error{};
  if (agree(exchange, own)) return kFailure;
  options.exchange = &exchange;
  follow(std::move(options));
  return kSuccess;
}

}  // namespace pinion
