// The program: standard descriptors, enough stack, reports of uncaught failures, and the table of sub-commands.
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <thread>

#include "apps/cli/boards.h"
#include "apps/commands.h"
#include "apps/model/build.h"
#include "engine/boards/exchange.h"
#include "loader/files/hints.h"
#include "loader/files/mapped_file.h"

// Read by jemalloc 5.3, which crashes without memory for a new thread's arena. One is enough: decoding allocates
// nothing.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:1";
}

namespace pinion {
namespace {

// Prints a line as `note` does. Async-signal-safe.
void report_unreadable(std::string_view path) {
  std::array<char, 8192> line;
  size_t length = 0;
  const auto add = [&](std::string_view text) {
    for (const char c : text.substr(0, line.size() - length)) {
      line[length++] = static_cast<unsigned char>(c) < ' ' && c != '\n' ? ' ' : c;
    }
  };
  add("pinion: ");
  add(path.substr(0, line.size() / 2));
  add(": cannot be read any more: it was shortened, or its disk or network failed; restore it, or remove it if it "
      "belongs to the weight cache\n");
  (void)!write(STDERR_FILENO, line.data(), length);
}

void on_bus_error(int number, siginfo_t* info, void*) {
  const char* path = mapped_file_at(info->si_addr);
  if (!path) {
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  static std::atomic_flag reported;  // every thread of the team may get here
  if (!reported.test_and_set()) {
    report_unreadable(path);
    _exit(kFailure);
  }
  for (;;) pause();
}

// jemalloc and libstdc++ crash with `ulimit -s 20`. Functions in .preinit_array run before them and must not use them.
void raise_tiny_stack() {
  constexpr rlim_t kMinBytes = rlim_t{64} << 10;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kMinBytes) return;
  limit = {kMinBytes, limit.rlim_max < kMinBytes ? kMinBytes : limit.rlim_max};  // only root may raise the second
  if (setrlimit(RLIMIT_STACK, &limit) == 0) return;
  constexpr char kMessage[] = "pinion: the stack is too small: start pinion where `ulimit -s` is 64 or more\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(kFailure);
}

__attribute__((section(".preinit_array"), used)) void (*const kBeforeLibraries)() = raise_tiny_stack;

// Opens descriptors 0 to 2 if they are closed: a file opened later could get such a number and receive the output.
void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this one. The wrong direction keeps reads and writes failing.
    const int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != descriptor) _exit(kFailure);
  }
}

// After this, a read of a mapped file that was shortened, or whose disk or network failed, ends the program with a line
// that names the file, and with kFailure. The kernel reports such a read as SIGBUS; other bus errors keep their effect.
void install_bus_error_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

// Calls `run`, which must not throw, on a stack of the usual size even under a small `ulimit -s`.
int run_on_enough_stack(const std::function<int()>& run) {
  constexpr size_t kStackBytes = size_t{8} << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kStackBytes) return run();
  // The limit binds the first thread and is the default of all others, which may be given more.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  setenv("OMP_STACKSIZE", "8M", 0);  // Clang's OpenMP runtime reads this at its first use, and not the default
  int status = kFailure;
  try {
    std::thread([&] { status = run(); }).join();
  } catch (const std::system_error& failure) {
    return fail(error("cannot start a thread", "a stack of 8 MB", {}, failure.what()));
  }
  return status;
}

struct CommandRow {
  const char* name;
  Run (*setup)(Command);
};

constexpr CommandRow kCommands[] = {
    {"generate", setup_generate},
    {"chat", setup_chat},
    {"serve", setup_serve},
    {"embed", setup_embed},
    {"logits", setup_logits},
    {"tokenize", setup_tokenize},
    {"detokenize", setup_detokenize},
    {"template", setup_template},
    {"bench", setup_bench},
    {"golden", setup_golden},
    {"quality", setup_quality},
    {"get", setup_get},
    {"inspect", setup_inspect},
    {"pack", setup_pack},
    {"tune", setup_tune},
    {"cpu", setup_cpu},
    {"completion", setup_completion},
    {"man", setup_man},
};

int fail_unknown_command(const std::string& typed, const Command& root) {
  const std::string foreign = help_table("foreign").value(typed, "");
  return fail_usage("no command \"" + typed + "\"" +
                    (foreign.empty() ? did_you_mean(typed, root.command_names()) : "; " + foreign));
}

// exchange: with the other processes; null: this one is alone.
int run_program(int argc, char** argv, Exchange* exchange) {
  CommandLine line("pinion", "Pinion runs language models from Hugging Face folders on the CPU.", build_text(),
                   "Example: pinion chat --model configs/demo\n`pinion COMMAND --help` explains a command.");
  std::vector<std::pair<Command, Run>> runs;
  for (const CommandRow& row : kCommands) {
    const Command command = line.root().add_command(row.name);
    runs.emplace_back(command, row.setup(command));
  }
  static char help[] = "--help", both[] = "--pg";
  constexpr std::string_view kHelp[] = {"help", "--help", "-h"};
  if (argc > 1 && std::ranges::count(kHelp, argv[1]) > 0) {  // `pinion help chat` is `pinion chat --help`
    argv[1] = help;
    std::rotate(argv + 1, argv + 2, argv + argc);
  }
  const std::string first = argc > 1 ? argv[1] : "";
  const bool is_known =
      first.starts_with('-') || std::ranges::find(kCommands, first, &CommandRow::name) != std::end(kCommands);
  // llama-bench has -pg, but CLI11 has no short options of two letters.
  for (int i = 2; first == "bench" && i < argc; ++i) {
    if (std::string_view(argv[i]) == "-pg") argv[i] = both;
  }
  const auto parse = [&]() -> std::optional<int> {
    if (!first.empty() && !is_known) return fail_unknown_command(first, line.root());
    return line.parse(argc, argv);
  };
  if (const std::optional<int> status = exchange ? parse_on_boards(*exchange, parse) : parse()) return *status;
  Run given = {[&] {
    print(line.root().help());
    return kSuccess;
  }};
  for (const auto& [command, run] : runs) {
    if (command.is_given()) given = run;
  }
  return exchange ? run_on_boards(*exchange, given) : given.run();
}

int run_guarded(int argc, char** argv) {
  std::unique_ptr<Exchange> exchange;
  try {
    if (Error e = connect_launched_boards(&exchange)) return launched_process().rank == 0 ? fail(e) : kFailure;
    const int status = status_of(run_program(argc, argv, exchange.get()));
    if (exchange) stop_reporting_losses();
    return status;
  } catch (const std::bad_alloc&) {
    fail(error("out of memory", ""));
  } catch (const std::exception& failure) {
    fail(error(failure.what(), ""));
  }
  if (exchange) exchange->abort_all();
  return kFailure;
}

}  // namespace
}  // namespace pinion

int main(int argc, char** argv) {
  // Writes to a closed pipe, or past `ulimit -f`, then fail with an error instead of a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  pinion::open_standard_descriptors();
  pinion::install_bus_error_handler();
  return pinion::run_on_enough_stack([&] { return pinion::run_guarded(argc, argv); });
}
