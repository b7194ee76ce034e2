// How the program speaks: text and JSON on standard output, one line a failure on standard error, the exit status, and
// progress where a person watches. Nothing else in the program writes to either. What a model, a template or a file
// name holds cannot steer a terminal: its control characters are shown as signs. Pipes and files get every byte as it
// is.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "kernels/base/error.h"

namespace pinion {

using OrderedJson = nlohmann::ordered_json;

// Exit statuses. fail and fail_usage print one line, "pinion: ...", and return theirs.
constexpr int kSuccess = 0;
constexpr int kFailure = 1;
constexpr int kUsage = 2;
int fail(const Error& failure);
int fail_usage(std::string_view message);
void warn(std::string_view message);   // the same line for a failure that does not end the program
void doubt(std::string_view message);  // the same where results may be wrong that are out already; from any thread
int status_of(int status);             // of the whole program: never kSuccess after doubt()
void note(std::string_view message);   // the same for what is good to know: not once be_quiet() was called
void be_quiet();                       // no notes, no progress

// Standard output, flushed at once. The program ends here, with kFailure, when it cannot be written.
void print(std::string_view text);
void print_control(std::string_view sequence);  // our own, for a terminal: as it is
void print_json(const OrderedJson& json, int indent = -1);
void print_report(const OrderedJson& report, bool as_json, std::string (*readable)(const OrderedJson&));
OrderedJson rate_json(double count, double seconds);  // count a second; null where no time was taken
double decimal_of(float value);                       // prints as short as the float does: 0.6, not 0.6000000238418579
std::string rate_text(double count, double seconds);  // "95.3", "-"
std::string xml_text(const std::string& text);        // with < > & and quotes escaped, without control characters
std::string hash_text(uint64_t hash);                 // sixteen hexadecimal digits

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;  // of a prompt or a text to look at
Error read_standard_input(int64_t max_bytes, std::string* out);
// A line of standard input without its newline; false behind the last one, and where it cannot be read: an error then.
bool read_line(std::string* line, Error* failure);
// A file that the user named. It may be a pipe, as <(command) is in a shell, and "-" is standard input.
Error read_input(const std::string& path, int64_t max_bytes, std::string* out);
std::string input_name(const std::string& path);  // for messages
bool on_terminal(int descriptor);
int64_t terminal_columns();  // of standard output; 0: unknown
bool has_colour();           // not where NO_COLOR forbids it (no-color.org)

// What a terminal may be sent: of the control characters only newline and tab stay, the others become signs: U+241B for
// ESC, <9B> for the C1 characters, which have none, and <202E> for those that turn the direction of what follows. What
// is not UTF-8 becomes U+FFFD, for a terminal may take single bytes for C1.
std::string terminal_text(std::string_view text);

// On standard error where that is a terminal; seen only once the work has taken a second, and gone at the end.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void show(double fraction);

 private:
  std::string label_;
  double start_seconds_;
  bool visible_ = false;
};

}  // namespace pinion
