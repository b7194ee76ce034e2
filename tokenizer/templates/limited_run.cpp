// The template engine does not count its steps, so it can only be stopped from outside; a child process also contains
// stack overflows and excessive memory. A plain fork is sufficient, although POSIX allows the child of a process with
// threads only async-signal-safe functions: beyond these the child needs memory, and glibc and jemalloc keep their
// locks usable across a fork; the other threads hold no other lock that a template reaches. The child enters no
// parallel region and leaves by _exit, so no destructor and no buffered output of the parent runs twice. It has no
// files but the pipe, and only the system calls of kAllowedCalls, so a bug in the engine gives a template no access.
// Kernels and emulators (qemu-user) without such filters provide the limits alone; so does AddressSanitizer, which
// reads files.
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
#include <exception>
#include <fstream>
#include <new>
#include <string_view>
#include <vector>

#include "kernels/base/clock.h"

namespace pinion {
namespace {

void lower_limit(int resource, rlim_t soft, rlim_t hard = RLIM_INFINITY) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return;
  limit.rlim_max = std::min(hard, limit.rlim_max);
  limit.rlim_cur = std::min(soft, limit.rlim_max);
  setrlimit(resource, &limit);
}

// The whole address space of this process, including mapped weights and a sanitizer's shadow memory.
int64_t address_space_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void set_limits(const RunLimits& limits, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent ended before prctl
  lower_limit(RLIMIT_CORE, 0);
  // The program may have been started with this signal ignored; the hard limit cannot be ignored.
  std::signal(SIGXCPU, SIG_DFL);
  lower_limit(RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1);
  lower_limit(RLIMIT_AS, address_space_bytes() + limits.memory_bytes);
}

constexpr int kPipe = STDERR_FILENO + 1;  // the only open file of the child; stdin, stdout and stderr are /dev/null

void close_all_but(int pipe) {
  dup2(pipe, kPipe);
  if (close_range(kPipe + 1, ~0u, 0) != 0) {  // before Linux 5.9
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    for (rlim_t fd = kPipe + 1; fd < std::min<rlim_t>(limit.rlim_max, 1 << 20); ++fd) close(static_cast<int>(fd));
  }
  const int null_device = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (null_device < 0 || dup2(null_device, standard) < 0) close(standard);
  }
  if (null_device > kPipe) close(null_device);
}

// Memory, time, locks, the pipe, and exit. None opens a file or a socket or starts a process.
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
constexpr bool kHasAddressSanitizer = true;
#else
constexpr bool kHasAddressSanitizer = false;
#endif

// Installs a program that the kernel runs before every system call. Calls outside kAllowedCalls fail with EPERM instead
// of ending the process, so that a C library that tries others continues. abort() sends a signal to its own process.
void filter_system_calls() {
  if (kHasAddressSanitizer) return;
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
  for (const int call : kAllowedCalls) steps.insert(steps.end(), {unless(call, 1), kAllow});
  steps.insert(steps.end(), {unless(SYS_tgkill, 3), load(kFirstArgument), unless(getpid(), 1), kAllow, kRefuse});
  const sock_fprog program = {static_cast<unsigned short>(steps.size()), steps.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);  // required unless root
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(written);
  }
  return true;
}

// The message in the pipe: a letter and the number of bytes that follow, which detects a truncated message; then the
// text, or the four fields of the error, each terminated by a zero byte.
constexpr char kText = 'T', kError = 'E';
constexpr size_t kHeaderBytes = 1 + sizeof(uint64_t);

std::string message_header(char kind, uint64_t bytes) {
  std::string header(kHeaderBytes, kind);
  std::memcpy(&header[1], &bytes, sizeof bytes);
  return header;
}

bool is_complete(std::string_view message) {
  return message.size() >= kHeaderBytes &&
         message.substr(0, kHeaderBytes) == message_header(message[0], message.size() - kHeaderBytes);
}

std::string error_fields(const Error& failure) {
  std::string message;
  for (const std::string* field : {&failure.what, &failure.where, &failure.expected, &failure.actual}) {
    message += field->substr(0, field->find('\0')) + '\0';
  }
  return message;
}

