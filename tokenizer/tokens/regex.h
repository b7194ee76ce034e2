// Regular expressions as tokenizer files write them: Oniguruma's syntax (Ruby's), run by PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/error.h"

struct pcre2_real_code_8;

namespace pinion {

using Regex = std::shared_ptr<const pcre2_real_code_8>;

// `literal`: the pattern is plain text to be found as it stands.
Error compile_regex(const std::string& pattern, bool literal, const std::string& where, Regex* out);

struct Span {
  size_t begin, end;
  bool match;
};

using OnSpan = std::function<Error(const Span&)>;

// Finds the matches of some expressions in the parts of one text; holds PCRE2's working memory. Expressions come from
// strangers: what they take is limited for the text as a whole, by steps for each place and by time for all.
class RegexFinder {
 public:
  // `text_bytes`: the whole text's.
  explicit RegexFinder(size_t text_bytes, double base_seconds = 5.0);

  // Cuts `text` (well-formed UTF-8) into matches and what lies between them, from left to right. An empty text is one
  // span, no match. An error of `on_span` ends it.
  Error find(const Regex& regex, std::string_view text, const OnSpan& on_span);

 private:
  struct Scratch;
  Error match(const Regex& regex, std::string_view text, size_t from, Span* out);

  std::shared_ptr<Scratch> scratch_;
  double end_seconds_;      // of this thread's computing time
  int calls_to_check_ = 0;  // until the clock is read again
};

}  // namespace pinion
