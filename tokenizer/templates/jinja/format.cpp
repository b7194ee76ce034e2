// Values as text: "..." % values, "...".format(...), and JSON. See builtin.h.
//
// Format strings are a subset of Python's. Both kinds format text (%s, {}) and numbers ([0][width]d and
// [0][width][.precision]f); {0} is an argument by position, {name} by name.
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/text.h"
#include "tokenizer/templates/jinja/builtin.h"

namespace pinion::jinja {
namespace {

int64_t read_count(std::string_view format, size_t* at) {
  constexpr int64_t kMaxCount = 1 << 20;
  int64_t count = 0;
  for (; *at < format.size() && format[*at] >= '0' && format[*at] <= '9'; ++*at) {
    count = count * 10 + (format[*at] - '0');
    if (count > kMaxCount) fail("a width or precision is too large");
  }
  return count;
}

// Formats a number by the specification at `*at`, for example "08.3f", and moves `*at` behind it.
std::string format_number(const Value& value, std::string_view format, size_t* at) {
  const size_t from = *at;
  const char fill = from < format.size() && format[from] == '0' ? '0' : ' ';
  const int64_t width = read_count(format, at);
  const bool has_precision = *at < format.size() && format[*at] == '.';
  if (has_precision) ++*at;
  const int64_t precision = has_precision ? read_count(format, at) : 6;
  const char type = *at < format.size() ? format[(*at)++] : '\0';
  std::string text;
  if (type == 'd' && !has_precision && value.integer()) {
    text = std::to_string(*value.integer());
  } else if (type == 'f' && value.number()) {
    text = formatted("%.*f", static_cast<int>(precision), *value.number());
  } else {
    fail("unsupported format " + quoted_text(format.substr(from, *at - from)) + " for a value of type " +
         type_name(value));
  }
  const size_t missing = std::max<int64_t>(width - std::ssize(text), 0);
  return text.insert(fill == '0' && text[0] == '-' ? 1 : 0, missing, fill);
}

class JsonWriter {
 public:
  explicit JsonWriter(const Slots& a) : ascii_(a.flag(1)), sorts_(a.flag(4)) {
    if (a.is_given(2)) {
      item_separator_ = ",";
      is_indented_ = true;
      indent_ = a[2].is_text() ? *a[2].text() : std::string(std::clamp<int64_t>(require_integer(a[2]), 0, 1024), ' ');
    }
    if (a.is_given(3)) {
      const Items separators = to_items(a[3]);
      if (separators.size() != 2) fail("separators must be a pair");
      item_separator_ = require_text(separators[0]);
      key_separator_ = require_text(separators[1]);
    }
  }

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(text_);
  }

 private:
  void new_line(int level) {
    if (!is_indented_) return;
    text_ += '\n';
    for (int i = 0; i < level; ++i) text_ += indent_;
  }

  void write(const Value& value, int level) {
    const DepthGuard guard;
    if (value.is_text()) {
      text_ += nlohmann::json(*value.text()).dump(-1, ' ', ascii_);
    } else if (value.is_none()) {
      text_ += "null";
    } else if (value.is<bool>()) {
      text_ += value.get<bool>() ? "true" : "false";
    } else if (const auto number = value.number()) {
      text_ += std::isnan(*number)   ? "NaN"
               : std::isinf(*number) ? (*number < 0 ? "-Infinity" : "Infinity")
                                     : repr(value);
    } else if (value.items()) {
      write_items("[]", value.items()->size(), level, [&](size_t i) { write((*value.items())[i], level + 1); });
    } else if (value.pairs()) {
      write_mapping(*value.pairs(), level);
    } else {
      fail("Object of type " + type_name(value) + " is not JSON serializable");
    }
  }

  // The items of a list or mapping, each by write_item(index).
  void write_items(const char* brackets, size_t count, int level, auto write_item) {
    text_ += brackets[0];
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) text_ += item_separator_;
      new_line(level + 1);
      write_item(i);
    }
    if (count > 0) new_line(level);
    text_ += brackets[1];
  }

  void write_mapping(Pairs pairs, int level) {
    if (sorts_) stable_sort(&pairs, [](const Pair& a, const Pair& b) { return less(a.key, b.key); });
    write_items("{}", pairs.size(), level, [&](size_t i) {
      const Value& key = pairs[i].key;
      if (!key.is_text() && !key.is_none() && !key.number()) {
        fail("keys must be str, int, float, bool or None, not " + type_name(key));
      }
      const char* quote = key.is_text() ? "" : "\"";
      text_ += quote;
      write(key, 0);
      text_ += quote + key_separator_;
      write(pairs[i].value, level + 1);
    });
  }

  bool ascii_, sorts_, is_indented_ = false;
  std::string indent_, item_separator_ = ", ", key_separator_ = ": ", text_;
};

}  // namespace

Value percent_format(const Value& format, const Value& values) {
  const std::string& form = *format.text();
  const Items items = values.is<Tuple>() ? *values.items() : Items{values};
  size_t used = 0;
  const auto take = [&]() -> const Value& {
    if (used == items.size()) fail("not enough arguments for format string");
    return items[used++];
  };
  std::string text;
  for (size_t at = 0; at < form.size();) {
    if (form[at] != '%') {
      text += form[at++];
    } else if (++at == form.size()) {
      fail("incomplete format");
    } else if (form[at] == '%') {
      text += form[at++];
    } else if (form[at] == 's') {
      text += format.is_markup() ? escaped(take()) : to_text(take());
      ++at;
    } else {
      text += format_number(take(), form, &at);
    }
  }
  const bool is_single = values.is<Tuple>() || values.is_text() || values.is_none() || values.number();
  if (used < items.size() && is_single) fail("not all arguments converted during string formatting");
  return Value(std::move(text), format.is_markup());
}

Value brace_format(const Value& format, const Arguments& arguments) {
  const std::string& form = require_text(format);
  size_t next = 0;
  const auto argument = [&](const std::string& name) -> const Value& {
    const bool is_index = name.find_first_not_of("0123456789") == std::string::npos && name.size() < 10;
    if (is_index) {
      const size_t index = name.empty() ? next++ : std::stoul(name);
      if (index < arguments.positional.size()) return arguments.positional[index];
    }
    for (const auto& [key, value] : arguments.named) {
      if (key == name) return value;
    }
    fail("no argument for the format field {" + name + "}");
  };
  std::string text;
  for (size_t at = 0; at < form.size();) {
    const char c = form[at++];
    const bool is_brace = c == '{' || c == '}';
    if (!is_brace || (at < form.size() && form[at] == c)) {
      text += c;
      if (is_brace) ++at;
      continue;
    }
    const size_t close = c == '{' ? form.find('}', at) : std::string::npos;
    if (close == std::string::npos) fail("a single '{' or '}' in a format string");
    const std::string field = form.substr(at, close - at);
    at = close + 1;
    const size_t colon = std::min(field.find(':'), field.size());
    const Value& value = argument(field.substr(0, colon));
    const std::string_view spec = std::string_view(field).substr(std::min(colon + 1, field.size()));
    if (spec.empty() || (spec == "s" && value.is_text())) {
      text += format.is_markup() ? escaped(value) : to_text(value);
      continue;
    }
    size_t end = 0;
    text += format_number(value, spec, &end);
    if (end != spec.size()) fail("unsupported format " + quoted_text(spec));
  }
  return Value(std::move(text), format.is_markup());
}

Value to_json(const Slots& arguments) { return JsonWriter(arguments).run(arguments[0]); }

}  // namespace pinion::jinja
