// Lines from standard input: with editing and a history kept between runs on a terminal, plain from a pipe.
#pragma once

#include <optional>
#include <string>

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
  const std::string& prompt() const { return prompt_; }

  // Without the newline; nothing at the end of the input (Ctrl-D). Ctrl-C clears the line.
  std::optional<std::string> read();

 private:
  void remember(const std::string& line);

  std::string prompt_;
  std::string history_path_;  // empty: nowhere to keep it
  editline* editor_ = nullptr;
  history* history_ = nullptr;
};

}  // namespace pinion
