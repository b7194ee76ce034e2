// See limited_run.h.
//
// Why a child process: a template engine that counts no steps can only be stopped from outside, and this also holds a
// stack overflow or too much memory. Why a plain fork, although POSIX promises the child of a process with threads only
// async-signal-safe functions: what the child needs beyond them is memory, and glibc and jemalloc keep their locks
// usable over a fork; our other threads (teams that wait, the writer of packed weights) hold no other lock that a
// template gets to; and the child enters no parallel region and leaves by _exit, so that no destructor and no buffered
// output of the parent runs twice. Starting the program anew instead would need its path, and a way in, in everything
// that links this library.
//
// The child has no files but the pipe, and may ask the system for little (kAllowedCalls): a bug in the engine that lets
// a template take over gets it nowhere. Where a kernel has no filters for system calls, or an emulator does not pass
// them on (qemu-user), it runs with the limits alone; under AddressSanitizer, too, which reads files when it unwinds.
#include "tokenizer/templates/limited_run.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <new>
#include <string_view>
#include <vector>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

void lower_limit(int resource, rlim_t most, rlim_t hard_most = RLIM_INFINITY) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_max = std::min(hard_most, limit.rlim_max);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  setrlimit(resource, &limit);
}

// Address space of this process, all of it: weights that are mapped count, shadow memory of a sanitizer too.
int64_t address_space_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void be_limited(const RunLimits& limits, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it ended before that
  lower_limit(RLIMIT_CORE, 0);
  // Who started the program may have it ignore this signal; the hard limit cannot be ignored.
  std::signal(SIGXCPU, SIG_DFL);
  const auto cpu_seconds = static_cast<rlim_t>(limits.cpu_seconds);
  lower_limit(RLIMIT_CPU, cpu_seconds, cpu_seconds + 1);
  lower_limit(RLIMIT_AS, static_cast<rlim_t>(address_space_bytes() + limits.memory_bytes));
}

// Of the open files only the pipe stays, as this number. What a crash has to say is in the parent's error.
constexpr int kPipe = STDERR_FILENO + 1;

void close_all_but(int pipe) {
  dup2(pipe, kPipe);
  if (close_range(kPipe + 1, ~0u, 0) != 0) {  // before Linux 5.9
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    for (rlim_t file = kPipe + 1; file < std::min<rlim_t>(limit.rlim_max, 1 << 20); ++file)
      close(static_cast<int>(file));
  }
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (nowhere < 0 || dup2(nowhere, standard) < 0) close(standard);
  }
  if (nowhere > kPipe) close(nowhere);
}

// Memory, time, locks, the pipe, and ways to end. Nothing opens a file, a socket or another process.
constexpr int kAllowedCalls[] = {
    SYS_read,         SYS_write,           SYS_exit,   SYS_exit_group, SYS_mmap,         SYS_munmap,
    SYS_mremap,       SYS_mprotect,        SYS_brk,    SYS_madvise,    SYS_futex,        SYS_clock_gettime,
    SYS_rt_sigreturn, SYS_rt_sigprocmask,  SYS_getpid, SYS_gettid,     SYS_rt_sigaction, SYS_sigaltstack,
    SYS_sched_yield,  SYS_restart_syscall,
};

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

#if defined(PINION_ADDRESS_SANITIZER)
constexpr bool kIsWatched = true;
#else
constexpr bool kIsWatched = false;
#endif

