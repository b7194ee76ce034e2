// Filters on text and numbers. See builtin.h.
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "kernels/base/text.h"
#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/text.h"

namespace pinion::jinja {

std::string escaped(const Value& value) { return value.is_markup() ? *value.text() : html_escaped(to_text(value)); }

namespace {

// Without surrounding spaces and a plus sign.
std::string bare_number(std::string_view text) {
  std::string bare = *strip(std::string(text), {}).text();
  if (bare.size() > 1 && bare[0] == '+' && bare[1] != '-') bare.erase(0, 1);
  return bare;
}

std::optional<double> parse_float(std::string_view text) {
  const std::string bare = bare_number(text);
  if (bare.find('(') != std::string::npos) return {};  // nan(1)
  double value = 0;
  const auto [end, error] = std::from_chars(bare.data(), bare.data() + bare.size(), value);
  if (bare.empty() || end != bare.data() + bare.size()) return {};
  if (error == std::errc::result_out_of_range) return std::strtod(bare.c_str(), nullptr);  // infinity or 0
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

int64_t truncated(double value) {
  if (std::isnan(value)) fail("cannot convert float NaN to integer");
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (std::fabs(value) >= 0x1p63) fail_overflow();
  return static_cast<int64_t>(value);
}

Value absolute(const Slots& a) {
  if (a[0].is<double>()) return std::fabs(a[0].get<double>());
  if (!a[0].integer()) fail("bad operand type for abs(): '" + type_name(a[0]) + "'");
  return *a[0].integer() < 0 ? negative(a[0]) : Value(*a[0].integer());
}

Value round_number(const Slots& a) {
  constexpr int64_t kMaxDigits = 323;  // of a double
  const int64_t digits = a.integer(1, 0);
  const std::string method = a.has(2) ? to_text(a[2]) : "common";
  if (method != "common" && method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
  if (!a[0].number()) fail("type " + type_name(a[0]) + " doesn't define __round__ method");
  if (method == "common" && digits < 0) fail("a negative precision is not supported");
  if (method == "common" && a[0].integer()) return *a[0].integer();
  if (method == "common" && std::isfinite(*a[0].number()) && digits <= kMaxDigits) {
    return std::strtod(formatted("%.*f", static_cast<int>(digits), *a[0].number()).c_str(), nullptr);
  }
  if (method == "common") return *a[0].number();
  const double unit = std::pow(10.0, static_cast<double>(digits)), scaled = *a[0].number() * unit;
  return static_cast<double>(truncated(method == "ceil" ? std::ceil(scaled) : std::floor(scaled))) / unit;
}

Value to_integer(const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (a[0].integer()) return *a[0].integer();
  if (a[0].is<double>() && !std::isnan(a[0].get<double>())) return truncated(a[0].get<double>());
  const Value absent = a.get(1, int64_t{0});
  if (!a[0].is_text()) return absent;
  if (const auto whole = parse_integer(*a[0].text())) return *whole;
  const auto number = parse_float(*a[0].text());
  return number && std::isfinite(*number) ? Value(truncated(*number)) : absent;
}

Value to_float(const Slots& a) {
  if (a[0].is_undefined()) fail_undefined(a[0]);
  if (const auto number = a[0].number()) return *number;
  const auto number = a[0].is_text() ? parse_float(*a[0].text()) : std::nullopt;
  return number ? Value(*number) : a.get(1, 0.0);
}

// Text and markup unchanged, all other values as str() writes them.
Value text_of(const Value& value) { return value.is_text() ? value : Value(to_text(value)); }

template <std::u32string (*change)(std::u32string_view)>
Value changed_case(const Slots& a) {
  return Value(from_chars(change(to_chars(to_text(a[0])))), a[0].is_markup());
}

// Capitalizes words, which begin after spaces, hyphens and opening brackets. (str.title() splits words differently.)
Value title_filter(const Slots& a) {
  constexpr std::u32string_view kMarks = U"-({[<";
  const auto precedes_word = [&](char32_t c) { return is_python_space(c) || kMarks.find(c) != kMarks.npos; };
  const std::u32string text = to_chars(to_text(a[0]));
  std::u32string result;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && precedes_word(text[end]) == precedes_word(text[at])) ++end;
    result += upper(text.substr(at, 1)) + lower(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return from_chars(result);
}

Value replace_filter(const Slots& a) {
  return replace(to_text(a[0]), to_text(a[1]), to_text(a[2]), a.is_given(3) ? require_integer(a[3]) : -1);
}

Value format_filter(const Slots& a) {
  if (a.rest.named.empty()) return percent_format(text_of(a[0]), Value::tuple(a.rest.positional));
  fail("format() takes no keyword arguments here");
}

Value indent(const Slots& a) {
  const std::string& text = require_text(a[0]);
  const Value width = a.get(1, int64_t{4});
  if (width.integer() && *width.integer() > (1 << 20)) fail("out of memory");
  const std::string prefix =
      width.is_text() ? *width.text() : std::string(std::max<int64_t>(require_integer(width), 0), ' ');
  std::string result;
  bool is_first = true;
  for (const std::string& line : split_lines(text + "\n", false)) {
    const bool indents = is_first ? a.flag(2) : (a.flag(3) || !line.empty());
    result += (is_first ? "" : "\n") + (indents ? prefix : "") + line;
    is_first = false;
  }
  return Value(std::move(result), a[0].is_markup());
}

Value escape(const Slots& a) { return Value(escaped(a[0]), true); }

constexpr Builtin kTextFilters[] = {
    {"upper", "s", changed_case<upper>},
    {"lower", "s", changed_case<lower>},
    {"capitalize", "s", changed_case<capitalize>},
    {"title", "s", title_filter},
    {"trim", "value | chars", [](const Slots& a) { return strip(text_of(a[0]), a.get(1, {})); }},
    {"replace", "s old new | count", replace_filter},
    {"string", "object", [](const Slots& a) { return text_of(a[0]); }},
    {"format", "/ value *", format_filter},
    {"indent", "s | width first blank", indent},
    {"tojson", "x | ensure_ascii indent separators sort_keys", to_json},
    {"safe", "value", [](const Slots& a) { return Value(to_text(a[0]), true); }},
    {"escape", "/ s", escape},
    {"e", "/ s", escape},
    {"abs", "/ x", absolute},
    {"round", "value | precision method", round_number},
    {"int", "value | default", to_integer},
    {"float", "value | default", to_float},
};

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  const std::string bare = bare_number(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(bare.data(), bare.data() + bare.size(), value);
  if (error == std::errc::result_out_of_range) fail_overflow();
  return error == std::errc() && end == bare.data() + bare.size() ? std::optional(value) : std::nullopt;
}

std::span<const Builtin> text_filters() { return kTextFilters; }

}  // namespace pinion::jinja
