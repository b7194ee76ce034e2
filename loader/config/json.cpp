#include "loader/config/json.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <span>

#include "loader/checkpoint/foreign_file.h"
#include "loader/checkpoint/mapped_file.h"

namespace pinion {
namespace {

// Receives nlohmann's parse events and builds the value. Its own builder has no limits and keeps the last of two keys.
template <class AnyJson>
struct Builder {
  AnyJson* root;
  const std::string& where;
  JsonLimits limits;
  Error failure = {};
  std::vector<AnyJson*> open = {};  // the arrays and objects around the next value, outermost first
  AnyJson* member = nullptr;        // where the value of the last key goes
  int64_t values = 0;

  // Where the value now is, or nullptr when it is one too many. Children stay where they are while they are open: only
  // the innermost array grows.
  AnyJson* place(AnyJson value) {
    if (++values > limits.values) {
      failure = error("JSON too large", where, "at most " + std::to_string(limits.values) + " values");
      return nullptr;
    }
    if (open.empty()) return &(*root = std::move(value));
    if (open.back()->is_array()) return &open.back()->emplace_back(std::move(value));
    return &(*member = std::move(value));
  }

  bool enter(AnyJson value) {
    if (open.size() >= static_cast<size_t>(limits.depth)) {
      failure = error("JSON nested too deep", where, "at most " + std::to_string(limits.depth) + " levels");
      return false;
    }
    open.push_back(place(std::move(value)));
    return open.back() != nullptr;
  }

  bool leave() { return open.pop_back(), true; }

  bool key(std::string& name) {
    auto& members = open.back()->template get_ref<typename AnyJson::object_t&>();
    const auto [entry, fresh] = members.emplace(name, nullptr);
    member = &entry->second;
    if (std::ssize(members) > limits.keys) {
      failure = error("JSON object too large", where, "at most " + std::to_string(limits.keys) + " keys");
      return false;
    }
    if (fresh || limits.duplicate_keys) return true;
    failure = error("JSON key given twice", where, {}, brief(entry->first));
    return false;
  }

  bool parse_error(size_t position, const std::string&, const std::exception&) {
    failure = error("invalid JSON at byte " + std::to_string(position), where);
    return false;
  }

  bool null() { return place(nullptr) != nullptr; }
  bool boolean(bool value) { return place(value) != nullptr; }
  bool number_integer(int64_t value) { return place(value) != nullptr; }
  bool number_unsigned(uint64_t value) { return place(value) != nullptr; }
  bool number_float(double value, const std::string&) { return place(value) != nullptr; }
  bool string(std::string& value) { return place(std::move(value)) != nullptr; }
  bool binary(typename AnyJson::binary_t&) { return false; }  // not in JSON texts
  bool start_object(size_t) { return enter(AnyJson::object()); }
  bool end_object() { return leave(); }
  bool start_array(size_t) { return enter(AnyJson::array()); }
  bool end_array() { return leave(); }
};

template <class AnyJson>
Error parse_any(std::string_view text, const std::string& where, AnyJson* out, JsonLimits limits) {
  Builder<AnyJson> builder{out, where, limits};
  try {
    if (AnyJson::sax_parse(text, &builder)) return {};
  } catch (const std::exception&) {
    return error("not enough memory for this JSON text", where);
  }
  return builder.failure;
}

std::string range_text(const char* kind, double least, double most, bool bounded) {
  if (!bounded) return kind;
  char text[96];
  std::snprintf(text, sizeof text, "%s from %.12g to %.12g", kind, least, most);
  return text;
}

// Empty when the value is an integer in range.
Error check_integer(const Json& value, int64_t least, int64_t most) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= std::numeric_limits<int64_t>::max());
  if (fits && value.get<int64_t>() >= least && value.get<int64_t>() <= most) return {};
  const bool bounded = least != std::numeric_limits<int64_t>::min() || most != std::numeric_limits<int64_t>::max();
  return error(value.is_number_integer() ? "out of range" : "wrong type", {},
               range_text("an integer", static_cast<double>(least), static_cast<double>(most), bounded), brief(value));
}

Error check_number(const Json& value, double least, double most) {
  if (value.is_number() && value.get<double>() >= least && value.get<double>() <= most) return {};
  const bool bounded = least != std::numeric_limits<double>::lowest() || most != std::numeric_limits<double>::max();
  return error(value.is_number() ? "out of range" : "wrong type", {}, range_text("a number", least, most, bounded),
               brief(value));
}

std::span<const Json> one_or_list(const Json& value) {
  if (value.is_array()) return value.get_ref<const Json::array_t&>();
  return {&value, 1};
}

}  // namespace

