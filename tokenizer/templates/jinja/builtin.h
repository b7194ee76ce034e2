// Filters, tests, methods and global functions, as tables of rows. README.md lists them.
#pragma once

#include <algorithm>
#include <iterator>
#include <span>

#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

// The arguments of a call, one slot per parameter. A slot is empty if an optional argument is missing.
class Slots {
 public:
  Slots(Interpreter& runs_in, std::vector<std::optional<Value>> values, Arguments more)
      : interpreter(runs_in), rest(std::move(more)), values_(std::move(values)) {}
  bool has(size_t at) const { return values_[at].has_value(); }
  bool is_given(size_t at) const { return has(at) && !values_[at]->is_none(); }  // has(), and is not None
  const Value& operator[](size_t at) const { return *values_[at]; }
  Value get(size_t at, Value absent) const { return has(at) ? *values_[at] : std::move(absent); }
  int64_t integer(size_t at, int64_t absent) const { return has(at) ? require_integer(*values_[at]) : absent; }
  bool flag(size_t at) const { return has(at) && truth(*values_[at]); }

  Interpreter& interpreter;
  Arguments rest;  // further arguments, if Builtin::parameters ends in *

 private:
  std::vector<std::optional<Value>> values_;
};

struct Builtin {
  std::string_view name;
  // Names separated by spaces: required parameters, then optional ones after |. A leading / makes all positional only,
  // a trailing * accepts further arguments. The first parameter is a filter's or test's value, or a method's object.
  std::string_view parameters;
  Value (*run)(const Slots& arguments);
};

Value run(Interpreter& interpreter, const Builtin& builtin, Arguments arguments);
const Builtin* find(std::span<const Builtin> rows, std::string_view name);

Value function(const Builtin& builtin,
               std::optional<Value> self = {});  // to be called, with `self` before its arguments

// Fail for an unknown name. The first argument is the value to which the filter or test is applied.
Value apply_filter(Interpreter& interpreter, const std::string& name, Arguments arguments);
bool apply_test(Interpreter& interpreter, const std::string& name, Arguments arguments);

std::span<const Builtin> methods(const Value& object);
std::span<const Builtin> global_functions();

// Environment variable with the seconds since 1970 that strftime_now() shows, in UTC (reproducible-builds.org).
inline constexpr const char* kFixedTime = "SOURCE_DATE_EPOCH";

std::string escaped(const Value& value);  // HTML, unless it is markup already
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);
Value strip(const Value& text, const Value& chars);  // str.strip()
Value replace(const Value& text, const Value& from, const Value& to, int64_t count);

// Formatting (format.cpp): "..." % values, "...".format(...), and transformers' filter tojson, which is json.dumps.
Value percent_format(const Value& format, const Value& values);
Value brace_format(const Value& format, const Arguments& arguments);
Value to_json(const Slots& arguments);  // value, ensure_ascii, indent, separators, sort_keys

// Unlike std::stable_sort, tolerates comparisons that throw or are no strict weak order (NaN).
template <class Item, class Less>
void stable_sort(std::vector<Item>* items, const Less& is_less) {
  if (items->size() < 2) return;
  const auto middle = items->begin() + std::ssize(*items) / 2;
  std::vector<Item> front(items->begin(), middle), back(middle, items->end()), merged;
  stable_sort(&front, is_less);
  stable_sort(&back, is_less);
  std::ranges::merge(front, back, std::back_inserter(merged), is_less);
  *items = std::move(merged);
}

}  // namespace pinion::jinja
