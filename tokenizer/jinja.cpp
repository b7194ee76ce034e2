// See jinja.h. What minja does otherwise than Jinja, and templates notice, is set right from outside: filters of our
// own in the context, some rewritten tests. tests/data/templates/differences.json has what stays different.
#include "tokenizer/jinja.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <regex>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/limited_run.h"
#include "tokenizer/unicode.h"

// minja's parser looks for every token anywhere in the rest of the template, though only the start will do: the time
// grows with the square of the length (10 kB: 1.1 s; told to look at the start alone: 0.02 s). The one place that means
// the whole rest names its expression non_text_open_regex.
constexpr std::regex_constants::match_flag_type minja_search_flags(std::string_view expression) {
  return expression == "non_text_open_regex" ? std::regex_constants::match_default
                                             : std::regex_constants::match_continuous;
}
#define regex_search(begin, end, match, expression) \
  regex_search(begin, end, match, expression, minja_search_flags(#expression))
#include <minja/minja.hpp>
#undef regex_search

namespace pinion {

struct JinjaTemplate {
  std::string source;  // without the comments' contents
  std::string where;
};

namespace {

using minja::ArgumentsValue;
using minja::Context;
using minja::Value;
using OrderedJson = nlohmann::ordered_json;

// Far above any template in use.
constexpr size_t kMostTemplateBytes = size_t{256} << 10;

// Messages of the engine show the lines around the place, innermost first: the first line says it all.
Error engine_error(std::string what, const std::string& where, const std::exception& e) {
  constexpr std::string_view kNoMemory = "std::bad_alloc";  // the engine wraps it in its own
  std::string text = e.what();
  if (text.starts_with(kNoMemory)) text.replace(0, kNoMemory.size(), "out of memory");
  constexpr std::string_view kNoItem = "vector::_M_range_check", kType = "[json.exception.type_error.";
  if (text.starts_with(kType)) text.erase(0, std::min(text.find(' '), text.size() - 1) + 1);
  if (text.starts_with(kNoItem)) {
    text.replace(0, std::min(text.find(" at row "), text.size()), "a list has no item of that index");
  }
  const size_t place = text.find(" at row ");
  const size_t end = text.find(":\n", place == std::string::npos ? 0 : place);
  text = text.substr(0, std::min(end, text.size()));
  std::replace(text.begin(), text.end(), '\n', ' ');
  return error(std::move(what), where, {}, text);
}

// Python's json.dumps.
struct JsonStyle {
  bool ascii = false;
  int64_t indent = -1;  // below 0: all on one line
  std::string item_separator = ", ", key_separator = ": ";
};

void append_json(const OrderedJson& value, const JsonStyle& style, int64_t level, std::string* out) {
  if (!value.is_structured() || value.empty()) {
    *out += value.dump(-1, ' ', style.ascii);
    return;
  }
  const auto new_line = [&](int64_t depth) {
    if (style.indent >= 0) *out += '\n' + std::string(static_cast<size_t>(depth * style.indent), ' ');
  };
  *out += value.is_object() ? '{' : '[';
  bool first = true;
  for (const auto& [key, item] : value.items()) {
    if (!first) *out += style.item_separator;
    first = false;
    new_line(level + 1);
    if (value.is_object()) *out += OrderedJson(key).dump(-1, ' ', style.ascii) + style.key_separator;
    append_json(item, style, level + 1, out);
  }
  new_line(level);
  *out += value.is_object() ? '}' : ']';
}

Value to_json(const std::shared_ptr<Context>&, Value& arguments) {
  JsonStyle style;
  style.ascii = arguments.get("ensure_ascii").to_bool();
  if (const Value indent = arguments.get("indent"); !indent.is_null()) {
    style.indent = std::clamp<int64_t>(indent.get<int64_t>(), 0, 16);
    style.item_separator = ",";
  }
  if (Value separators = arguments.get("separators"); !separators.is_null()) {
    style.item_separator = separators.get(int64_t{0}).get<std::string>();
    style.key_separator = separators.get(int64_t{1}).get<std::string>();
  }
  OrderedJson value = arguments.get("value").get<OrderedJson>();
  if (arguments.get("sort_keys").to_bool()) value = OrderedJson(nlohmann::json(value));
  std::string text;
  append_json(value, style, 0, &text);
  return text;
}

// Where the characters of `text` begin, and its end.
std::vector<size_t> char_starts(const std::string& text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size(); next_char(text, &at)) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

Value trim(const std::shared_ptr<Context>&, Value& arguments) {
  const Value value = arguments.get("text");
  if (value.is_null()) return value;
  const std::string text = to_utf8(value.to_str());
  const std::vector<size_t> starts = char_starts(text);
  size_t first = 0, last = starts.size() - 1;  // of the characters kept, and one past
  const auto is_space = [&](size_t index) {
    size_t at = starts[index];
    return is_python_space(next_char(text, &at));
  };
  while (first < last && is_space(first)) ++first;
  while (first < last && is_space(last - 1)) --last;
  return text.substr(starts[first], starts[last] - starts[first]);
}

Value length(const std::shared_ptr<Context>&, Value& arguments) {
  const Value items = arguments.get("items");
  if (!items.is_string()) return static_cast<int64_t>(items.size());
  return static_cast<int64_t>(char_starts(to_utf8(items.get<std::string>())).size()) - 1;
}

Value first(const std::shared_ptr<Context>&, Value& arguments) {
  Value items = arguments.get("items");
  if (items.is_null() || items.empty()) return {};
  if (!items.is_string()) return items.get(int64_t{0});
  const std::string text = to_utf8(items.get<std::string>());
  return text.substr(0, utf8_length(text));
}

Value replace(const std::shared_ptr<Context>&, Value& arguments) {
  const auto text = arguments.get("text").to_str(), old_part = arguments.get("old").get<std::string>(),
             new_part = arguments.get("new").get<std::string>();
  if (old_part.empty()) throw std::runtime_error("replace: nothing to look for");
  std::string result;
  size_t at = 0;
  for (size_t found; (found = text.find(old_part, at)) != std::string::npos; at = found + old_part.size()) {
    result += text.substr(at, found - at) + new_part;
  }
  return result + text.substr(at);
}

// `map` of the engine, but for attribute="function.name".
Value::CallableType map_with_paths(const Value& engine_map) {
  return [engine_map](const std::shared_ptr<Context>& context, ArgumentsValue& arguments) -> Value {
    const Value attribute = arguments.get_named("attribute");
    if (!attribute.is_string() || arguments.args.size() != 1) return engine_map.call(context, arguments);
    const std::string path = attribute.get<std::string>();
    const Value absent = arguments.get_named("default");
    Value result = Value::array();
    arguments.args[0].for_each([&](Value& item) {
      Value found = item;
      for (size_t begin = 0; begin <= path.size();) {
        const size_t end = std::min(path.find('.', begin), path.size());
        found = found.get(Value(path.substr(begin, end - begin)));
        begin = end + 1;
      }
      result.push_back(found.is_null() ? absent : found);
    });
    return result;
  };
}

Value strftime_now(const std::shared_ptr<Context>&, Value& arguments) {
  const auto format = arguments.get("format").get<std::string>();
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 256> text{};
  return std::string(text.data(), std::strftime(text.data(), text.size(), format.c_str(), &local));
}

void set_functions(Context& context) {
  const auto set = [&](const char* name, const std::vector<std::string>& parameters, const auto& function) {
    context.set(name, minja::simple_function(name, parameters, function));
  };
  set("tojson", {"value", "ensure_ascii", "indent", "separators", "sort_keys"}, to_json);
  set("trim", {"text"}, trim);
  set("length", {"items"}, length);
  set("count", {"items"}, length);
  set("first", {"items"}, first);
  set("replace", {"text", "old", "new"}, replace);
  set("strftime_now", {"format"}, strftime_now);
  context.set("map", Value::callable(map_with_paths(context.get("map"))));
}

// One past the quoted string that begins at `at`.
size_t literal_end(const std::string& source, size_t at) {
  const char quote = source[at];
  for (++at; at < source.size() && source[at] != quote; ++at) {
    if (source[at] == '\\') ++at;
  }
  return std::min(at + 1, source.size());
}

enum class Part { text, comment, tag, literal };

// One past the part of a template that begins at `at`: a whole comment or quoted string, a bracket of a tag, or a
// character. *in_tag is false at the start.
size_t part_end(const std::string& source, size_t at, bool* in_tag, Part* part) {
  const std::string_view two = std::string_view(source).substr(at, 2);
  if (!*in_tag && two == "{#") {
    *part = Part::comment;
    const size_t close = source.find("#}", at + 2);
    return close == std::string::npos ? source.size() : close + 2;
  }
  *part = *in_tag ? Part::tag : Part::text;
  if (two == (*in_tag ? "}}" : "{{") || two == (*in_tag ? "%}" : "{%")) {
    *in_tag = !*in_tag;
    return at + 2;
  }
  if (!*in_tag || (source[at] != '"' && source[at] != '\'')) return at + 1;
  *part = Part::literal;
  return literal_end(source, at);
}

// Of a comment only the marks that strip white space stay, and its newlines, by which errors count lines: the engine
// matches comments with a regular expression that needs stack for each character. Of very many lines some are left out.
std::string without_comments(const std::string& source) {
  constexpr size_t kMostLines = 1000;
  std::string result;
  bool in_tag = false;
  Part part = Part::text;
  for (size_t i = 0, end = 0; i < source.size(); i = end) {
    end = part_end(source, i, &in_tag, &part);
    const std::string_view all = std::string_view(source).substr(i, end - i);
    if (part != Part::comment || all.size() < 4 || !all.ends_with("#}")) {
      result += all;
      continue;
    }
    const std::string_view body = all.substr(2, all.size() - 4);
    const auto is_mark = [](char c) { return c == '-' || c == '~'; };
    const auto lines = static_cast<size_t>(std::ranges::count(body, '\n'));
    result += "{#";
    if (!body.empty() && is_mark(body.front())) result += body.front();
    result.append(std::min(lines, kMostLines), '\n');
    if (body.size() > 1 && is_mark(body.back())) result += body.back();
    result += "#}";
  }
  return result;
}

// Writes tests otherwise: the engine has no "is undefined", and its "is false" is true of what is undefined.
std::string with_known_tests(const std::string& source) {
  static const std::regex kTest(R"(\sis\s+(not\s+)?(undefined|true|false)\b)");
  std::string result;
  bool in_tag = false;
  Part part = Part::text;
  for (size_t i = 0, end = 0; i < source.size(); i = end) {
    std::smatch test;
    end = part_end(source, i, &in_tag, &part);
    if (part == Part::tag && std::regex_search(source.begin() + static_cast<std::ptrdiff_t>(i), source.end(), test,
                                               kTest, std::regex_constants::match_continuous)) {
      const bool negated = test[1].matched;
      if (test[2] == "undefined") {
        result += negated ? " is defined" : " is not defined";
      } else {
        result += (negated ? " != " : " == ") + test[2].str();
      }
      end = i + static_cast<size_t>(test.length());
      continue;
    }
    result.append(source, i, end - i);
  }
  return result;
}

Error parse(const JinjaTemplate& jinja, std::shared_ptr<minja::TemplateNode>* out) {
  try {
    *out = minja::Parser::parse(with_known_tests(jinja.source),
                                {.trim_blocks = true, .lstrip_blocks = true, .keep_trailing_newline = false});
  } catch (const std::exception& e) {
    return engine_error("template does not parse", jinja.where, e);
  }
  return {};
}

}  // namespace

Error parse_jinja(const std::string& source, const std::string& where, std::shared_ptr<const JinjaTemplate>* out) {
  const auto jinja = std::make_shared<const JinjaTemplate>(without_comments(source), where);
  if (jinja->source.size() > kMostTemplateBytes) {
    return error("template is too long", where, "at most " + std::to_string(kMostTemplateBytes) + " bytes",
                 std::to_string(jinja->source.size()));
  }
  const auto trial = [&](std::string*) {
    std::shared_ptr<minja::TemplateNode> root;
    return parse(*jinja, &root);
  };
  std::string nothing;
  if (Error e = run_limited(trial, where, &nothing)) return e;
  *out = jinja;
  return {};
}

std::string printed_by_jinja(const nlohmann::ordered_json& value) { return Value(value).to_str(); }

Error render_jinja(const JinjaTemplate& jinja, const nlohmann::ordered_json& variables, std::string* out) {
  const auto work = [&](std::string* text) -> Error {
    std::shared_ptr<minja::TemplateNode> root;
    if (Error e = parse(jinja, &root)) return e;
    try {
      const auto context = Context::make(variables);
      set_functions(*context);
      *text = root->render(context);
    } catch (const std::exception& e) {
      return engine_error("template fails", jinja.where, e);
    }
    return {};
  };
  return run_limited(work, jinja.where, out);
}

}  // namespace pinion
