#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

#include "loader/files/json.h"
#include "tokenizer/grammar/sources.h"

namespace pinion {
namespace {

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
constexpr const char* kFormatsWithEmpty[] = {"uri-reference", "uri-template", "json-pointer"};

// RFC 3339, full-date: 31, 30 and 28 days, and the 29th of February of leap years.
constexpr const char* kDate = R"((\d{4}-(0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|\d{4}-(0[469]|11)-(0[1-9]|[12]\d|30)|)"
                              R"(\d{4}-02-(0[1-9]|1\d|2[0-8])|)"
                              R"((\d{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29))";
// RFC 3339, full-time without leap seconds.
constexpr const char* kTime = R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))";
constexpr const char* kByte = R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";

// The pattern of a format for which XGrammar's own pattern is too loose; empty for other formats.
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
  if (!schema["pattern"].is_string()) return error("wrong type", where + "/pattern", "a string");
  std::string escaped;
  if (Error e = escape_pattern(schema["pattern"].get_ref<const std::string&>(), where + "/pattern", &escaped)) return e;
  schema["pattern"] = std::move(escaped);
  return {};
}

// XGrammar's own length bounds allow control characters, and their masks take seconds per token.
Error replace_lengths(Schema& schema, const std::string& where) {
  const auto has_format = [&](const char* name) { return schema["format"] == name; };
  const bool is_nonempty = schema.contains("format") && std::ranges::none_of(kFormatsWithEmpty, has_format);
  if (is_nonempty && schema.contains("minLength") && (schema["minLength"] == 0 || schema["minLength"] == 1)) {
    schema.erase("minLength");  // Pydantic writes it beside "uri"
  }
  const bool has_min = schema.contains("minLength"), has_max = schema.contains("maxLength");
  for (const char* name : {"minLength", "maxLength"}) {
    if (!schema.contains(name)) continue;
    for (const char* other : {"pattern", "format"}) {
      if (schema.contains(other)) return error("not supported beside " + std::string(other), where + "/" + name);
    }
    if (!schema[name].is_number_unsigned()) return {};  // the library reports the error
  }
  if (!(has_min || has_max) || (has_min && has_max && schema["minLength"] > schema["maxLength"])) return {};
  const std::string bounds =
      (has_min ? schema["minLength"].dump() : "0") + "," + (has_max ? schema["maxLength"].dump() : "");
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

Error replace_string_keywords(Schema& schema, const std::string& where) {
  if (Error e = replace_pattern(schema, where)) return e;
  if (Error e = replace_lengths(schema, where)) return e;
  return replace_format(schema, where);
}

bool drop_max_lengths(Schema& schema) {
  bool found = false;
  for (const auto& [name, value] : schema.items()) {
    if (value.is_structured()) {
      found |= drop_max_lengths(value);
    } else if (name == "pattern" && value.is_string()) {
      found |= drop_max_length(&value.get_ref<std::string&>());
    }
  }
  return found;
}

}  // namespace pinion
