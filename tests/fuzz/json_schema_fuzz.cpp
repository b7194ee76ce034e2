// Any schema is rejected or completed to valid JSON. Any pattern: a text that its translation accepts is the content of
// a JSON string in which the pattern itself matches.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tests/fuzz/check.h"
#include "tests/fuzz/target.h"
#include "tokenizer/grammar/sources.h"
#include "tokenizer/tokens/regex.h"
#include "tokenizer/tokens/unicode.h"

using namespace pinion;

namespace {

// Nothing if the regex is not supported or takes too long.
std::optional<bool> has_match(const std::string& pattern, const std::string& text) {
  Regex regex;
  if (compile_regex(pattern, false, "pattern", &regex)) return {};
  RegexFinder finder(text.size(), 0.01);
  bool found = false;
  const Error e = finder.find(regex, text, [&](const Span& span) {
    found = found || span.match;
    return Error{};
  });
  return e ? std::nullopt : std::optional(found);
}

// PCRE2's own syntax, which patterns of schemas lack.
bool is_foreign(const std::string& pattern) {
  for (const char* part : {"(?", "(*", "[:", "[.", "[="}) {
    if (pattern.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

// Input: a pattern, a zero byte, the content of a JSON string; without the zero byte a schema.
FUZZ_TARGET(json_schema) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const size_t cut = bytes.find('\0');
  std::string written;
  if (cut == std::string::npos) {
    if (failed(complete_schema(bytes, "schema", &written))) return 0;
    require(nlohmann::json::accept(written));
    return 0;
  }
  const std::string pattern = to_utf8(bytes.substr(0, cut)), text = to_utf8(bytes.substr(cut + 1));
  if (is_foreign(pattern) || failed(escape_pattern(pattern, "pattern", &written))) return 0;
  if (!has_match("\\A(?:" + written + ")\\z", text).value_or(false)) return 0;
  const nlohmann::json decoded = nlohmann::json::parse('"' + text + '"', nullptr, false);
  require(decoded.is_string());
  require(has_match(pattern, decoded.get<std::string>()).value_or(true));
  return 0;
}
