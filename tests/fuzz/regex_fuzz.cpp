// Any regular expression on any text: an error, or spans that cover the text from left to right.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"
#include "tokenizer/tokens/regex.h"
#include "tokenizer/tokens/unicode.h"

using namespace pinion;

// Input: a byte of options, the expression, a zero byte, the text.
FUZZ_TARGET(regex) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = std::min(bytes.find('\0'), bytes.size());
  Regex regex;
  if (failed(compile_regex(bytes.substr(0, cut), data[0] & 1, "pattern", &regex))) return 0;
  const std::string text = to_utf8(std::string_view(bytes).substr(std::min(cut + 1, bytes.size())));
  RegexFinder finder(text.size(), 0.01);  // keeps slow inputs short
  for (int round = 0; round < 2; ++round) {
    size_t covered = 0;
    const Error e = finder.find(regex, text, [&](const Span& span) {
      require(span.begin == covered && span.begin <= span.end && span.end <= text.size());
      covered = span.end;
      return Error{};
    });
    require(failed(e) || covered == text.size());
  }
  return 0;
}
