#include "tokenizer/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "loader/files/json.h"
#include "tokenizer/grammar/pattern.h"
#include "tokenizer/grammar/schema_branches.h"
#include "tokenizer/grammar/schema_texts.h"

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

bool has(const Schema& schema, const char* name) { return schema.contains(name); }

bool is_of_type(const Schema& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  return type == value.type_name();  // nlohmann/json's names are JSON schema's
}

bool may_be(const Schema& schema, const char* type) {
  if (!has(schema, "type")) return false;
  const Schema& types = schema["type"];
  return types == type || (types.is_array() && std::ranges::find(types, Schema(type)) != types.end());
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
  if (has(schema, "type") && schema["type"].is_array() && schema["type"].empty()) {
    return error("is empty", where + "/type");
  }
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

// The schema that a JSON pointer (RFC 6901) without escapes leads to. Null: there is none, or its place is not one
// where schemas are completed.
const Schema* referred_to(const Schema& root, std::string_view reference) {
  if (reference == "#") return &root;
  if (!reference.starts_with("#/") || reference.find_first_of("~%") != reference.npos) return nullptr;
  const Schema* at = &root;
  bool is_name = false;  // within an object of schemas, where each has a name
  for (size_t begin = 2; begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    const std::string name(reference.substr(begin, end - begin));
    begin = end + 1;
    if (!at->is_object() || !at->contains(name)) return nullptr;
    const auto is_it = [&](const char* keyword) { return name == keyword; };
    const bool is_map = !is_name && std::ranges::any_of(kSubschemaMaps, is_it);
    if (!is_name && !is_map && std::ranges::none_of(kSubschema, is_it)) return nullptr;
    is_name = is_map;
    at = &(*at)[name];
  }
  return is_name ? nullptr : at;
}

// What a schema's references lead to. No text fits those that only lead back to themselves.
Error follow(const Schema& root, const Schema& schema, const std::string& where, const Schema** out) {
  constexpr int kMostSteps = 100;
  *out = &schema;
  for (int step = 0; (*out)->is_object() && has(**out, "$ref"); ++step) {
    if (step == kMostSteps) return error("leads back to itself", where + "/$ref");
    const Schema& reference = (**out)["$ref"];
    if (!reference.is_string()) return error("wrong type", where + "/$ref", "a text");
    const Schema* next = referred_to(root, reference.get_ref<const std::string&>());
    if (!next) return error("leads to no schema", where + "/$ref", "# or #/$defs/NAME", brief(Json(reference)));
    *out = next;
  }
  return {};
}

// A grammar takes what fits any branch.
Error replace_one_of(const Schema& root, Schema& schema, const std::string& where) {
  if (!has(schema, "oneOf") || !schema["oneOf"].is_array()) return {};  // looked at with the parts
  const auto follow_one = [&](const Schema& one) {
    const Schema* found = nullptr;
    return follow(root, one, where, &found) ? nullptr : found;
  };
  if (!exclude_each_other(schema["oneOf"], follow_one)) {
    return error("not supported where a value may fit two of its branches", where + "/oneOf",
                 "branches of different types, or objects that require a property with different values");
  }
  Schema branches = std::move(schema["oneOf"]);
  schema.erase("oneOf");
  schema["anyOf"] = std::move(branches);
  return {};
}

// The library cuts larger counts to 32 bits. No text is so long that the most of something would matter.
Error bound_counts(Schema& schema, const std::string& where) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  for (const char* name : {"maxItems", "maxLength", "maxProperties"}) {
    if (has(schema, name) && schema[name].is_number() && schema[name] > kMost) schema.erase(name);
  }
  for (const char* name : {"minItems", "minLength", "minProperties"}) {
    if (!has(schema, name) || !schema[name].is_number() || schema[name] <= kMost) continue;
    return error("out of range", where + "/" + name, "at most " + std::to_string(kMost), brief(Json(schema[name])));
  }
  return {};
}

