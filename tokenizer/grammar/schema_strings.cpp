#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "loader/files/json.h"
#include "tokenizer/grammar/hooks.h"
#include "tokenizer/grammar/sources.h"

namespace pinion {
namespace {

// RFC 3339, full-date: 31, 30 and 28 days, and the 29th of February of leap years.
constexpr const char* kDate = R"((\d{4}-(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|\d{4}-(0[469]|11)-(0[1-9]|[12]\d|30)|)"
                              R"(\d{4}-02-(0[1-9]|1\d|2[0-8])|)"
                              R"((\d{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29))";
// RFC 3339, full-time without leap seconds.
constexpr const char* kTime = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
constexpr const char* kPointer = R"((/([^/~"\\\x00-\x1F]|~[01])*)*)";
constexpr const char* kByte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
// RFC 5321 without quotes. XGrammar's pattern has them, and its automata do not.
constexpr const char* kEmail = R"(^[\w!#$%&'*+/=?^`{|}~-]+(\.[\w!#$%&'*+/=?^`{|}~-]+)*@)"
                               R"([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$)";

// Patterns of Zod that no automaton here expresses: assertions within them, too many states, classes of Unicode. Each
// has a stricter one beside it.
constexpr const char* kStricter[][2] = {
    {R"-(^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+([.,]\d+)?S)?)?)$)-",
     R"(^P(\d+[YMWD]|(\d+D)?T(\d+H(\d+M)?|\d+M(\d+S)?|\d+S))$)"},
    {R"-(^(?=.{1,253}\.?$)[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)-"
     R"-((?:\.[a-zA-Z0-9](?:[-0-9a-zA-Z]{0,61}[0-9a-zA-Z])?)*\.?$)-",
     R"(^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z]([a-z0-9-]{0,61}[a-z0-9])?){0,2}$)"},
};

// The pattern of a format for which XGrammar's own pattern is too loose; empty for other formats.
std::string pattern_of(const Schema& format) {
  const std::string date = kDate, time = kTime, byte = kByte;
  if (format == "date") return "^" + date + "$";
  if (format == "time") return "^" + time + "$";
  if (format == "date-time") return "^" + date + "T" + time + "$";
  if (format == "json-pointer") return "^" + std::string(kPointer) + "$";
  if (format == "relative-json-pointer") return "^(0|[1-9][0-9]*)(#|" + std::string(kPointer) + ")$";
  if (format == "ipv4") return "^(" + byte + "\\.){3}" + byte + "$";
  return {};
}

// The pattern of a format for an automaton; empty for unknown formats.
std::string automaton_pattern(const std::string& format) {
  if (format == "email") return kEmail;
  std::string pattern = pattern_of(format);
  if (pattern.empty()) pattern = library_pattern(format);
  // A short scheme: afterwards a URI may end anywhere, and so within its maximum length.
  if (format == "uri") pattern.replace(pattern.find("*:"), 1, "{0,15}");
  return pattern;
}

// The strings that match all of a list of schemas.
struct StringLimits {
  std::vector<std::string> patterns;  // of JSON text, lines of a pattern of several lines (hooks.h)
  std::string pattern_where;          // of the last one
  std::vector<std::string> formats;
  int64_t min_length = 0, max_length = kUnbounded;
};

Error read_limits(std::span<const SchemaPart> parts, StringLimits* out) {
  if (Error e = read_counts(parts, "minLength", "maxLength", &out->min_length, &out->max_length)) return e;
  for (const SchemaPart& part : parts) {
    if (part.schema->contains("pattern")) {
      const Schema& pattern = (*part.schema)["pattern"];
      out->pattern_where = part.where + "/pattern";
      if (!pattern.is_string()) return error("wrong type", out->pattern_where, "a string");
      std::string escaped, text = pattern;
      for (const auto& [from, to] : kStricter) text = text == from ? to : text;
      if (Error e = escape_pattern(text, out->pattern_where, &escaped)) return e;
      add_once(escaped, &out->patterns);
    }
    if (!part.schema->contains("format")) continue;
    const Schema& format = (*part.schema)["format"];
    if (!format.is_string()) return error("wrong type", part.where + "/format", "a string");
    const auto& name = format.get_ref<const std::string&>();
    // By the standard, unknown formats are annotations.
    if (!automaton_pattern(name).empty()) add_once(name, &out->formats);
  }
  return {};
}

