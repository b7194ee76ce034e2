// Ends a model's text, as it comes, before the first of some texts. What may be the beginning of one is held back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pinion {

class StopTexts {
 public:
  // None of them is empty.
  explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What is certain to come before any of them. Of several, the one counts that is complete first: so it does not
  // matter how the text is cut into pieces.
  std::string put(std::string_view text);
  std::string finish(std::string_view last = {});      // the same, with what was held back
  bool found() const { return !found_text_.empty(); }  // from then on there is no more text
  const std::string& found_text() const { return found_text_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;  // may be the beginning of one
  std::string found_text_;
};

// How many bytes at the end of `text` may be the beginning of `mark`: not all of it.
size_t begun_mark(std::string_view text, std::string_view mark);

}  // namespace pinion
