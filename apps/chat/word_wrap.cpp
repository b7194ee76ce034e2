#include "apps/chat/word_wrap.h"

#include <wchar.h>

#include <algorithm>

#include "tokenizer/tokens/unicode.h"

namespace pinion {

void WordWrap::end_word(std::string* out) {
  if (word_.empty()) return;
  if (column_ > 0 && column_ + blank_columns_ + word_columns_ > columns_) {
    *out += "\n";
    blanks_.clear();
    blank_columns_ = column_ = 0;
  }
  *out += blanks_ + word_;
  column_ += blank_columns_ + word_columns_;
  blanks_.clear();
  word_.clear();
  blank_columns_ = word_columns_ = 0;
}

std::string WordWrap::put(std::string_view text) {
  if (columns_ <= 0) return std::string(text);
  constexpr int64_t kTabColumns = 8;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_char(text, &at);
    const std::string_view character = text.substr(begin, at - begin);
    const int64_t width = std::max(0, wcwidth(static_cast<wchar_t>(c)));
    const bool is_wide = width > 1;  // Chinese, Japanese and Korean text has no blanks: it may break anywhere
    const bool is_blank = c == ' ' || c == '\t';
    const bool is_too_long = c != '\n' && !is_blank && word_columns_ + width > columns_;
    if (c == '\n' || is_blank || is_wide || is_too_long) end_word(&out);
    if (is_too_long) column_ = 0;  // the terminal breaks such a word, and copies it whole
    if (c == '\n') {
      out += "\n";
      blanks_.clear();
      blank_columns_ = column_ = 0;
    } else {
      (is_blank ? blanks_ : word_) += character;
      (is_blank ? blank_columns_ : word_columns_) += c == '\t' ? kTabColumns : width;
    }
    if (is_wide) end_word(&out);
  }
  return out;
}

std::string WordWrap::flush() {
  std::string out;
  end_word(&out);
  return out;
}

}  // namespace pinion