std::string joined(const std::vector<std::string>& items, std::string_view between) {
  std::string text;
  for (const std::string& item : items) text.append(text.empty() ? "" : between).append(item);
  return text;
}

std::string brief(const Json& value) {
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  if (value.is_object()) return "an object";
  constexpr size_t kLongest = 80;
  // ASCII only, so that it can be cut anywhere and holds no line break.
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

Error parse_json(std::string_view text, const std::string& where, Json* out, JsonLimits limits) {
  return explained(parse_any(text, where, out, limits), text);
}

Error parse_ordered_json(std::string_view text, const std::string& where, nlohmann::ordered_json* out,
                         JsonLimits limits) {
  return parse_any(text, where, out, limits);
}

Error read_json_file(const std::filesystem::path& path, Json* out, JsonLimits limits) {
  std::string text;
  if (Error e = read_text_file(path, kMaxJsonBytes, &text)) return e;
  return parse_json(text, path.string(), out, limits);
}

void JsonFields::fail(std::string_view name, std::string what, std::string expected, std::string actual) {
  if (error) return;
  error = pinion::error(std::move(what), where + ": " + std::string(name), std::move(expected), std::move(actual));
}

const Json* JsonFields::find(std::string_view name) {
  if (!object.is_object()) {
    if (!error) error = pinion::error("wrong type", where, "an object", brief(object));
    return nullptr;
  }
  seen.emplace_back(name);
  const auto entry = object.find(name);
  return entry == object.end() || entry->is_null() ? nullptr : &*entry;
}

int64_t JsonFields::integer(std::string_view name, std::optional<int64_t> absent, int64_t least, int64_t most) {
  const Json* value = find(name);
  if (!value && !absent) fail(name, "missing field");
  if (!value) return absent.value_or(least);
  if (Error e = check_integer(*value, least, most)) {
    fail(name, e.what, e.expected, e.actual);
    return absent.value_or(least);
  }
  return value->get<int64_t>();
}

double JsonFields::number(std::string_view name, std::optional<double> absent, double least, double most) {
  const Json* value = find(name);
  if (!value && !absent) fail(name, "missing field");
  if (!value) return absent.value_or(least);
  if (Error e = check_number(*value, least, most)) {
    fail(name, e.what, e.expected, e.actual);
    return absent.value_or(least);
  }
  return value->get<double>();
}

bool JsonFields::boolean(std::string_view name, std::optional<bool> absent) {
  const Json* value = find(name);
  if (value && value->is_boolean()) return value->get<bool>();
  if (value) fail(name, "wrong type", "true or false", brief(*value));
  if (!value && !absent) fail(name, "missing field");
  return absent.value_or(false);
}

std::string JsonFields::text(std::string_view name, std::optional<std::string> absent) {
  const Json* value = find(name);
  if (value && value->is_string()) return value->get<std::string>();
  if (value) fail(name, "wrong type", "a string", brief(*value));
  if (!value && !absent) fail(name, "missing field");
  return absent.value_or("");
}

namespace {

// One value or a list of them; check(item) says what is wrong with one.
template <class T, class Check>
std::vector<T> read_list(JsonFields& fields, std::string_view name, Check check) {
  std::vector<T> result;
  const Json* value = fields.find(name);
  if (!value) return result;
  for (const Json& item : one_or_list(*value)) {
    if (Error e = check(item)) {
      fields.fail(name, e.what, e.expected, e.actual);
      return result;
    }
    result.push_back(item.get<T>());
  }
  return result;
}

}  // namespace

std::vector<int64_t> JsonFields::integers(std::string_view name, int64_t least, int64_t most) {
  return read_list<int64_t>(*this, name, [&](const Json& item) { return check_integer(item, least, most); });
}

std::vector<double> JsonFields::numbers(std::string_view name, double least, double most) {
  return read_list<double>(*this, name, [&](const Json& item) { return check_number(item, least, most); });
}

std::vector<std::string> JsonFields::texts(std::string_view name) {
  return read_list<std::string>(*this, name, [](const Json& item) {
    return item.is_string() ? Error{} : pinion::error("wrong type", {}, "strings", brief(item));
  });
}

JsonFields JsonFields::fields(std::string_view name) {
  static const Json kEmpty = Json::object();
  const Json* value = find(name);
  if (value && !value->is_object()) fail(name, "wrong type", "an object", brief(*value));
  return {value && value->is_object() ? *value : kEmpty, where + ": " + std::string(name), error};
}

std::vector<std::string> JsonFields::unread() const {
  std::vector<std::string> names;
  if (!object.is_object()) return names;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_null() && std::find(seen.begin(), seen.end(), name) == seen.end()) names.push_back(name);
  }
  return names;
}

}  // namespace pinion
