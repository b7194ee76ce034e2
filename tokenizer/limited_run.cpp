// See limited_run.h.
//
// Why a child process: a template engine without a hook to count its steps can only be stopped from outside, and this
// also holds a stack overflow or a division by zero. Why a plain fork, although POSIX promises the child of a process
// with threads only async-signal-safe functions: what the child needs beyond them is memory, and glibc and jemalloc
// keep their locks usable over a fork; our other threads (teams that wait, the writer of packed weights) hold no other
// lock that a template gets to; and the child enters no parallel region and leaves by _exit, so that no destructor and
// no buffered output of the parent runs twice. Starting the program anew instead would need its path, and a way in, in
// everything that links this library.
#include "tokenizer/limited_run.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <string_view>

namespace pinion {
namespace {

void lower_limit(int resource, rlim_t most) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(most, limit.rlim_max);
  setrlimit(resource, &limit);
}

// Address space of this process, all of it: weights that are mapped count, shadow memory of a sanitizer too.
int64_t address_space_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void be_limited(const RunLimits& limits) {
  lower_limit(RLIMIT_CORE, 0);
  lower_limit(RLIMIT_CPU, static_cast<rlim_t>(limits.cpu_seconds));
  lower_limit(RLIMIT_AS, static_cast<rlim_t>(address_space_bytes() + limits.memory_bytes));
  // What a crash has to say is in the parent's error.
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// What goes through the pipe: a letter, then the text, or the four parts of the error, each ended by a zero byte.
constexpr char kText = 'T', kError = 'E';

std::string error_record(const Error& failure) {
  std::string record(1, kError);
  for (const std::string* part : {&failure.what, &failure.where, &failure.expected, &failure.actual}) {
    record += part->substr(0, part->find('\0')) + '\0';
  }
  return record;
}

Error read_error_record(std::string_view record) {
  Error failure;
  for (std::string* part : {&failure.what, &failure.where, &failure.expected, &failure.actual}) {
    const size_t end = std::min(record.find('\0'), record.size());
    *part = record.substr(0, end);
    record.remove_prefix(std::min(end + 1, record.size()));
  }
  if (!failure) failure.what = "failed";  // a record that was cut short
  return failure;
}

[[noreturn]] void run_child(const std::function<Error(std::string*)>& work, const std::string& where,
                            const RunLimits& limits, int pipe_end) {
  be_limited(limits);
  Error failure;
  std::string text;
  try {
    failure = work(&text);
  } catch (const std::bad_alloc&) {
    failure = error("takes too much memory", where);
  } catch (const std::exception& e) {
    failure = error("failed", where, {}, e.what());
  }
  const bool written = failure ? write_all(pipe_end, error_record(failure))
                               : write_all(pipe_end, {&kText, 1}) && write_all(pipe_end, text);
  _exit(written ? 0 : 1);
}

// All that comes through the pipe; false: more than that.
bool read_all(int file, size_t most_bytes, std::string* out) {
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t bytes = read(file, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return true;
    out->append(buffer.data(), static_cast<size_t>(bytes));
    if (out->size() > most_bytes) return false;
  }
}

Error crash_error(int status, const std::string& where, const RunLimits& limits) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  switch (signal) {
    case SIGXCPU:
      return error("takes too long", where, "at most " + std::to_string(limits.cpu_seconds) + " s of computing");
    case SIGFPE:
      return error("divides by zero", where);
    case SIGSEGV:
      return error("crashed; it nests or calls itself too deep", where);
    case 0:
      return error("crashed", where, {}, "exit status " + std::to_string(WEXITSTATUS(status)));
    default:
      return error("crashed", where, {}, "signal " + std::to_string(signal));
  }
}

}  // namespace

Error run_limited(const std::function<Error(std::string*)>& work, const std::string& where, std::string* out,
                  RunLimits limits) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return error("cannot make a pipe", where, {}, std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) run_child(work, where, limits, ends[1]);
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return error("cannot start a process", where, {}, std::strerror(errno));
  }
  std::string record;
  const bool is_whole = read_all(ends[0], static_cast<size_t>(limits.output_bytes) + 1, &record);
  close(ends[0]);
  if (!is_whole) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!is_whole)
    return error("makes too much text", where, "at most " + std::to_string(limits.output_bytes) + " bytes");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || record.empty()) return crash_error(status, where, limits);
  if (record[0] == kError) return read_error_record(std::string_view(record).substr(1));
  *out = record.substr(1);
  return {};
}

}  // namespace pinion
