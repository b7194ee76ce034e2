#include "apps/cli/boards.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "engine/boards/mpi.h"
#include "engine/runtime/follow.h"

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

}  // namespace

Error join_others(std::unique_ptr<Exchange>* out) {
  if (launched_process().count == 1) return {};
  const auto lost = [](const Error& failure) { fail(failure); };
  return join_boards(lost, out);
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
  RunOptions* shared = shared_by(run);
  if (exchange.is_first()) {
    if (Error e = agree(exchange, {})) return fail(e);
    if (shared) shared->exchange = &exchange;
    const int status = run.run();
    end_following(exchange);
    return status;
  }
  RuntimeOptions options;
  const Error own = shared ? settle_follower(*shared, &options) : Error{};
  if (agree(exchange, own)) return kFailure;
  options.exchange = &exchange;
  follow(std::move(options));
  return kSuccess;
}

}  // namespace pinion
