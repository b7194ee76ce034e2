// Regular expressions as tokenizer files write them: Oniguruma's syntax (Ruby's), run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/error.h"

struct pcre2_real_code_8;

namespace pinion {

using Regex = std::shared_ptr<const pcre2_real_code_8>;

// `literal`: the pattern is plain text to be found as it stands.
Error compile_regex(const std::string& pattern, bool literal, const std::string& where, Regex* out);

struct Span {
  size_t begin, end;
  bool match;
};

// Finds matches in one text after another; holds PCRE2's working memory, so one per thread.
class RegexFinder {
 public:
  explicit RegexFinder(Regex regex);

  // Cuts `text` (well-formed UTF-8) into matches and what lies between them. An empty text is one span, no match.
  void find(std::string_view text, std::vector<Span>* spans) const;

 private:
  struct Scratch;
  bool match(std::string_view text, size_t from, size_t* begin, size_t* end) const;

  Regex regex_;
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace pinion
