// Breaks text at blanks, as it comes, so that no word is cut at a terminal's right edge.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pinion {

class WordWrap {
 public:
  explicit WordWrap(int64_t columns) : columns_(columns) {}  // 0: the text stays as it is

  // Well-formed UTF-8, what can be shown by now: a word is held back until it ends or fills a line.
  std::string put(std::string_view text);
  std::string flush();  // the word that was held back

 private:
  void end_word(std::string* out);

  int64_t columns_;
  int64_t column_ = 0;  // where the cursor stands
  std::string blanks_, word_;
  int64_t blank_columns_ = 0, word_columns_ = 0;
};

}  // namespace pinion
