// Functions, methods, filters and tests that templates find here, as tables of rows.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

// A call's arguments by the parameters' order.
class Slots {
 public:
  Slots(std::vector<std::optional<Value>> values, Arguments more) : rest(std::move(more)), values_(std::move(values)) {}
  size_t size() const { return values_.size(); }
  bool has(size_t at) const { return values_[at].has_value(); }
  const Value& operator[](size_t at) const { return *values_[at]; }
  // A default where the argument was not given.
  Value get(size_t at, Value absent) const { return has(at) ? *values_[at] : std::move(absent); }
  int64_t integer(size_t at, int64_t absent) const { return has(at) ? need_integer(*values_[at]) : absent; }
  bool flag(size_t at) const { return has(at) && truth(*values_[at]); }
  bool is_given(size_t at) const { return has(at) && !values_[at]->is_none(); }  // and is not none

  Arguments rest;  // of a row with * the arguments without a parameter

 private:
  std::vector<std::optional<Value>> values_;
};

struct Builtin {
  std::string_view name;
  // Names with blanks between: first those that a call must give, after | those that it may. A / in front: by position
  // only. A * at the end: any more arguments, too. The first is what a filter or test is applied to, or whose method it
  // is.
  std::string_view parameters;
  Value (*run)(Interpreter& interpreter, const Slots& arguments);
};

Value run(Interpreter& interpreter, const Builtin& builtin, Arguments arguments);
const Builtin* find(std::span<const Builtin> rows, std::string_view name);

// The row as a value; `self`, where there is one, comes before the arguments of a call.
Value function(const Builtin& builtin);
Value bound(const Builtin& builtin, Value self);

// Null: no filter has that name.
const Builtin* find_filter(std::string_view name);

// The tables.
std::span<const Builtin> text_methods();
std::span<const Builtin> text_tests();  // methods without arguments, such as isdigit
std::span<const Builtin> text_searches();
std::span<const Builtin> collection_methods(const Value& of);
std::span<const Builtin> text_filters();
std::span<const Builtin> layout_filters();
std::span<const Builtin> markup_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> list_filters();
std::span<const Builtin> choice_filters();
std::span<const Builtin> tests();
std::span<const Builtin> global_functions();

}  // namespace pinion::jinja