std::string joined_lines(const std::vector<std::string>& patterns) { return joined(patterns, "\n"); }

// Adds the pattern of each format. A format that contradicts the patterns beside it, or that has no automaton, is an
// annotation.
void add_formats(StringLimits* limits) {
  for (const std::string& format : limits->formats) {
    std::vector<std::string> all = limits->patterns;
    all.push_back(automaton_pattern(format));
    if (all.size() == 1 || automaton_states(joined_lines(all)).value_or(0) > 0) limits->patterns = all;
  }
}

// Adds the bounds of the length to patterns. A maximum becomes a part of a small automaton; else it is the last line,
// for drop_max_lengths().
void add_lengths(StringLimits* limits) {
  constexpr int64_t kMaxStates = 100;
  std::vector<std::string>& patterns = limits->patterns;
  const bool has_max = limits->max_length != kUnbounded;
  const std::string min = std::to_string(limits->min_length), max = std::to_string(limits->max_length);
  if (limits->min_length == 1 && !matches_pattern(joined_lines(patterns), "")) limits->min_length = 0;
  if (limits->min_length > 0 && !has_max) patterns.insert(patterns.begin(), length_pattern(min + ",", true));
  if (!has_max) return;
  patterns.insert(patterns.begin(), length_pattern(min + "," + max));
  const bool may_be_small = limits->max_length <= kMaxStates;
  if (may_be_small && automaton_states(joined_lines(patterns)).value_or(kMaxStates + 1) <= kMaxStates) return;
  if (limits->min_length > 0) patterns.insert(patterns.begin() + 1, length_pattern(min + ",", true));
  std::ranges::rotate(patterns, patterns.begin() + 1);
}

}  // namespace

void add_once(const std::string& text, std::vector<std::string>* out) {
  if (std::ranges::find(*out, text) == out->end()) out->push_back(text);
}

Error complete_string(std::span<const SchemaPart> parts, Schema* out) {
  StringLimits limits;
  if (Error e = read_limits(parts, &limits)) return e;
  *out = {{"type", "string"}};
  const bool has_lengths = limits.min_length > 0 || limits.max_length != kUnbounded;
  if (limits.max_length < limits.min_length) {
    *out = false;
    return {};
  }
  if (limits.patterns.empty() && limits.formats.size() == 1 && !has_lengths) {
    const std::string own = pattern_of(limits.formats[0]);
    (*out)[own.empty() ? "format" : "pattern"] = own.empty() ? limits.formats[0] : own;
    return {};
  }
  if (limits.patterns.empty() && limits.formats.empty()) {
    const std::string max = limits.max_length == kUnbounded ? "" : std::to_string(limits.max_length);
    if (has_lengths) (*out)["pattern"] = length_pattern(std::to_string(limits.min_length) + "," + max);
    return {};
  }
  add_formats(&limits);
  if (has_lengths) add_lengths(&limits);
  const std::string pattern = joined_lines(limits.patterns);
  (*out)["pattern"] = pattern;
  if (pattern.find('\n') == pattern.npos) return {};
  const std::optional<int64_t> states = automaton_states(without_max_length(pattern));
  if (!states) return error("not supported beside the other limits of the string", limits.pattern_where);
  if (*states == 0) *out = false;
  return {};
}

std::string key_pattern(const Schema& string) {
  if (string.contains("pattern")) return string["pattern"];
  if (!string.contains("format")) return length_pattern("0,");
  return automaton_pattern(string["format"]);
}

bool drop_max_lengths(Schema& schema, bool is_counter) {
  bool found = false;
  for (const auto& [name, value] : schema.items()) {
    if (value.is_structured()) {
      found |= drop_max_lengths(value, is_counter);
    } else if (name == "pattern" && value.is_string()) {
      auto& pattern = value.get_ref<std::string&>();
      const std::string dropped = without_max_length(pattern);
      found |= dropped != pattern;
      if (!is_counter) pattern = dropped;
      if (pattern.find('\n') == pattern.npos) continue;
      if (is_counter && dropped != pattern && !automaton_states(pattern)) pattern = counter_of(pattern);
    }
  }
  return found;
}

}  // namespace pinion
