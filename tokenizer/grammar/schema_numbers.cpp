// Bounds and multiples of numbers: those of several schemas become one that XGrammar implements.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "loader/files/json.h"
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

Error read_bounds(std::span<const SchemaPart> parts, Bounds* out) {
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
Error read_step(std::span<const SchemaPart> parts, double* step, std::string* where) {
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

// The multiples within bounds as an enum. XGrammar has no fractional steps, and no steps beside one bound. If an
// integer has more multiples, those nearest to 0 remain.
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

}  // namespace

Error complete_number(std::span<const SchemaPart> parts, bool is_integer, Schema* out) {
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

}  // namespace pinion
