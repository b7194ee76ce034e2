#include "tokenizer/templates/jinja.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>

#include "tokenizer/templates/jinja/builtin.h"
#include "tokenizer/templates/jinja/syntax.h"
#include "tokenizer/templates/limited_run.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace jinja {
namespace {

using OrderedJson = nlohmann::ordered_json;

Value to_value(const OrderedJson& json) {
  const DepthGuard guard;
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get<std::string>();
  const bool is_too_large = json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX;
  if (json.is_number_float() || is_too_large) return json.get<double>();
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
std::string position(const std::string& source, size_t offset) {
  const std::string_view before = std::string_view(source).substr(0, std::min(offset, source.size()));
  const size_t line = before.rfind('\n') + 1;  // 0 in the first line
  return " at row " + std::to_string(std::ranges::count(before, '\n') + 1) + ", column " +
         std::to_string(char_count(before.substr(line)) + 1);
}

// The error for the exception that is being handled. `offset`: position in the source, unless the exception has one.
Error current_error(const char* what, const std::string& source, const std::string& where, size_t offset) {
  std::string text;
  try {
    throw;
  } catch (const SyntaxFailure& e) {
    text = e.what() + position(source, e.offset);
  } catch (const std::bad_alloc&) {
    text = "out of memory" + position(source, offset);
  } catch (const std::exception& e) {
    text = e.what() + position(source, offset);
  }
  std::ranges::replace(text, '\n', ' ');
  return error(what, where, {}, text);
}

Error parse_source(const std::string& source, const std::string& where, Body* out) {
  try {
    *out = parse(source);
  } catch (const std::exception&) {
    return current_error("template does not parse", source, where, 0);
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
  size_t offset = 0;
  try {
    Variables values;
    for (const auto& [name, value] : variables.items()) values.emplace_back(name, to_value(value));
    *out = render(body, std::move(values), &offset);
  } catch (const std::exception&) {
    return current_error("template fails", source, where, offset);
  }
  return {};
}

}  // namespace jinja

Error parse_jinja(const std::string& source, const std::string& where, std::string* normalized) {
  constexpr size_t kMaxBytes = size_t{8} << 20;  // far above any template in use
  if (source.size() > kMaxBytes) {
    return error("template is too long", where, at_most(kMaxBytes) + " bytes", source.size());
  }
  *normalized = jinja::normalized_source(to_utf8(source));
  std::string no_output;
  return run_limited([&](std::string*) { return jinja::check_source(*normalized, where); }, where, &no_output);
}

Error render_jinja(const std::string& normalized, const std::string& where, const nlohmann::ordered_json& variables,
                   std::string* out, bool has_fixed_date) {
  const auto render = [&](std::string* text) {
    if (has_fixed_date) setenv(jinja::kFixedTime, "1735689600", 1);  // in the child
    return jinja::run_source(normalized, where, variables, text);
  };
  return run_limited(render, where, out);
}

Error print_as_jinja(const nlohmann::ordered_json& value, std::string* out) {
  try {
    *out = jinja::to_text(jinja::to_value(value));
  } catch (const std::exception& e) {
    return error("value cannot be printed", {}, {}, e.what());
  }
  return {};
}

}  // namespace pinion
