#include "loader/files/json.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "kernels/base/text.h"
#include "loader/files/hints.h"
#include "loader/files/mapped_file.h"

namespace pinion {
namespace {

struct FlatBuilder {
  FlatJson* out;
  std::vector<size_t> open = {};  // nodes of the enclosing lists and objects, outermost first

  // The size of an object counts its keys, not its values.
  void add(FlatJson::Kind kind, uint64_t at, size_t size, bool is_key = false) {
    if (!open.empty()) {
      FlatJson::Node& parent = out->nodes[open.back()];
      if (is_key || parent.kind == FlatJson::Kind::kList) ++parent.size;
    }
    out->nodes.push_back({kind, static_cast<uint32_t>(size), at});
  }

  void add_text(std::string_view text, bool is_key = false) {
    add(FlatJson::Kind::kText, out->texts.size(), text.size(), is_key);
    out->texts += text;
  }

  void add_single(const Json& value) {
    const bool is_count = value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
    if (is_count) return add(FlatJson::Kind::kCount, value.get<uint64_t>(), 0);
    add(FlatJson::Kind::kOther, out->others.size(), 0);
    out->others.push_back(value);
  }

  void enter(FlatJson::Kind kind) {
    add(kind, 0, 0);
    open.push_back(out->nodes.size() - 1);
  }

  void leave() {
    out->nodes[open.back()].at = out->nodes.size();
    open.pop_back();
  }
};

// Builds the value from nlohmann's parse events. The library's own builder has no limits and accepts duplicate keys.
template <class AnyJson>
struct Builder {
  AnyJson* root;
  const std::string& where;
  JsonLimits limits;
  std::span<const FlatMember> flat_members;
  Error failure = {};
  std::vector<AnyJson*> open = {};  // the enclosing arrays and objects, outermost first
  AnyJson* member = nullptr;        // destination of the last key's value
  int64_t values = 0;
  std::string outer_key = {};     // the last key of the outermost object
  FlatJson* next_flat = nullptr;  // destination of the last key's value if that is a list or an object
  FlatBuilder flat = {};          // receives all values while its `out` is set

  bool refuse(const std::string& what, const std::string& expected = {}, const std::string& actual = {}) {
    failure = error(what, where, expected, actual);
    return false;
  }

  bool count_value() {
    return ++values <= limits.values || refuse("JSON too large", at_most(limits.values) + " values");
  }

  // Returns the address of the value, which stays valid while the value is open: only the innermost array grows.
  AnyJson* insert(AnyJson value) {
    if (open.empty()) return &(*root = std::move(value));
    return open.back()->is_array() ? &open.back()->emplace_back(std::move(value)) : &(*member = std::move(value));
  }

  bool enter(AnyJson empty, FlatJson::Kind kind) {
    const bool is_too_deep = std::ssize(open) >= limits.depth;
    if (is_too_deep) return refuse("JSON nested too deep", at_most(limits.depth) + " levels");
    if (!count_value()) return false;
    open.push_back(flat.out ? open.back() : insert(std::move(empty)));
    if (next_flat) {
      *next_flat = {};
      flat.out = std::exchange(next_flat, nullptr);
    }
    if (flat.out) flat.enter(kind);
    return true;
  }

  bool leave() {
    open.pop_back();
    if (flat.out) flat.leave();
    if (flat.open.empty()) flat.out = nullptr;
    return true;
  }

  template <class Value>
  bool single(Value value) {
    next_flat = nullptr;
    if (!count_value()) return false;
    if (!flat.out) {
      insert(std::move(value));
    } else if constexpr (std::is_same_v<Value, std::string>) {
      flat.add_text(value);
    } else {
      flat.add_single(value);
    }
    return true;
  }

  void find_flat(const std::string& name) {
    if (open.size() == 1) outer_key = name;
    if (open.size() != 2) return;
    for (const FlatMember& flat_member : flat_members) {
      if (flat_member.object == outer_key && flat_member.member == name) next_flat = flat_member.out;
    }
  }

  bool key(std::string& name) {
    if (flat.out) return flat.add_text(name, true), true;
    if (!flat_members.empty()) find_flat(name);
    auto& members = open.back()->template get_ref<typename AnyJson::object_t&>();
    const auto [entry, is_new] = members.emplace(name, nullptr);
    member = &entry->second;
    const bool is_too_large = std::ssize(members) > limits.keys;
    if (is_too_large) return refuse("JSON object too large", at_most(limits.keys) + " keys");
    return is_new || limits.duplicate_keys || refuse("JSON key given twice", {}, brief(entry->first));
  }

