// See run.h.
#include "tokenizer/templates/jinja/run.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "tokenizer/templates/jinja/interpreter.h"
#include "tokenizer/templates/jinja/syntax.h"

namespace pinion::jinja {
namespace {

using OrderedJson = nlohmann::ordered_json;

Value to_value(const OrderedJson& json) {
  const Depth guard;
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return json.get<double>();
  if (json.is_number()) return json.get<int64_t>();
  if (json.is_array()) {
    Items items;
    for (const OrderedJson& item : json) items.push_back(to_value(item));
    return Value::list(std::move(items));
  }
  Pairs pairs;
  for (const auto& [key, value] : json.items()) pairs.push_back({key, to_value(value)});
  return Value::mapping(std::move(pairs));
}

// " at row 2, column 7"
std::string position(const std::string& source, size_t place) {
  const std::string_view before = std::string_view(source).substr(0, std::min(place, source.size()));
  const size_t line = before.rfind('\n') + 1;  // 0 where there is none
  const auto is_char = [](char c) { return (c & 0xC0) != 0x80; };
  return " at row " + std::to_string(std::ranges::count(before, '\n') + 1) + ", column " +
         std::to_string(std::ranges::count_if(before.substr(line), is_char) + 1);
}

// Of the exception that is being handled.
Error failure(const char* what, const std::string& source, const std::string& where, size_t place) {
  std::string text;
  try {
    throw;
  } catch (const SyntaxFailure& e) {
    text = e.what() + position(source, e.place);
  } catch (const std::bad_alloc&) {
    text = "out of memory" + position(source, place);
  } catch (const std::exception& e) {
    text = e.what() + position(source, place);
  }
  std::ranges::replace(text, '\n', ' ');
  return error(what, where, {}, text);
}

Error parse_source(const std::string& source, const std::string& where, Body* out) {
  try {
    *out = parse(source);
  } catch (const std::exception&) {
    return failure("template does not parse", source, where, 0);
  }
  return {};
}

}  // namespace

Error check_source(const std::string& source, const std::string& where) {
  Body body;
  return parse_source(source, where, &body);
}

Error run_source(const std::string& source, const std::string& where, const OrderedJson& variables, std::string* out) {
  Body body;
  if (Error e = parse_source(source, where, &body)) return e;
  Interpreter interpreter;
  try {
    for (const auto& [name, value] : variables.items()) interpreter.define(name, to_value(value));
    *out = interpreter.render(body);
  } catch (const std::exception&) {
    return failure("template fails", source, where, interpreter.place());
  }
  return {};
}

Error print(const OrderedJson& value, std::string* out) {
  try {
    *out = to_text(to_value(value));
  } catch (const std::exception& e) {
    return error("value cannot be printed", {}, {}, e.what());
  }
  return {};
}

}  // namespace pinion::jinja