// A program that the kernel runs before every system call: all others fail with EPERM, rather than end the process, so
// that a C library which wants more than this one goes on. abort() sends a signal to the process itself.
void give_up_rights() {
  if (kIsWatched) return;
  constexpr uint32_t kCall = offsetof(seccomp_data, nr), kFirstArgument = offsetof(seccomp_data, args);
  const auto load = [](uint32_t offset) { return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset); };
  const auto unless = [](uint32_t value, uint8_t skip) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip);
  };
  constexpr sock_filter kAllow BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  constexpr sock_filter kRefuse BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  std::vector<sock_filter> steps = {load(offsetof(seccomp_data, arch)),
                                    sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0), kRefuse,
                                    load(kCall)};
  for (const int call : kAllowedCalls) steps.insert(steps.end(), {unless(static_cast<uint32_t>(call), 1), kAllow});
  steps.insert(steps.end(), {unless(SYS_tgkill, 3), load(kFirstArgument), unless(static_cast<uint32_t>(getpid()), 1),
                             kAllow, kRefuse});
  const sock_fprog program = {static_cast<unsigned short>(steps.size()), steps.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // or only root could
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
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

// What goes through the pipe: a letter and the number of bytes that follow, so that a record that was cut short is
// known for one; then the text, or the four parts of the error, each ended by a zero byte.
constexpr char kText = 'T', kError = 'E';
constexpr size_t kHeadBytes = 1 + sizeof(uint64_t);

std::string record_head(char kind, uint64_t bytes) {
  std::string head(kHeadBytes, kind);
  std::memcpy(&head[1], &bytes, sizeof bytes);
  return head;
}

bool is_whole_record(std::string_view record) {
  return record.size() >= kHeadBytes &&
         record.substr(0, kHeadBytes) == record_head(record[0], record.size() - kHeadBytes);
}

std::string error_parts(const Error& failure) {
  std::string record;
  for (const std::string* part : {&failure.what, &failure.where, &failure.expected, &failure.actual}) {
    record += part->substr(0, part->find('\0')) + '\0';
  }
  return record;
}

Error read_error_parts(std::string_view record) {
  Error failure;
  for (std::string* part : {&failure.what, &failure.where, &failure.expected, &failure.actual}) {
    const size_t end = std::min(record.find('\0'), record.size());
    *part = record.substr(0, end);
    record.remove_prefix(std::min(end + 1, record.size()));
  }
  return failure;
}

[[noreturn]] void run_child(const std::function<Error(std::string*)>& work, const std::string& where,
                            const RunLimits& limits, pid_t parent, std::array<int, 2> ends) {
  be_limited(limits, parent);
  close_all_but(ends[1]);  // the other end, too, or the pipe would outlive the parent and a write into it wait for ever
  tzset();                 // while it can still read the time zone's file
  give_up_rights();
  Error failure;
  std::string text;
  try {
    failure = work(&text);
  } catch (const std::bad_alloc&) {
    failure = error("takes too much memory", where);
  } catch (const std::exception& e) {
    failure = error("failed", where, {}, e.what());
  }
  if (failure) text = error_parts(failure);
  const bool written = write_all(kPipe, record_head(failure ? kError : kText, text.size())) && write_all(kPipe, text);
  _exit(written ? 0 : 1);
}

Error too_long(const std::string& where, int seconds, const char* of_what) {
  return error("takes too long", where, "at most " + std::to_string(seconds) + " s" + of_what);
}

// All that comes through the pipe.
Error read_all(int file, const std::string& where, const RunLimits& limits, std::string* out) {
  const int64_t end_ns = now_ns() + limits.wall_seconds * int64_t{1'000'000'000};
  std::array<char, 65536> buffer;
  for (;;) {
    const int64_t left_ms = (end_ns - now_ns() + 999'999) / 1'000'000;
    pollfd waiting{file, POLLIN, 0};
    const int ready = left_ms > 0 ? poll(&waiting, 1, static_cast<int>(left_ms)) : 0;
    if (ready == 0) return too_long(where, limits.wall_seconds, "");
    const ssize_t bytes = ready < 0 ? ready : read(file, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return {};
    out->append(buffer.data(), static_cast<size_t>(bytes));
    if (out->size() > kHeadBytes + static_cast<size_t>(limits.output_bytes)) {
      return error("makes too much text", where, "at most " + std::to_string(limits.output_bytes) + " bytes");
    }
  }
}

Error crash_error(int status, const std::string& where, const RunLimits& limits) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  switch (signal) {
    case SIGXCPU:
      return too_long(where, limits.cpu_seconds, " of computing");
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

bool can_filter_calls() {
  // With filters the kernel comes as far as reading the null pointer; EINVAL says that it has none.
  return !kIsWatched && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) < 0 && errno == EFAULT;
}

Error run_limited(const std::function<Error(std::string*)>& work, const std::string& where, std::string* out,
                  RunLimits limits) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return error("cannot make a pipe", where, {}, std::strerror(errno));
  const pid_t parent = getpid(), child = fork();
  if (child == 0) run_child(work, where, limits, parent, ends);
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return error("cannot start a process", where, {}, std::strerror(errno));
  }
  std::string record;
  const Error stopped = read_all(ends[0], where, limits, &record);
  close(ends[0]);
  if (stopped) kill(child, SIGKILL);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  if (stopped) return stopped;
  // Where SIGCHLD is ignored there is no status to be had: the record alone says that all went well.
  if (!is_whole_record(record)) return ended < 0 ? error("crashed", where) : crash_error(status, where, limits);
  if (record[0] == kError) return read_error_parts(std::string_view(record).substr(kHeadBytes));
  *out = record.substr(kHeadBytes);
  return {};
}

}  // namespace pinion
