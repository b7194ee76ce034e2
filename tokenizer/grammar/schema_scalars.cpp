// Strings and numbers: the limits of several schemas become one schema that XGrammar implements.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "configs/families.h"
#include "loader/files/json.h"
#include "tokenizer/grammar/hooks.h"
#include "tokenizer/grammar/sources.h"

namespace pinion {
namespace {

constexpr int64_t kFirst = std::numeric_limits<int64_t>::min(), kLast = std::numeric_limits<int64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The smallest integer that a lower bound allows, or the largest that an upper one does, saturated.
int64_t integer_bound(const Schema& bound, bool is_lower, bool is_exclusive) {
  const bool is_beyond = bound.is_number_unsigned() && bound.get<uint64_t>() > static_cast<uint64_t>(kLast);
  const auto value = bound.get<double>();
  const double rounded = is_lower ? std::ceil(value) : std::floor(value);
  if (is_beyond || (bound.is_number_float() && rounded >= 0x1p63)) return kLast;
  if (bound.is_number_float() && rounded < -0x1p63) return kFirst;
  const int64_t integer = bound.is_number_float() ? static_cast<int64_t>(rounded) : bound.get<int64_t>();
  if (!is_exclusive || (bound.is_number_float() && rounded != value)) return integer;
  return is_lower ? integer + (integer < kLast) : integer - (integer > kFirst);
}

// The tightest bounds of all schemas. Integers have inclusive bounds of 64 bits.
struct Bounds {
  double low = -kInfinity, high = kInfinity;
  bool is_low_open = false, is_high_open = false;  // the bound itself is excluded
  int64_t first = kFirst, last = kLast;
  bool has_low = false, has_high = false;
  std::string where = {};  // of the last keyword read

