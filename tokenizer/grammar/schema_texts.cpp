#include "tokenizer/grammar/schema_texts.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "loader/files/json.h"
#include "tokenizer/grammar/pattern.h"

namespace pinion {
namespace {

using Schema = nlohmann::ordered_json;

constexpr const char* kFormats[] = {"email",
                                    "duration",
                                    "ipv4",
                                    "ipv6",
                                    "hostname",
                                    "uuid",
                                    "uri",
                                    "date",
                                    "uri-reference",
                                    "uri-template",
                                    "json-pointer",
                                    "time",
                                    "relative-json-pointer",
                                    "date-time"};

constexpr const char* kMayBeEmpty[] = {"uri-reference", "uri-template", "json-pointer"};

// RFC 3339, full-date: 31, 30 and 28 days, and the 29th of February of leap years.
constexpr const char* kDate = R"((\d{4}-(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|\d{4}-(0[469]|11)-(0[1-9]|[12]\d|30)|)"
                              R"(\d{4}-02-(0[1-9]|1\d|2[0-8])|)"
                              R"((\d{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29))";
// partial-time without the leap second, of which few days have one.
constexpr const char* kTime = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
constexpr const char* kByte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

// Stricter than the library's own. Empty: that will do.
std::string pattern_of(const Schema& format) {
  const std::string date = kDate, time = kTime, byte = kByte;
  if (format == "date") return "^" + date + "$";
  if (format == "time") return "^" + time + "$";
  if (format == "date-time") return "^" + date + "T" + time + "$";
  if (format == "ipv4") return "^(" + byte + "\\.){3}" + byte + "$";
  return {};
}

Error replace_pattern(Schema& schema, const std::string& where) {
  if (!schema.contains("pattern")) return {};
  if (!schema["pattern"].is_string()) return error("wrong type", where + "/pattern", "a text");
  std::string escaped;
  if (Error e = escape_pattern(schema["pattern"].get_ref<const std::string&>(), where + "/pattern", &escaped)) return e;
  schema["pattern"] = std::move(escaped);
  return {};
}

// The library's own hold control characters, and their masks take seconds a token.
Error replace_lengths(Schema& schema, const std::string& where) {
  const bool is_nonempty = schema.contains("format") && std::ranges::none_of(kMayBeEmpty, [&](const char* name) {
                             return schema["format"] == name;
                           });
  if (is_nonempty && schema.contains("minLength") && (schema["minLength"] == 0 || schema["minLength"] == 1)) {
    schema.erase("minLength");  // Pydantic's addresses have it
  }
  const bool has_least = schema.contains("minLength"), has_most = schema.contains("maxLength");
  for (const char* name : {"minLength", "maxLength"}) {
    if (!schema.contains(name)) continue;
    for (const char* other : {"pattern", "format"}) {
      if (schema.contains(other)) return error("not supported beside " + std::string(other), where + "/" + name);
    }
    if (!schema[name].is_number_unsigned()) return {};  // the library says what is wrong
  }
  if (!(has_least || has_most) || (has_least && has_most && schema["minLength"] > schema["maxLength"])) return {};
  const std::string bounds =
      (has_least ? schema["minLength"].dump() : "0") + "," + (has_most ? schema["maxLength"].dump() : "");
  schema.erase("minLength");
  schema.erase("maxLength");
  schema["pattern"] = length_pattern(bounds);
  return {};
}

Error replace_format(Schema& schema, const std::string& where) {
  if (!schema.contains("format")) return {};
  const Schema& format = schema["format"];
  if (std::ranges::none_of(kFormats, [&](const char* name) { return format == name; })) {
    std::vector<std::string> names(std::begin(kFormats), std::end(kFormats));
    return error("not supported", where + "/format", "one of " + joined(names), brief(Json(format)));
  }
  if (schema.contains("pattern")) return error("not supported beside pattern", where + "/format");
  if (std::string pattern = pattern_of(format); !pattern.empty()) {
    schema.erase("format");
    schema["pattern"] = std::move(pattern);
  }
  return {};
}

}  // namespace

Error replace_texts(nlohmann::ordered_json& schema, const std::string& where) {
  if (Error e = replace_pattern(schema, where)) return e;
  if (Error e = replace_lengths(schema, where)) return e;
  return replace_format(schema, where);
}

bool leave_out_longest(nlohmann::ordered_json& schema) {
  bool found = false;
  for (const auto& [name, value] : schema.items()) {
    if (value.is_structured()) {
      found |= leave_out_longest(value);
    } else if (name == "pattern" && value.is_string()) {
      found |= leave_out_most(&value.get_ref<std::string&>());
    }
  }
  return found;
}

}  // namespace pinion