// A property that is required and not named has the schema of those that are not.
Error name_required(Schema& schema, const std::string& where) {
  if (!has(schema, "required")) return {};
  if (!schema["required"].is_array()) return error("wrong type", where + "/required", "a list of texts");
  if (has(schema, "properties") && !schema["properties"].is_object()) return {};  // named with the parts
  const char* others = has(schema, "additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  const bool has_others = has(schema, others);
  const Schema required = schema["required"];  // what is added below moves the fields
  for (const Schema& name : required) {
    if (!name.is_string()) return error("wrong type", where + "/required", "a list of texts", brief(Json(name)));
    const auto& text = name.get_ref<const std::string&>();
    if (has(schema, "properties") && schema["properties"].contains(text)) continue;
    if (has_others && schema[others] == false) {
      return error("no such property is allowed", where + "/required", {}, brief(Json(name)));
    }
    schema["properties"][text] = has_others ? schema[others] : Schema(true);
  }
  return {};
}

// The grammar applies neither to properties that are named, and one of the two at most.
Error check_names(const Schema& schema, const std::string& where) {
  const bool has_names = has(schema, "properties") && !schema["properties"].empty();
  const bool is_closed = has(schema, "additionalProperties") && schema["additionalProperties"] == false;
  for (const char* name : {"propertyNames", "patternProperties"}) {
    if (has_names && has(schema, name))
      return error("not supported beside properties and required", where + "/" + name);
  }
  if (!has(schema, "propertyNames")) return {};
  if (is_closed) return error("not supported beside additionalProperties false", where + "/propertyNames");
  if (has(schema, "patternProperties"))
    return error("not supported beside patternProperties", where + "/propertyNames");
  return {};
}

Error replace_name_patterns(Schema& schema, const std::string& where) {
  if (!has(schema, "patternProperties")) return {};
  if (schema["patternProperties"].size() > 1) {  // a name may match more than one
    return error("not supported", where + "/patternProperties", "one pattern",
                 std::to_string(schema["patternProperties"].size()));
  }
  Schema escaped = Schema::object();
  for (const auto& [pattern, value] : schema["patternProperties"].items()) {
    std::string name;
    if (Error e = escape_pattern(pattern, where + "/patternProperties", &name)) return e;
    escaped[name] = value;
  }
  schema["patternProperties"] = std::move(escaped);
  return {};
}

// A grammar cannot keep a name from coming twice, which is one property.
Error check_count(const Schema& schema, const std::string& where) {
  const bool is_closed = has(schema, "properties") && !has(schema, "patternProperties") &&
                         (!has(schema, "additionalProperties") || schema["additionalProperties"] == false) &&
                         (!has(schema, "unevaluatedProperties") || schema["unevaluatedProperties"] == false);
  if (is_closed || !has(schema, "minProperties") || !schema["minProperties"].is_number()) return {};
  const Schema required = has(schema, "required") ? schema["required"] : Schema::array();
  const std::set<Schema> names(required.begin(), required.end());
  if (schema["minProperties"] <= names.size() + 1) return {};  // one more differs from them all
  return error("not supported where any name will do", where + "/minProperties");
}

// Numbers are written with six digits behind the point at most; one of them must be within the bounds.
Error check_bounds(const Schema& schema, const std::string& where) {
  const auto bound = [&](const char* name, double none) {
    return has(schema, name) && schema[name].is_number() ? schema[name].get<double>() : none;
  };
  constexpr double kNone = std::numeric_limits<double>::infinity(), kSteps = 1e6;
  const double low = std::max(bound("minimum", -kNone), bound("exclusiveMinimum", -kNone));
  const double high = std::min(bound("maximum", kNone), bound("exclusiveMaximum", kNone));
  if (low > high || high - low > 2 / kSteps) return {};  // the library refuses the former
  const double first = std::floor(low * kSteps) - 1;
  for (int i = 0; i < 6; ++i) {
    const double number = (first + i) / kSteps;
    const bool is_within = number >= low && number <= high && number > bound("exclusiveMinimum", -kNone) &&
                           number < bound("exclusiveMaximum", kNone);
    if (is_within) return {};
  }
  return error("no number with six digits behind the point fits the bounds", where);
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
    if (schema[name].empty() && std::string_view(name) != "prefixItems") return error("is empty", where + "/" + name);
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
  // References within would be about another root.
  if (&schema != &root && has(schema, "$id")) return error("not supported", where + "/$id");
  if (Error e = check_keywords(schema, where)) return e;
  const Schema* meant = nullptr;
  if (Error e = follow(root, schema, where, &meant)) return e;
  if (Error e = replace_one_of(root, schema, where)) return e;
  if (Error e = find_type(schema, where)) return e;
  if (has(schema, "multipleOf") && may_be(schema, "number")) {
    return error("not supported but of integers", where + "/multipleOf");
  }
  if (Error e = bound_counts(schema, where)) return e;
  if (Error e = replace_texts(schema, where)) return e;
  if (Error e = name_required(schema, where)) return e;
  if (Error e = check_names(schema, where)) return e;
  if (Error e = check_count(schema, where)) return e;
  if (Error e = check_bounds(schema, where)) return e;
  if (Error e = complete_parts(root, schema, where)) return e;
  if (Error e = replace_name_patterns(schema, where)) return e;
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