  void add(const Schema& bound, bool is_lower, bool is_exclusive) {
    const auto value = bound.get<double>();
    if (is_lower) {
      if (value >= low) is_low_open = is_exclusive || (value == low && is_low_open), low = value;
      first = std::max(first, integer_bound(bound, true, is_exclusive));
      has_low = true;
    } else {
      if (value <= high) is_high_open = is_exclusive || (value == high && is_high_open), high = value;
      last = std::min(last, integer_bound(bound, false, is_exclusive));
      has_high = true;
    }
  }
};

Error read_bounds(Parts parts, Bounds* out) {
  constexpr struct {
    const char *name, *exclusive;  // the exclusive form; draft 4 has a boolean there
    bool is_lower;
  } kBounds[] = {{"minimum", "exclusiveMinimum", true}, {"maximum", "exclusiveMaximum", false}};
  for (const SchemaPart& part : parts) {
    for (const auto& [name, exclusive, is_lower] : kBounds) {
      const bool is_draft4 = part.schema->contains(exclusive) && (*part.schema)[exclusive].is_boolean();
      for (const char* keyword : {name, exclusive}) {
        if (!part.schema->contains(keyword) || (is_draft4 && keyword == exclusive)) continue;
        const Schema& bound = (*part.schema)[keyword];
        out->where = part.where + "/" + keyword;
        if (!bound.is_number()) return error("wrong type", out->where, "a number", brief(Json(bound)));
        out->add(bound, is_lower, keyword == exclusive || (is_draft4 && (*part.schema)[exclusive] == true));
      }
    }
  }
  return {};
}

// The step of all multipleOf together; 0: none.
Error read_step(Parts parts, double* step, std::string* where) {
  for (const SchemaPart& part : parts) {
    if (!part.schema->contains("multipleOf")) continue;
    const Schema& value = (*part.schema)["multipleOf"];
    *where = part.where + "/multipleOf";
    if (!value.is_number() || value <= 0) return error("out of range", *where, "a number above 0", brief(Json(value)));
    const double other = std::exchange(*step, std::max(*step, value.get<double>()));
    const bool is_multiple = other == 0 || std::fmod(*step, std::min(other, value.get<double>())) == 0;
    if (!is_multiple) return error("not supported beside another multipleOf", *where);
  }
  return {};
}

// The multiples within bounds as an enum, of integers those nearest to 0: XGrammar has no steps beside one bound.
Error list_multiples(const Bounds& bounds, double step, bool is_integer, const std::string& where, Schema* out) {
  constexpr double kMaxListed = 2000;
  double first = std::ceil((is_integer ? static_cast<double>(bounds.first) : bounds.low) / step),
         last = std::floor((is_integer ? static_cast<double>(bounds.last) : bounds.high) / step);
  if (last - first >= kMaxListed) {
    if (!is_integer) return error("not supported with so many multiples", where, "bounds, and at most 2000 multiples");
    const double begin = std::clamp(-std::trunc(kMaxListed / 2), first, last - kMaxListed + 1);
    first = first > 0 ? first : last < 0 ? last - kMaxListed + 1 : begin;
    last = first + kMaxListed - 1;
  }
  Schema values = Schema::array();
  for (double i = first; i <= last; ++i) {
    const double value = i * step, count = value / step;
    if (std::trunc(count) != count || (bounds.is_low_open && value <= bounds.low) ||
        (bounds.is_high_open && value >= bounds.high)) {
      continue;
    }
    const bool is_whole = std::trunc(value) == value && std::abs(value) < 0x1p62;
    values.push_back(is_whole ? Schema(static_cast<int64_t>(value)) : Schema(value));
  }
  *out = values.empty() ? Schema(false) : Schema({{"enum", values}});
  return {};
}

// XGrammar's numbers have at most six decimals; true if none lies within the bounds.
bool is_gap(const Bounds& bounds) {
  constexpr double kSteps = 1e6;
  if (bounds.high - bounds.low > 2 / kSteps) return false;
  const double first = std::floor(bounds.low * kSteps) - 1;
  for (int i = 0; i < 6; ++i) {
    const double number = (first + i) / kSteps;
    const bool is_within = (bounds.is_low_open ? number > bounds.low : number >= bounds.low) &&
                           (bounds.is_high_open ? number < bounds.high : number <= bounds.high);
    if (is_within) return false;
  }
  return true;
}

Error complete_integer(const Bounds& bounds, double step, const std::string& where, Schema* out) {
  constexpr double kMaxStep = 1024;  // of XGrammar
  if (bounds.first > bounds.last) {
    *out = false;
  } else if (step > 1 && (bounds.has_low || bounds.has_high || step > kMaxStep)) {
    return list_multiples(bounds, step, true, where, out);
  } else {
    *out = {{"type", "integer"}};
    if (bounds.has_low) (*out)["minimum"] = bounds.first;
    if (bounds.has_high) (*out)["maximum"] = bounds.last;
    if (step > 1) (*out)["multipleOf"] = static_cast<int64_t>(step);
  }
  return {};
}

const Json kStringFormats = Json::parse(string_formats_text());

// The pattern of a format for which XGrammar's own pattern is too loose; empty for other formats.
std::string pattern_of(const std::string& format) { return kStringFormats["patterns"].value(format, ""); }

// The pattern of a format for an automaton; empty for unknown formats.
std::string automaton_pattern(const std::string& format) {
  std::string pattern = kStringFormats["automata"].value(format, pattern_of(format));
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

Error read_limits(Parts parts, StringLimits* out) {
  if (Error e = read_counts(parts, "minLength", "maxLength", &out->min_length, &out->max_length)) return e;
  for (const SchemaPart& part : parts) {
    if (part.schema->contains("pattern")) {
      const Schema& pattern = (*part.schema)["pattern"];
      out->pattern_where = part.where + "/pattern";
      if (!pattern.is_string()) return error("wrong type", out->pattern_where, "a string");
      std::string escaped, text = pattern;
      text = kStringFormats["stricter"].value(text, text);
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

// Adds the patterns of formats. One that contradicts the patterns beside it, or has no automaton, is an annotation.
void add_formats(StringLimits* limits) {
  for (const std::string& format : limits->formats) {
    std::vector<std::string> all = limits->patterns;
    all.push_back(automaton_pattern(format));
    if (all.size() == 1 || automaton_states(joined(all, "\n")).value_or(0) > 0) limits->patterns = all;
  }
}

// Adds the bounds of the length to patterns: to a small automaton, else as the last line, for drop_max_lengths().
void add_lengths(StringLimits* limits) {
  constexpr int64_t kMaxStates = 100;
  std::vector<std::string>& patterns = limits->patterns;
  const bool has_max = limits->max_length != kUnbounded;
  const std::string min = std::to_string(limits->min_length), max = std::to_string(limits->max_length);
  if (limits->min_length == 1 && !matches_pattern(joined(patterns, "\n"), "")) limits->min_length = 0;
  if (limits->min_length > 0 && !has_max) patterns.insert(patterns.begin(), length_pattern(min + ",", true));
  if (!has_max) return;
  patterns.insert(patterns.begin(), length_pattern(min + "," + max));
  const bool may_be_small = limits->max_length <= kMaxStates;
  if (may_be_small && automaton_states(joined(patterns, "\n")).value_or(kMaxStates + 1) <= kMaxStates) return;
  if (limits->min_length > 0) patterns.insert(patterns.begin() + 1, length_pattern(min + ",", true));
  std::ranges::rotate(patterns, patterns.begin() + 1);
}

}  // namespace

Error complete_number(Parts parts, bool is_integer, Schema* out) {
  // Bounded numbers have no exponent, so that many digits.
  constexpr double kLargest = 1e15;
  Bounds bounds;
  if (Error e = read_bounds(parts, &bounds)) return e;
  double step = 0;
  std::string where;
  if (Error e = read_step(parts, &step, &where)) return e;
  const bool is_whole_step = step >= 1 && std::trunc(step) == step;
  if (is_integer && (bounds.low > 0x1p63 || bounds.high < -0x1p63)) {
    return error("out of range", bounds.where, "a bound of 64 bits");
  }
  if (is_integer || is_whole_step) {
    if (step != 0 && !is_whole_step) {  // multiples of 0.5 include all integers
      if (std::trunc(1 / step) != 1 / step) return error("not supported for integers", where);
      step = 0;
    }
    return complete_integer(bounds, step, where, out);
  }
  if (step != 0) return list_multiples(bounds, step, false, where, out);
  if (bounds.low > bounds.high || (bounds.low == bounds.high && (bounds.is_low_open || bounds.is_high_open))) {
    *out = false;
    return {};
  }
  if (is_gap(bounds)) return error("no number with six decimals fits the bounds", bounds.where);
  if (bounds.high > kLargest && bounds.low < kLargest && (bounds.has_low || bounds.has_high)) {
    bounds.high = kLargest, bounds.is_high_open = false;
  }
  if (bounds.low < -kLargest && bounds.high > -kLargest && (bounds.has_low || bounds.has_high)) {
    bounds.low = -kLargest, bounds.is_low_open = false;
  }
  const auto written = [](double bound) {
    return std::trunc(bound) == bound && std::abs(bound) < 0x1p53 ? Schema(static_cast<int64_t>(bound)) : Schema(bound);
  };
  *out = {{"type", "number"}};
  if (bounds.low > -kInfinity) (*out)[bounds.is_low_open ? "exclusiveMinimum" : "minimum"] = written(bounds.low);
  if (bounds.high < kInfinity) (*out)[bounds.is_high_open ? "exclusiveMaximum" : "maximum"] = written(bounds.high);
  return {};
}

void add_once(const std::string& text, std::vector<std::string>* out) {
  if (std::ranges::find(*out, text) == out->end()) out->push_back(text);
}

Error complete_string(Parts parts, Schema* out) {
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
  const std::string pattern = joined(limits.patterns, "\n");
  (*out)["pattern"] = pattern;
  if (pattern.find('\n') == pattern.npos) return {};
  const std::optional<int64_t> states = automaton_states(without_max_length(pattern));
  if (!states) return error("not supported beside the other limits of the string", limits.pattern_where);
  if (*states == 0) *out = false;
  return {};
}

std::string key_pattern(const Schema& string) {
  if (string.contains("pattern")) return string["pattern"];
  return !string.contains("format") ? length_pattern("0,") : automaton_pattern(string["format"]);
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