Error read_error_fields(std::string_view message) {
  Error failure;
  for (std::string* field : {&failure.what, &failure.where, &failure.expected, &failure.actual}) {
    const size_t end = std::min(message.find('\0'), message.size());
    *field = message.substr(0, end);
    message.remove_prefix(std::min(end + 1, message.size()));
  }
  return failure;
}

[[noreturn]] void run_child(const LimitedWork& work, const std::string& where, const RunLimits& limits, pid_t parent,
                            std::array<int, 2> ends) {
  set_limits(limits, parent);
  close_all_but(ends[1]);  // with the reading end open here, a write would block forever once the parent has ended
  tzset();                 // reads the file of the time zone
  filter_system_calls();
  Error failure;
  std::string text;
  try {
    failure = work(&text);
  } catch (const std::bad_alloc&) {
    failure = error("takes too much memory", where);
  } catch (const std::exception& e) {
    failure = error("failed", where, {}, e.what());
  }
  if (failure) text = error_fields(failure);
  const bool sent = write_all(kPipe, message_header(failure ? kError : kText, text.size())) && write_all(kPipe, text);
  _exit(sent ? 0 : 1);
}

Error too_long(const std::string& where, int seconds, const char* unit) {
  return error("takes too long", where, at_most(seconds) + unit);
}

Error read_all(int file, const std::string& where, const RunLimits& limits, std::string* out) {
  const int64_t end_ns = now_ns() + limits.wall_seconds * int64_t{1'000'000'000};
  std::array<char, 65536> buffer;
  for (;;) {
    const int64_t left_ms = (end_ns - now_ns() + 999'999) / 1'000'000;
    pollfd waiting{file, POLLIN, 0};
    const int ready = left_ms > 0 ? poll(&waiting, 1, static_cast<int>(left_ms)) : 0;
    if (ready == 0) return too_long(where, limits.wall_seconds, " s");
    const ssize_t bytes = ready < 0 ? ready : read(file, buffer.data(), buffer.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return {};
    out->append(buffer.data(), bytes);
    if (out->size() > kHeaderBytes + limits.output_bytes) {
      return error("makes too much text", where, at_most(limits.output_bytes) + " bytes");
    }
  }
}

Error crash_error(int status, const std::string& where, const RunLimits& limits) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (signal == SIGXCPU) return too_long(where, limits.cpu_seconds, " s of computing");
  if (signal == SIGFPE) return error("divides by zero", where);
  if (signal == SIGSEGV) return error("crashed; it nests or calls itself too deep", where);
  if (signal == 0) return error("crashed", where, {}, "exit status " + std::to_string(WEXITSTATUS(status)));
  return error("crashed", where, {}, "signal " + std::to_string(signal));
}

}  // namespace

bool can_filter_calls() {
  // A kernel with filters fails when it reads the null pointer; one without them returns EINVAL.
  return !kHasAddressSanitizer && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr) < 0 && errno == EFAULT;
}

Error run_limited(const LimitedWork& work, const std::string& where, std::string* out, RunLimits limits) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return error("cannot make a pipe", where, {}, std::strerror(errno));
  const pid_t parent = getpid(), child = fork();
  if (child == 0) run_child(work, where, limits, parent, ends);
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return error("cannot start a process", where, {}, std::strerror(errno));
  }
  std::string message;
  const Error stopped = read_all(ends[0], where, limits, &message);
  close(ends[0]);
  if (stopped) kill(child, SIGKILL);
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) continue;
  if (stopped) return stopped;
  // If the program ignores SIGCHLD, waitpid() gives no status; a complete message proves success.
  if (!is_complete(message)) return ended < 0 ? error("crashed", where) : crash_error(status, where, limits);
  if (message[0] == kError) return read_error_fields(std::string_view(message).substr(kHeaderBytes));
  *out = message.substr(kHeaderBytes);
  return {};
}

}  // namespace pinion
