// Cuts a model's text, as it comes, into thoughts (between <think> and </think>, or other marks) and answer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pinion {

struct ThinkingMarks {
  std::string_view open, close;
};
std::span<const ThinkingMarks> thinking_marks();
constexpr std::string_view kLastOfThinkingMarks = ">]";  // their last characters

struct ThinkingPart {
  std::string text;
  bool is_thought;
};

class ThinkingSplitter {
 public:
  // `inside`: the prompt has opened a thought already.
  explicit ThinkingSplitter(bool inside) : inside_(inside), after_mark_(inside) {}

  // What is certain by now, in order; the marks themselves and the blank lines around thoughts are left out.
  std::vector<ThinkingPart> put(std::string_view text);
  std::vector<ThinkingPart> put_plain(std::string_view text);  // marks in it are text; nothing but newlines stays back
  void leave_out_newlines();           // something else stands here: the newlines around it are left out, too
  std::vector<ThinkingPart> finish();  // what was held back

  bool inside() const { return inside_; }
  std::string_view close_mark() const;  // that ends the thought which is open

 private:
  void add(std::string_view text, std::vector<ThinkingPart>* parts);

  bool inside_;
  const ThinkingMarks* marks_ = nullptr;  // of that thought; null: the prompt has opened it, and any may end it
  bool after_mark_;                       // nothing but newlines since then
  std::string pending_;                   // may be the beginning of a mark
  std::string newlines_;                  // part of the text unless a mark follows
};

// Whether a prompt ends inside a thought.
bool ends_in_thought(std::string_view prompt);

bool is_thinking_mark(std::string_view token);

}  // namespace pinion
