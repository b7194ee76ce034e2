#include "tokenizer/json_schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "loader/config/json.h"
#include "tokenizer/json_pattern.h"

namespace pinion {
namespace {

using Schema = nlohmann::ordered_json;

// Assertions that have no grammar. Names that are no keywords at all only annotate, says the standard.
constexpr const char* kUnsupported[] = {
    "not",      "if",          "then",        "else",        "dependentRequired", "dependentSchemas", "dependencies",
    "contains", "minContains", "maxContains", "$dynamicRef", "$recursiveRef",     "additionalItems"};

// Of a schema that has one of these nothing else is read, but for the type beside a value.
constexpr const char* kWhole[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

// What a grammar can assert, and of values of which type.
constexpr struct {
  const char *name, *type;
} kAssertions[] = {
    {"properties", "object"},
    {"required", "object"},
    {"patternProperties", "object"},
    {"additionalProperties", "object"},
    {"unevaluatedProperties", "object"},
    {"propertyNames", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"unevaluatedItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
};

constexpr const char* kSubschema[] = {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
                                      "propertyNames"};
constexpr const char* kSubschemaLists[] = {"prefixItems", "anyOf", "oneOf", "allOf"};
constexpr const char* kSubschemaMaps[] = {"properties", "patternProperties", "$defs", "definitions"};

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

bool has(const Schema& schema, const char* name) { return schema.contains(name); }

bool is_of_type(const Schema& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  return type == value.type_name();  // nlohmann/json's names are JSON schema's
}

Error check_values(const Schema& schema, const std::string& where) {
  if (!has(schema, "type")) return {};
  const Schema& type = schema["type"];
  const Schema types = type.is_array() ? type : Schema::array({type});
  const Schema values = has(schema, "enum") ? schema["enum"] : Schema::array({schema["const"]});
  for (const Schema& value : values) {
    const bool fits = std::ranges::any_of(
        types, [&](const Schema& one) { return one.is_string() && is_of_type(value, one.get<std::string>()); });
    if (!fits) return error("a value is not of the type", where, brief(Json(type)), brief(Json(value)));
  }
  return {};
}

Error check_keywords(const Schema& schema, const std::string& where) {
  for (const char* name : kUnsupported) {
    if (has(schema, name)) return error("not supported", where + "/" + name);
  }
  if (has(schema, "uniqueItems") && schema["uniqueItems"] != false)
    return error("not supported", where + "/uniqueItems");
  const char* whole = nullptr;
  for (const char* name : kWhole) {
    if (!has(schema, name)) continue;
    if (whole) return error("not supported beside " + std::string(whole), where + "/" + name);
    whole = name;
  }
  if (!whole) return {};
  const bool is_value = std::string_view(whole) == "enum" || std::string_view(whole) == "const";
  if (has(schema, "type") && !is_value) return error("not supported beside " + std::string(whole), where + "/type");
  for (const auto& assertion : kAssertions) {
    if (!has(schema, assertion.name)) continue;
    return error("not supported beside " + std::string(whole), where + "/" + assertion.name);
  }
  return is_value ? check_values(schema, where) : Error{};
}

// Follows a JSON pointer (RFC 6901) without escapes. Null: there is no such schema; the library reports that.
const Schema* referred_to(const Schema& root, std::string_view reference) {
  if (!reference.starts_with('#')) return nullptr;
  const Schema* at = &root;
  for (size_t begin = 2; begin < reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    const std::string name(reference.substr(begin, end - begin));
    if (!at->is_object() || !at->contains(name)) return nullptr;
    at = &(*at)[name];
    begin = end + 1;
  }
  return at;
}

// No text fits references that only lead back to themselves.
Error check_reference(const Schema& root, const Schema& schema, const std::string& where) {
  constexpr int kMostSteps = 100;
  const Schema* at = &schema;
  for (int step = 0; at && at->is_object() && has(*at, "$ref") && (*at)["$ref"].is_string(); ++step) {
    if (step == kMostSteps) return error("leads back to itself", where + "/$ref");
    at = referred_to(root, (*at)["$ref"].get_ref<const std::string&>());
  }
  return {};
}

Error replace_pattern(Schema& schema, const std::string& where) {
  if (!has(schema, "pattern")) return {};
  if (!schema["pattern"].is_string()) return error("wrong type", where + "/pattern", "a text");
  std::string escaped;
  if (Error e = escape_pattern(schema["pattern"].get_ref<const std::string&>(), where + "/pattern", &escaped)) return e;
  schema["pattern"] = std::move(escaped);
  return {};
}

Error replace_format(Schema& schema, const std::string& where) {
  if (!has(schema, "format")) return {};
  const Schema& format = schema["format"];
  if (std::ranges::none_of(kFormats, [&](const char* name) { return format == name; })) {
    std::vector<std::string> names(std::begin(kFormats), std::end(kFormats));
    return error("not supported", where + "/format", "one of " + joined(names), brief(Json(format)));
  }
  if (std::string pattern = pattern_of(format); !pattern.empty()) {
    if (has(schema, "pattern")) return error("not supported beside pattern", where + "/format");
    schema.erase("format");
    schema["pattern"] = std::move(pattern);
  }
  return {};
}

// A property that is required and not named has the schema of those that are not.
Error name_required(Schema& schema, const std::string& where) {
  if (!has(schema, "required")) return {};
  if (!schema["required"].is_array()) return error("wrong type", where + "/required", "a list of texts");
  const bool has_others = has(schema, "additionalProperties");
  const Schema required = schema["required"];  // what is added below moves the fields
  for (const Schema& name : required) {
    if (!name.is_string()) return error("wrong type", where + "/required", "a list of texts", brief(Json(name)));
    const auto& text = name.get_ref<const std::string&>();
    if (has(schema, "properties") && schema["properties"].contains(text)) continue;
    if (has_others && schema["additionalProperties"] == false) {
      return error("no such property is allowed", where + "/required", {}, brief(Json(name)));
    }
    schema["properties"][text] = has_others ? schema["additionalProperties"] : Schema(true);
  }
  return {};
}

// The grammar applies neither to properties that are named.
Error check_names(const Schema& schema, const std::string& where) {
  if (!has(schema, "properties") || schema["properties"].empty()) return {};
  for (const char* name : {"propertyNames", "patternProperties"}) {
    if (has(schema, name)) return error("not supported beside properties and required", where + "/" + name);
  }
  return {};
}

// Without a type an assertion is about values of its kind, and any of another kind would do. The texts are those of the
// kind that is spoken of.
Error find_type(Schema& schema, const std::string& where) {
  if (has(schema, "type") || std::ranges::any_of(kWhole, [&](const char* name) { return has(schema, name); }))
    return {};
  for (const auto& [name, type] : kAssertions) {
    if (!has(schema, name)) continue;
    if (has(schema, "type") && schema["type"] != type)
      return error("assertions about more than one type", where, "a type");
    schema["type"] = type;
  }
  return {};
}

bool may_be(const Schema& schema, const char* type) {
  if (!has(schema, "type")) return false;
  const Schema& types = schema["type"];
  return types == type || (types.is_array() && std::ranges::find(types, Schema(type)) != types.end());
}

void write_out(Schema& schema) {
  const bool is_open = !has(schema, "properties") && !has(schema, "patternProperties") &&
                       !has(schema, "additionalProperties") && !has(schema, "unevaluatedProperties");
  if (is_open && may_be(schema, "object")) schema["additionalProperties"] = true;
  const bool is_any_list = !has(schema, "items") && !has(schema, "prefixItems") && !has(schema, "unevaluatedItems");
  if (is_any_list && may_be(schema, "array")) schema["items"] = Schema::object();
}

Error complete(const Schema& root, Schema& schema, const std::string& where);

// A stranger's name in an error.
std::string on_one_line(const std::string& name) {
  const std::string quoted = brief(Json(name));
  return quoted.substr(1, quoted.size() - 2);
}

Error complete_parts(const Schema& root, Schema& schema, const std::string& where) {
  for (const char* name : kSubschema) {
    if (!has(schema, name)) continue;
    if (Error e = complete(root, schema[name], where + "/" + name)) return e;
  }
  for (const char* name : kSubschemaLists) {
    if (!has(schema, name)) continue;
    if (!schema[name].is_array()) return error("wrong type", where + "/" + name, "a list of schemas");
    for (size_t i = 0; i < schema[name].size(); ++i) {
      if (Error e = complete(root, schema[name][i], where + "/" + name + "/" + std::to_string(i))) return e;
    }
  }
  for (const char* name : kSubschemaMaps) {
    if (!has(schema, name)) continue;
    if (!schema[name].is_object()) return error("wrong type", where + "/" + name, "an object of schemas");
    for (const auto& [key, value] : schema[name].items()) {
      if (Error e = complete(root, value, where + "/" + name + "/" + on_one_line(key))) return e;
    }
  }
  return {};
}

Error complete(const Schema& root, Schema& schema, const std::string& where) {
  if (schema.is_boolean()) return {};
  if (!schema.is_object()) return error("wrong type", where, "an object, true or false", brief(Json(schema)));
  if (Error e = check_keywords(schema, where)) return e;
  if (Error e = check_reference(root, schema, where)) return e;
  if (Error e = find_type(schema, where)) return e;
  if (Error e = replace_pattern(schema, where)) return e;
  if (Error e = replace_format(schema, where)) return e;
  if (Error e = name_required(schema, where)) return e;
  if (Error e = check_names(schema, where)) return e;
  if (Error e = complete_parts(root, schema, where)) return e;
  write_out(schema);
  return {};
}

}  // namespace

Error complete_schema(std::string_view text, const std::string& where, std::string* out) {
  Schema schema;
  if (Error e = parse_ordered_json(text, where, &schema)) return e;
  if (Error e = complete(schema, schema, where + ": #")) return e;
  *out = schema.dump();
  return {};
}

}  // namespace pinion
