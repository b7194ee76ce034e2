// Filters about numbers, and numbers.h.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/format.h"
#include "tokenizer/templates/jinja/numbers.h"
#include "tokenizer/templates/jinja/operators.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {
namespace {

// Without blanks around it, and without underscores, each of which must be between digits.
std::optional<std::string> bare_number(std::string_view text) {
  std::u32string chars = to_chars(text);
  while (!chars.empty() && is_python_space(chars.back())) chars.pop_back();
  const auto first = std::ranges::find_if_not(chars, is_python_space);
  const std::string inner = from_chars(std::u32string(first, chars.end()));
  std::string bare;
  const auto is_plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t i = 0; i < inner.size(); ++i) {
    if (inner[i] != '_') {
      bare += inner[i];
    } else if (i == 0 || i + 1 == inner.size() || !is_plain(inner[i - 1]) || !is_plain(inner[i + 1])) {
      return {};
    }
  }
  return bare;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) fail("int() base must be >= 2 and <= 36, or 0");
  const std::optional<std::string> bare = bare_number(text);
  if (!bare || bare->empty()) return {};
  const bool has_sign = bare->front() == '+' || bare->front() == '-';
  std::string digits = bare->substr(has_sign ? 1 : 0);
  const char mark = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int64_t marked = mark == 'x' ? 16 : (mark == 'o' ? 8 : (mark == 'b' ? 2 : 0));
  if (marked != 0 && (base == 0 || base == marked)) {
    digits.erase(0, 2);
    base = marked;
  }
  if (base == 0 && digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) {
    return {};
  }
  if (bare->front() == '-') digits.insert(0, 1, '-');
  int64_t value = 0;
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base == 0 ? 10 : static_cast<int>(base));
  if (failure == std::errc::result_out_of_range) fail_overflow();
  if (failure != std::errc() || end != digits.data() + digits.size()) return {};
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  const std::optional<std::string> bare = bare_number(text);
  if (!bare || bare->empty()) return {};
  std::string digits = bare->front() == '+' ? bare->substr(1) : *bare;
  std::ranges::transform(digits, digits.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool has_digit = digits.find_first_of("0123456789") != std::string::npos;
  if (!has_digit) digits = digits == "infinity" || digits == "-infinity" ? digits.substr(0, digits.size() - 5) : digits;
  if (digits.find('(') != std::string::npos || digits.starts_with('+')) return {};
  double value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) return {};
  if (failure == std::errc::result_out_of_range) return std::strtod(digits.c_str(), nullptr);  // infinity, or 0
  return failure == std::errc() ? std::optional(value) : std::nullopt;
}

int64_t truncated(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (std::fabs(value) >= 0x1p63) fail_overflow();
  return static_cast<int64_t>(value);
}

double rounded(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) return std::strtod(fixed(value, static_cast<int>(digits)).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / unit) * unit;
}

int64_t rounded(int64_t value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return 0;
  int64_t unit = 1;
  for (int64_t i = digits; i < 0; ++i) unit *= 10;
  const int64_t down = floor_divide(value, unit), rest = value - down * unit;
  const bool goes_up = rest > unit - rest || (rest == unit - rest && (down & 1) != 0);
  int64_t result = 0;
  if (__builtin_mul_overflow(down + (goes_up ? 1 : 0), unit, &result)) fail_overflow();
  return result;
}

namespace {

Value absolute(Interpreter&, const Slots& a) {
  if (a[0].is<double>()) return std::fabs(a[0].get<double>());
  if (!a[0].integer()) fail("bad operand type for abs(): '" + type_name(a[0]) + "'");
  return *a[0].integer() < 0 ? negative(a[0]) : Value(*a[0].integer());
}

Value round_filter(Interpreter&, const Slots& a) {
  const int64_t digits = a.integer(1, 0);
  const std::string method = a.has(2) ? to_text(a[2]) : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (!a[0].number()) fail("type " + type_name(a[0]) + " doesn't define __round__ method");
  if (method == "common" && a[0].integer()) return rounded(*a[0].integer(), digits);
  if (method == "common") return rounded(*a[0].number(), digits);
  const double unit = std::pow(10.0, static_cast<double>(digits)), scaled = *a[0].number() * unit;
  return static_cast<double>(truncated(method == "ceil" ? std::ceil(scaled) : std::floor(scaled))) / unit;
}

Value to_integer(Interpreter&, const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (a[0].integer()) return *a[0].integer();
  if (a[0].is<double>() && std::isnan(a[0].get<double>())) return a.get(1, int64_t{0});
  if (a[0].is<double>()) return truncated(a[0].get<double>());
  const std::string* text = a[0].text();
  if (text == nullptr) return a.get(1, int64_t{0});
  if (const auto whole = parse_integer(*text, a.integer(2, 10))) return *whole;
  const auto number = parse_float(*text);
  return number && std::isfinite(*number) ? Value(truncated(*number)) : a.get(1, int64_t{0});
}

Value to_float(Interpreter&, const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (const auto number = a[0].number()) return *number;
  const auto number = a[0].is_text() ? parse_float(*a[0].text()) : std::nullopt;
  return number ? Value(*number) : a.get(1, 0.0);
}

Value file_size(Interpreter&, const Slots& a) {
  const auto number = a[0].is_text() ? parse_float(*a[0].text()) : a[0].number();
  if (!number) fail("no size: " + repr(a[0]));
  const double base = a.flag(1) ? 1024 : 1000;
  if (*number == 1) return "1 Byte";
  if (*number < base) return std::to_string(truncated(*number)) + " Bytes";
  static constexpr const char* kPrefixes[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  double unit = base;
  for (const char* prefix : kPrefixes) {
    const bool is_last = prefix == kPrefixes[std::size(kPrefixes) - 1];
    unit *= base;
    if (*number >= unit && !is_last) continue;
    const std::string name =
        a.flag(1) ? (*prefix == 'k' ? "K" : prefix) + std::string("iB") : prefix + std::string("B");
    return fixed(base * *number / unit, 1) + " " + name;
  }
  return {};
}

constexpr Builtin kFilters[] = {
    {"abs", "/ x", absolute},
    {"round", "value | precision method", round_filter},
    {"int", "value | default base", to_integer},
    {"float", "value | default", to_float},
    {"filesizeformat", "value | binary", file_size},
};

}  // namespace

std::span<const Builtin> number_filters() { return kFilters; }

}  // namespace pinion::jinja
