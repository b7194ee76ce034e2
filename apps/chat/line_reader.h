// Lines from standard input: with editing and a history kept between runs on a terminal, plain from a pipe.
#pragma once

#include <optional>
#include <string>

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
  const std::string& prompt() const { return is_more_ ? more_prompt_ : prompt_; }

  // Without the newline, or CR LF; nothing at the end of the input (Ctrl-D). A line out of the history may hold
  // several.
  std::optional<std::string> read();
  std::optional<std::string> read_more();            // a line that belongs to the one before: with another prompt
  const Error& failure() const { return failure_; }  // why there is nothing more, where that is not the input's end
  bool cancelled() const { return is_cancelled_; }   // the last one, by Ctrl-C
  void cancel() { is_cancelled_ = true; }
  void remember(const std::string& typed);  // as one entry of the history

 private:
  std::string prompt_, more_prompt_ = "... ";
  bool is_more_ = false, is_cancelled_ = false;
  std::string history_path_;  // empty: nowhere to keep it
  Error failure_;
  editline* editor_ = nullptr;
  history* history_ = nullptr;
};

}  // namespace pinion
