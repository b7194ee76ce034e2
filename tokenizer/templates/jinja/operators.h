// What the signs of expressions do, as Python has it.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/templates/jinja/value.h"

namespace pinion::jinja {

Value binary(std::string_view sign, const Value& left, const Value& right);  // + - * / // % **
Value negative(const Value& value);
Value positive(const Value& value);
bool holds(const std::string& sign, const Value& left, const Value& right);  // == != < <= > >= in "not in"
bool contains(const Value& container, const Value& item);

// x.name and x[index], each of which looks for the other, too. Undefined where there is nothing.
Value attribute(const Value& of, const std::string& name);
Value item(const Value& of, const Value& index);
Value slice(const Value& of, const Value& start, const Value& stop, const Value& step);  // none: not given

int64_t floor_divide(int64_t a, int64_t b);
[[noreturn]] void fail_overflow();

}  // namespace pinion::jinja
