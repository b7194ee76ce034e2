#include "apps/cli/console.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "kernels/base/clock.h"
#include "kernels/base/text.h"
#include "loader/files/mapped_file.h"
#include "tokenizer/templates/jinja.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

// Names from other people's files can be of any length: the middle of a message that would fill a terminal is cut.
std::string one_line(std::string_view text) {
  constexpr size_t kHeadBytes = 1500, kTailBytes = 400;
  std::string line(text);
  if (line.size() > kHeadBytes + kTailBytes) {
    line = to_utf8(line.replace(kHeadBytes, line.size() - kHeadBytes - kTailBytes, " ... "));
  }
  std::ranges::replace_if(line, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return line;
}

bool quiet = false, silent = false;
std::atomic<bool> output_may_be_wrong = false;

Error read_to_end(int descriptor, const std::string& name, int64_t max_bytes, std::string* out) {
  std::array<char, 65536> buffer;
  out->clear();
  for (;;) {
    const ssize_t bytes = read(descriptor, buffer.data(), buffer.size());
    if (bytes == 0) return {};
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return error("cannot read", name, {}, std::strerror(errno));
    out->append(buffer.data(), bytes);
    if (std::ssize(*out) > max_bytes) return error("too long", name, at_most(max_bytes) + " bytes");
  }
}

std::string text_for(int descriptor, std::string_view text) {
  return on_terminal(descriptor) ? terminal_text(text) : std::string(text);
}

}  // namespace

std::string terminal_text(std::string_view text) {
  constexpr char32_t kDelete = 0x7F, kLastC1 = 0x9F, kPictures = 0x2400, kPictureOfDelete = 0x2421;
  const auto is_bidi = [](char32_t c) { return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069); };
  std::string result;
  const std::string clean = to_utf8(text);
  for (size_t at = 0; at < clean.size();) {
    const char32_t c = next_char(clean, &at);
    if ((c > kDelete && c <= kLastC1) || is_bidi(c)) {
      result += formatted("<%02X>", static_cast<unsigned>(c));
    } else if (c == kDelete) {
      append_utf8(kPictureOfDelete, &result);
    } else {
      append_utf8(c < ' ' && c != '\n' && c != '\t' ? kPictures + c : c, &result);
    }
  }
  return result;
}

int fail(const Error& failure) {
  warn(failure.message());
  return kFailure;
}

int fail_usage(std::string_view message) {
  warn(std::string(message) + " (--help explains)");
  return kUsage;
}

void warn(std::string_view message) {
  if (silent) return;
  const std::string line = "pinion: " + text_for(STDERR_FILENO, one_line(message)) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void warn_of_wrong_output(std::string_view message) {
  warn(message);
  output_may_be_wrong = true;
}

int status_of(int status) { return status == kSuccess && output_may_be_wrong ? kFailure : status; }

void note(std::string_view message) {
  if (!quiet) warn(message);
}

void set_quiet() { quiet = true; }

void set_silent(bool is_silent) { silent = is_silent; }

void print(std::string_view text) { print_control(text_for(STDOUT_FILENO, text)); }

void print_control(std::string_view text) {
  if (silent) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  if (errno != EPIPE) warn(std::string("standard output: ") + std::strerror(errno));
  std::_Exit(kFailure);
}

std::string json_text(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

void print_json(const OrderedJson& json, int indent) { print(json_text(json, indent) + "\n"); }

Error report_text(const OrderedJson& report, std::string_view name, std::string* out) {
  OrderedJson values = report;
  values["report"] = report;
  const std::string source = report_template("figures") + report_template(name);
  return jinja::run_source(source, "report " + std::string(name), values, out);
}

int print_report(const OrderedJson& report, bool as_json, std::string_view name) {
  std::string text;
  if (Error e = as_json ? Error{} : report_text(report, name, &text)) return fail(e);
  as_json ? print_json(report) : print(text);
  return kSuccess;
}

OrderedJson rate_json(double count, double seconds) {
  return seconds > 0 ? OrderedJson(count / seconds) : OrderedJson(nullptr);
}

double decimal_of(float value) {
  std::array<char, 32> text;
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double decimal = value;
  std::from_chars(text.data(), written.ptr, decimal);
  return decimal;
}

OrderedJson decimals_json(const std::vector<float>& values) {
  OrderedJson json = OrderedJson::array();
  for (const float value : values) json.push_back(decimal_of(value));
  return json;
}

std::string rate_text(double count, double seconds) {
  if (!(seconds > 0)) return "-";
  const double rate = count / seconds;
  return formatted(rate >= 1000 ? "%.0f" : "%.1f", rate);
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const size_t begin = std::min(text.find_first_not_of(blanks), text.size());
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string line;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool is_plain = !word.empty() && word.find_first_of(" \t\n'\"\\$`;&|<>()*?[]#~!{}") == std::string::npos;
    line += (line.empty() ? "" : " ") + (is_plain ? word : "'" + replaced(word, "'", "'\\''") + "'");
  }
  return line;
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return formatted(unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
}

bool read_line(std::string* line, Error* failure) {
  const bool has_line = static_cast<bool>(std::getline(std::cin, *line));
  if (!std::ferror(stdin)) return has_line;
  *failure = error("cannot read", input_name("-"), {}, std::strerror(errno));
  return false;
}

Error read_input(const std::string& path, int64_t max_bytes, std::string* out) {
  if (path == "-") return read_to_end(STDIN_FILENO, input_name(path), max_bytes, out);
  std::error_code failure;
  if (!std::filesystem::is_fifo(path, failure)) return read_text_file(path, max_bytes, out);
  const FileDescriptor pipe(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!pipe.is_open()) return error("cannot open", path, {}, std::strerror(errno));
  return read_to_end(pipe.number, path, max_bytes, out);
}

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

bool on_terminal(int descriptor) { return isatty(descriptor) == 1; }

int64_t terminal_columns() {
  winsize size = {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool has_colour() {
  const char* forbidden = std::getenv("NO_COLOR");
  return !forbidden || !*forbidden;
}

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), start_seconds_(now_seconds()) {}

ProgressBar::~ProgressBar() {
  if (visible_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::show(double fraction) {
  if (quiet || !on_terminal(STDERR_FILENO) || now_seconds() - start_seconds_ < 1.0) return;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * kWidth);
  const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
  const double left_seconds = (now_seconds() - start_seconds_) * (1 / std::max(fraction, 1e-3) - 1);
  std::fprintf(stderr, "\r%s [%s] %3.0f%%, %.0f s left\x1b[K", label_.c_str(), bar.c_str(), fraction * 100,
               std::max(left_seconds, 0.0));
  visible_ = true;
}

}  // namespace pinion
