// Output and input of the program: text and JSON on standard output, one line per failure or note on standard error,
// and a progress bar on terminals. Nothing else writes to either. Models, templates and file names cannot steer a
// terminal: it gets visible signs in place of control characters, while pipes and files get every byte unchanged.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

using OrderedJson = nlohmann::ordered_json;

// Exit statuses. fail and fail_usage print one line, "pinion: ...", and return theirs.
constexpr int kSuccess = 0;
constexpr int kFailure = 1;
constexpr int kUsage = 2;
int fail(const Error& failure);
int fail_usage(std::string_view message);
void warn(std::string_view message);                  // the same line, for a failure that does not end the program
void warn_of_wrong_output(std::string_view message);  // printed results may be wrong; callable from any thread
int status_of(int status);            // the program's exit status: never kSuccess after warn_of_wrong_output()
void note(std::string_view message);  // the same line, for information; suppressed by set_quiet()
void set_quiet();                     // suppresses notes and progress
void set_silent(bool is_silent);      // suppresses all output

// Standard output, flushed at once. When it cannot be written, the program ends here with kFailure.
void print(std::string_view text);
void print_control(std::string_view sequence);                    // our own escape sequence for a terminal, unfiltered
std::string json_text(const OrderedJson& json, int indent = -1);  // -1: one line; invalid UTF-8 becomes U+FFFD
void print_json(const OrderedJson& json, int indent = -1);
// The text that the template apps/reports/NAME.jinja makes of a report's fields, and of `report`, the whole, after the
// macros of figures.jinja.
Error report_text(const OrderedJson& report, std::string_view name, std::string* out);
int print_report(const OrderedJson& report, bool as_json, std::string_view name);  // returns the exit status
std::string report_template(std::string_view name);                                // empty: no such file

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;  // of a prompt or an input text
// One line of standard input without its newline. False at the end of the input and, with *failure set, on an error.
bool read_line(std::string* line, Error* failure);
// A file named by the user. It may be a pipe, as from the shell's <(command); "-" is standard input.
Error read_input(const std::string& path, int64_t max_bytes, std::string* out);
std::string input_name(const std::string& path);  // for messages: "standard input" for "-"
bool on_terminal(int descriptor);
int64_t terminal_columns();  // of standard output; 0: unknown
bool has_colour();           // false if NO_COLOR is set (no-color.org)

// Text that is safe on a terminal. Newline and tab stay; other control characters become visible signs: U+241B for ESC,
// <9B> for the C1 characters, which have no sign, and <202E> for those that change the writing direction. Bytes that
// are not UTF-8 become U+FFFD, because a terminal may take single bytes for C1.
std::string terminal_text(std::string_view text);

// Figures as text.
OrderedJson rate_json(double count, double seconds);  // count per second; null for 0 seconds
std::string rate_text(double count, double seconds);  // "95.3"; "-" for 0 seconds
std::string bytes_text(double bytes);                 // "45.2 MB"
double decimal_of(float value);                       // prints as short as the float does: 0.6, not 0.6000000238418579
OrderedJson decimals_json(const std::vector<float>& values);  // a list of these

std::string_view trimmed(std::string_view text, std::string_view blanks = " \t\r\n");
std::string command_line();  // of this process, quoted for a shell where needed

// Drawn on standard error if that is a terminal, after the first second; erased at the end.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void show(double fraction);
  void show(int64_t done, int64_t total) { show(static_cast<double>(done) / static_cast<double>(total)); }

 private:
  std::string label_;
  double start_seconds_;
  bool visible_ = false;
};

}  // namespace pinion