  bool parse_error(size_t position, const std::string&, const std::exception&) {
    return refuse("invalid JSON at byte " + std::to_string(position));
  }

  bool null() { return single(nullptr); }
  bool boolean(bool value) { return single(value); }
  bool number_integer(int64_t value) { return single(value); }
  bool number_unsigned(uint64_t value) { return single(value); }
  bool number_float(double value, const std::string&) { return single(value); }
  bool string(std::string& value) { return single(std::move(value)); }
  bool binary(typename AnyJson::binary_t&) { return false; }  // never occurs in JSON texts
  bool start_object(size_t) { return enter(AnyJson::object(), FlatJson::Kind::kObject); }
  bool end_object() { return leave(); }
  bool start_array(size_t) { return enter(AnyJson::array(), FlatJson::Kind::kList); }
  bool end_array() { return leave(); }
};

// The code unit of an escape \uXXXX at `at`; -1: there is none.
int escaped_unit(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
  const std::optional<uint32_t> unit = parse_hex(text.substr(at + 2), 4);
  return unit ? static_cast<int>(*unit) : -1;
}

// The text with \uFFFD for each surrogate without its other half; empty: it has none.
std::string without_lone_surrogates(std::string_view text) {
  std::string changed;
  for (size_t at = text.find('\\'); at < text.size(); at = text.find('\\', at)) {
    const int unit = escaped_unit(text, at), next = unit < 0 ? -1 : escaped_unit(text, at + 6);
    const bool is_pair = unit >= 0xD800 && unit < 0xDC00 && next >= 0xDC00 && next < 0xE000;
    if (unit >= 0xD800 && unit < 0xE000 && !is_pair) {
      if (changed.empty()) changed = text;
      changed.replace(at + 2, 4, "FFFD");
    }
    at += is_pair ? 12 : unit >= 0 ? 6 : 2;
  }
  return changed;
}

template <class AnyJson>
Error parse_any(std::string_view text, const std::string& where, AnyJson* out, JsonLimits limits,
                std::span<const FlatMember> flat) {
  Builder<AnyJson> builder{out, where, limits, flat};
  std::string repaired;
  try {
    if (limits.lone_surrogates) repaired = without_lone_surrogates(text);
    if (AnyJson::sax_parse(repaired.empty() ? text : repaired, &builder)) return {};
  } catch (const std::exception&) {
    return error("not enough memory for this JSON text", where);
  }
  return builder.failure;
}

// T: int64_t or double.
template <class T>
Error check_range(const Json& value, T min, T max) {
  constexpr bool kIsInteger = std::is_same_v<T, int64_t>;
  const bool is_number = kIsInteger ? value.is_number_integer() : value.is_number();
  const bool is_beyond =
      kIsInteger && value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (is_number && !is_beyond && value.get<T>() >= min && value.get<T>() <= max) return {};
  const std::string kind = kIsInteger ? "an integer" : "a number";
  const bool is_bounded = min != std::numeric_limits<T>::lowest() || max != std::numeric_limits<T>::max();
  const std::string range = formatted(" from %.12g to %.12g", static_cast<double>(min), static_cast<double>(max));
  return error(is_number ? "out of range" : "wrong type", {}, kind + (is_bounded ? range : ""), brief(value));
}

Error check_text(const Json& value, const char* expected) {
  return value.is_string() ? Error{} : error("wrong type", {}, expected, brief(value));
}

std::span<const Json> one_or_list(const Json& value) {
  if (value.is_array()) return value.get_ref<const Json::array_t&>();
  return {&value, 1};
}

void keep(JsonFields* fields, const Error& failure) {
  for (; fields; fields = fields->parent) {
    if (!fields->error) fields->error = failure;
  }
}

// `check` returns the failure of one value, with neither field nor file.
template <class T, class Check>
T read_value(JsonFields& fields, std::string_view name, const std::optional<T>& absent, T if_failed, Check check) {
  const Json* value = fields.find(name);
  if (!value && !absent)
    fields.fail(name, fields.object.contains(name) ? "null, but the field is required" : "missing field");
  if (!value) return absent.value_or(if_failed);
  if (Error e = check(*value)) {
    fields.fail(name, e.what, e.expected, e.actual);
    return absent.value_or(if_failed);
  }
  return value->get<T>();
}

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

std::string joined(const std::vector<std::string>& items, std::string_view separator) {
  std::string text;
  for (const std::string& item : items) text.append(text.empty() ? "" : separator).append(item);
  return text;
}

std::string brief(const Json& value) {
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  if (value.is_object()) return "an object";
  constexpr size_t kMaxBytes = 80;
  // Escaped to ASCII, so that the text can be cut anywhere and contains no line break.
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMaxBytes ? text.substr(0, kMaxBytes) + "..." : text;
}

std::string brief(const FlatJson& json, size_t node) {
  const auto& [kind, size, at] = json.nodes[node];
  if (kind == FlatJson::Kind::kText) return brief(Json(json.text(node)));
  if (kind == FlatJson::Kind::kCount) return brief(Json(at));
  if (kind == FlatJson::Kind::kOther) return brief(json.others[at]);
  return brief(kind == FlatJson::Kind::kList ? Json(Json::array_t(size)) : Json::object());
}

Error parse_json(std::string_view text, const std::string& where, Json* out, JsonLimits limits,
                 std::span<const FlatMember> flat) {
  return with_foreign_hint(parse_any(text, where, out, limits, flat), text);
}

Error parse_ordered_json(std::string_view text, const std::string& where, nlohmann::ordered_json* out,
                         JsonLimits limits) {
  return parse_any(text, where, out, limits, {});
}

Error read_json_file(const std::filesystem::path& path, Json* out, JsonLimits limits) {
  std::string text;
  if (Error e = read_text_file(path, kMaxJsonBytes, &text)) return e;
  return parse_json(text, path.string(), out, limits);
}

void JsonFields::fail(std::string_view name, std::string what, Shown expected, Shown actual) {
  keep(this, pinion::error(std::move(what), where + ": " + std::string(name), std::move(expected), std::move(actual)));
}

const Json* JsonFields::find(std::string_view name) {
  if (!object.is_object()) {
    keep(this, pinion::error("wrong type", where, "an object", brief(object)));
    return nullptr;
  }
  seen.emplace_back(name);
  const auto entry = object.find(name);
  return entry == object.end() || entry->is_null() ? nullptr : &*entry;
}

int64_t JsonFields::integer(std::string_view name, std::optional<int64_t> absent, int64_t min, int64_t max) {
  return read_value(*this, name, absent, min, [&](const Json& value) { return check_range(value, min, max); });
}

double JsonFields::number(std::string_view name, std::optional<double> absent, double min, double max) {
  return read_value(*this, name, absent, min, [&](const Json& value) { return check_range(value, min, max); });
}

bool JsonFields::boolean(std::string_view name, std::optional<bool> absent) {
  return read_value(*this, name, absent, false, [](const Json& value) {
    return value.is_boolean() ? Error{} : pinion::error("wrong type", {}, "true or false", brief(value));
  });
}

std::string JsonFields::text(std::string_view name, std::optional<std::string> absent) {
  const auto check = [](const Json& value) { return check_text(value, "a string"); };
  return read_value(*this, name, absent, std::string(), check);
}

std::span<const Json> JsonFields::list(std::string_view name) {
  const Json* value = find(name);
  if (value && value->is_array()) return one_or_list(*value);
  fail(name, "missing or wrong type", "a list");
  return {};
}

std::vector<int64_t> JsonFields::integers(std::string_view name, int64_t min, int64_t max) {
  return read_list<int64_t>(*this, name, [&](const Json& item) { return check_range(item, min, max); });
}

std::vector<double> JsonFields::numbers(std::string_view name, double min, double max) {
  return read_list<double>(*this, name, [&](const Json& item) { return check_range(item, min, max); });
}

std::vector<std::string> JsonFields::texts(std::string_view name) {
  return read_list<std::string>(*this, name, [](const Json& item) { return check_text(item, "strings"); });
}

JsonFields JsonFields::fields(std::string_view name) {
  static const Json kEmpty = Json::object();
  const Json* value = find(name);
  if (value && !value->is_object()) fail(name, "wrong type", "an object", brief(*value));
  return {value && value->is_object() ? *value : kEmpty, where + ": " + std::string(name), error, {}, this};
}

std::vector<std::string> JsonFields::unread() const {
  std::vector<std::string> names;
  if (!object.is_object()) return names;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_null() && std::ranges::find(seen, name) == seen.end()) names.push_back(name);
  }
  return names;
}

}  // namespace pinion
