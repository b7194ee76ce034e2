// A model's answer as text: decodes token ids, ends the answer at a stop text, and splits off thoughts. Input comes in
// chunks, and their boundaries do not change the joined output. A mark is a delimiter such as <think>.
#pragma once

#include <functional>

#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// Length of the longest proper prefix of `mark` that ends `text`.
size_t partial_mark_bytes(std::string_view text, std::string_view mark);

// Ends a text before the first stop text. The beginning of a possible stop text is held back.
class StopTexts {
 public:
  // No stop text is empty.
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Returns the text that certainly precedes every stop text. If several match, the one that ends first counts.
  std::string put(std::string_view text);
  std::string finish(std::string_view last = {});      // also returns the text held back
  bool found() const { return !found_text_.empty(); }  // once true, put() and finish() return nothing
  const std::string& found_text() const { return found_text_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;  // may begin a stop text
  std::string found_text_;
};

// Decodes an answer token by token, up to the first stop text.
class AnswerText {
 public:
  // Special tokens give no text, except those for which `is_mark` is true: in some vocabularies the marks around
  // thoughts and tool calls are special tokens, and the parsers need them. `at_start`: see IncrementalDecoder.
  AnswerText(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
             std::function<bool(std::string_view token)> is_mark = {}, bool at_start = true);

  std::string put(int32_t id);  // whole UTF-8 characters
  std::string finish() { return stops_.finish(decoder_.finish()); }
  bool is_stopped() const { return stops_.found(); }  // once true, put() and finish() return nothing
  const std::string& stop_text() const { return stops_.found_text(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  IncrementalDecoder decoder_;
  StopTexts stops_;
  std::function<bool(std::string_view)> is_mark_;
};

struct ThinkingMarks {
  std::string_view open, close;
};
std::span<const ThinkingMarks> thinking_marks();
constexpr std::string_view kThinkingMarkEnds = ">]";  // last characters of the marks

bool is_thinking_mark(std::string_view token);
std::string_view opening_mark(std::string_view prompt);  // the one that ends it, before white space; empty: none

struct ThinkingText {
  std::string text;
  bool is_thought;
};

// Splits a text into thoughts, which are between <think> and </think> or other thinking_marks(), and the answer.
class ThinkingSplitter {
 public:
  // `inside`: the prompt has already opened a thought.
  explicit ThinkingSplitter(bool inside) : inside_(inside), after_mark_(inside) {}

  // Returns the text that is certainly a thought or certainly not one. Drops marks and the newlines around thoughts.
  std::vector<ThinkingText> put(std::string_view text);
  std::vector<ThinkingText> put_literal(std::string_view text);  // after held text; does not search for marks
  void trim_newlines();  // drops the newlines before and behind this point, where a tool call stands
  std::vector<ThinkingText> finish();

  bool inside() const { return inside_; }
  std::string held() const { return newlines_ + pending_; }
  std::string_view close_mark() const;  // the mark that ends the open thought

 private:
  void add(std::string_view text, std::vector<ThinkingText>* out);

  bool inside_;
  // Marks of the open thought; null: the prompt opened it, so any closing mark ends it.
  const ThinkingMarks* marks_ = nullptr;
  bool after_mark_;       // only newlines have come since the last mark
  std::string pending_;   // may begin a mark
  std::string newlines_;  // dropped if a mark follows
};

}  // namespace pinion
