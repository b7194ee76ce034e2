// Regular expressions of tokenizer files: Oniguruma's syntax (Ruby's), run by PCRE2.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "kernels/base/error.h"

struct pcre2_real_code_8;

namespace pinion {

using Regex = std::shared_ptr<const pcre2_real_code_8>;

// Rewrites a pattern of Oniguruma in PCRE2's syntax. A difference that no known tokenizer uses is an error.
Error translate_regex(const std::string& pattern, const std::string& where, std::string* out);

// `literal`: the pattern is plain text. `where` names it in errors.
Error compile_regex(const std::string& pattern, bool literal, const std::string& where, Regex* out);

struct Span {
  size_t begin, end;
  bool match;
};

using OnSpan = std::function<Error(const Span&)>;

// Finds matches in the parts of one text and holds PCRE2's working memory. Patterns and texts are untrusted, so the
// cost is limited: in steps for each position, and in CPU time for the text as a whole.
class RegexFinder {
 public:
  // `text_bytes`: size of the whole text, which adds to the base time.
  explicit RegexFinder(size_t text_bytes, double base_seconds = 5.0);

  // Splits `text` (well-formed UTF-8) into matches and the spans between them, from left to right. An empty text is one
  // span without a match. An error of `on_span` ends the search and is returned.
  Error find(const Regex& regex, std::string_view text, const OnSpan& on_span);

 private:
  struct Scratch;
  Error match(const Regex& regex, std::string_view text, size_t from, Span* out);

  std::shared_ptr<Scratch> scratch_;
  double end_seconds_;         // in CPU time of the thread
  int calls_until_check_ = 0;  // of the clock
};

}  // namespace pinion
