// The terminal side of a chat: lines, edited and saved unless they come from a pipe, entries of several lines.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/base/error.h"

struct editline;
struct history;

namespace pinion {

class LineReader {
 public:
  explicit LineReader(std::string prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool interactive() const { return editor_ != nullptr; }
  const std::string& prompt() const { return is_continuation_ ? continuation_prompt_ : prompt_; }

  // One line without its newline or CR LF; a history entry may have several. Nothing at the end of the input (Ctrl-D).
  // `is_continuation`: a further line of the same entry, with another prompt.
  std::optional<std::string> read(bool is_continuation = false);
  const Error& failure() const { return failure_; }  // set if read() returned nothing before the end of the input
  bool cancelled() const { return is_cancelled_; }   // the last line, by Ctrl-C
  void cancel() { is_cancelled_ = true; }
  void remember(const std::string& typed);  // adds one entry to the history

 private:
  std::string prompt_, continuation_prompt_ = "... ";
  bool is_continuation_ = false, is_cancelled_ = false;
  std::string history_path_;  // empty: the history is not saved
  Error failure_;
  editline* editor_ = nullptr;
  history* history_ = nullptr;
};

struct ChatEntry {
  std::string text;
  bool is_command = false;  // begins with /
};

// Reads a line, lines up to the first one without a backslash at its end, or the lines between """ and """. Several
// lines are one entry of the history. Empty text after Ctrl-C; nothing at the end of the input.
std::optional<ChatEntry> read_entry(LineReader& reader);

// Breaks text at blanks while it arrives, so that no word crosses the right edge of a terminal.
class WordWrap {
 public:
  explicit WordWrap(int64_t columns) : columns_(columns) {}  // 0: text is unchanged

  // Takes well-formed UTF-8 and returns the text that can be printed; holds back a word until it ends or fills a line.
  std::string put(std::string_view text);
  std::string flush();  // the word held back

 private:
  struct Run {
    std::string text = {};
    int64_t columns = 0;
  };
  int64_t columns_;
  int64_t column_ = 0;  // of the cursor
  Run blanks_, word_;
};

}  // namespace pinion
