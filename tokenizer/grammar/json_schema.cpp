#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "loader/files/json.h"
#include "tokenizer/grammar/sources.h"

namespace pinion {
namespace {

// Assertions (keywords that constrain values) that a grammar cannot express. By the standard, unknown keywords are
// annotations, which constrain nothing.
constexpr const char* kUnsupported[] = {
    "not",      "if",          "then",        "else",        "dependentRequired", "dependentSchemas", "dependencies",
    "contains", "minContains", "maxContains", "$dynamicRef", "$recursiveRef",     "additionalItems"};

// XGrammar ignores all keywords beside one of these, except the type of a constant.
constexpr const char* kExclusive[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};

// Assertions that a grammar can express, by the type of the values that they constrain.
constexpr struct {
  const char* type;
  std::array<const char*, 8> names;  // null: unused
} kAssertions[] = {{"object",
                    {"properties", "required", "patternProperties", "additionalProperties", "unevaluatedProperties",
                     "propertyNames", "minProperties", "maxProperties"}},
                   {"array", {"items", "prefixItems", "unevaluatedItems", "minItems", "maxItems"}},
                   {"string", {"minLength", "maxLength", "pattern", "format"}},
                   {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};

constexpr const char* kSubschemas[] = {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
                                       "propertyNames"};
constexpr const char* kSubschemaLists[] = {"prefixItems", "anyOf", "oneOf", "allOf"};
constexpr const char* kSubschemaMaps[] = {"properties", "patternProperties", "$defs", "definitions"};

bool has(const Schema& schema, const char* name) { return schema.contains(name); }

bool is_of_type(const Schema& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  return type == value.type_name();  // nlohmann/json has the names of JSON schema
}

bool allows_type(const Schema& schema, const char* type) {
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
        types, [&](const Schema& name) { return name.is_string() && is_of_type(value, name.get<std::string>()); });
    if (!fits) return error("value does not match the type", where, brief(Json(type)), brief(Json(value)));
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
  std::string exclusive;
  for (const char* name : kExclusive) {
    if (!has(schema, name)) continue;
    if (!exclusive.empty()) return error("not supported beside " + exclusive, where + "/" + name);
    exclusive = name;
  }
  if (exclusive.empty()) return {};
  const bool is_value = exclusive == "enum" || exclusive == "const";
  if (has(schema, "type") && !is_value) return error("not supported beside " + exclusive, where + "/type");
  for (const auto& [type, names] : kAssertions) {
    const auto found = std::ranges::find_if(names, [&](const char* name) { return name && has(schema, name); });
    if (found != names.end()) return error("not supported beside " + exclusive, where + "/" + *found);
  }
  return is_value ? check_values(schema, where) : Error{};
}

// The schema at a JSON pointer (RFC 6901) without escapes. Null if there is none, or if complete() would not rewrite
// it.
const Schema* find_reference(const Schema& root, std::string_view reference) {
  if (reference == "#") return &root;
  if (!reference.starts_with("#/") || reference.find_first_of("~%") != reference.npos) return nullptr;
  const Schema* at = &root;
  bool is_name = false;  // inside an object of named schemas
  for (size_t begin = 2; begin <= reference.size();) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    const std::string name(reference.substr(begin, end - begin));
    begin = end + 1;
    if (!at->is_object() || !at->contains(name)) return nullptr;
    const auto is_keyword = [&](const char* keyword) { return name == keyword; };
    const bool is_map = !is_name && std::ranges::any_of(kSubschemaMaps, is_keyword);
    if (!is_name && !is_map && std::ranges::none_of(kSubschemas, is_keyword)) return nullptr;
    is_name = is_map;
    at = &(*at)[name];
  }
  return is_name ? nullptr : at;
}

// Follows a chain of references. A cycle is an error, since no text would match it.
Error resolve(const Schema& root, const Schema& schema, const std::string& where, const Schema** out) {
  constexpr int kMaxSteps = 100;
  *out = &schema;
  for (int step = 0; (*out)->is_object() && has(**out, "$ref"); ++step) {
    if (step == kMaxSteps) return error("references form a cycle", where + "/$ref");
    const Schema& reference = (**out)["$ref"];
    if (!reference.is_string()) return error("wrong type", where + "/$ref", "a string");
    const Schema* next = find_reference(root, reference.get_ref<const std::string&>());
    if (!next) return error("no such schema", where + "/$ref", "# or #/$defs/NAME", brief(Json(reference)));
    *out = next;
  }
  return {};
}

// XGrammar reads oneOf as anyOf, which is the same only for disjoint branches.
Error replace_one_of(const Schema& root, Schema& schema, const std::string& where) {
  if (!has(schema, "oneOf") || !schema["oneOf"].is_array()) return {};  // complete_subschemas() reports other types
  const auto resolve_branch = [&](const Schema& branch) {
    const Schema* found = nullptr;
    return resolve(root, branch, where, &found) ? nullptr : found;
  };
  if (!are_disjoint(schema["oneOf"], resolve_branch)) {
    return error("not supported if a value may match two branches", where + "/oneOf",
                 "branches of different types, or objects that require a property with different values");
  }
  Schema branches = std::move(schema["oneOf"]);
  schema.erase("oneOf");
  schema["anyOf"] = std::move(branches);
  return {};
}

// XGrammar truncates counts to 32 bits. No text reaches a larger maximum.
Error bound_counts(Schema& schema, const std::string& where) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  for (const char* name : {"maxItems", "maxLength", "maxProperties"}) {
    if (has(schema, name) && schema[name].is_number() && schema[name] > kMax) schema.erase(name);
  }
  for (const char* name : {"minItems", "minLength", "minProperties"}) {
    if (!has(schema, name) || !schema[name].is_number() || schema[name] <= kMax) continue;
    return error("out of range", where + "/" + name, "at most " + std::to_string(kMax), brief(Json(schema[name])));
  }
  return {};
}

// Adds required names that `properties` lacks to it, with the schema of additional properties.
Error list_required(Schema& schema, const std::string& where) {
  if (!has(schema, "required")) return {};
  if (!schema["required"].is_array()) return error("wrong type", where + "/required", "a list of strings");
  if (has(schema, "properties") && !schema["properties"].is_object()) return {};  // complete_subschemas() reports it
  const char* others = has(schema, "additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  const bool has_others = has(schema, others);
  const Schema required = schema["required"];  // a copy, since insertions below move the fields
  for (const Schema& name : required) {
    if (!name.is_string()) return error("wrong type", where + "/required", "a list of strings", brief(Json(name)));
    const auto& text = name.get_ref<const std::string&>();
    if (has(schema, "properties") && schema["properties"].contains(text)) continue;
    if (has_others && schema[others] == false) {
      return error("property is not allowed", where + "/required", {}, brief(Json(name)));
    }
    schema["properties"][text] = has_others ? schema[others] : Schema(true);
  }
  return {};
}

// XGrammar applies propertyNames and patternProperties to unlisted properties only, and at most one of the two.
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
  if (schema["patternProperties"].size() > 1) {  // a name may match several
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

// Refuses minProperties that the grammar cannot enforce: it allows a name twice, which counts as one property.
Error check_count(const Schema& schema, const std::string& where) {
  const bool is_closed = has(schema, "properties") && !has(schema, "patternProperties") &&
                         (!has(schema, "additionalProperties") || schema["additionalProperties"] == false) &&
                         (!has(schema, "unevaluatedProperties") || schema["unevaluatedProperties"] == false);
  if (is_closed || !has(schema, "minProperties") || !schema["minProperties"].is_number()) return {};
  const Schema required = has(schema, "required") ? schema["required"] : Schema::array();
  const std::set<Schema> names(required.begin(), required.end());
  if (schema["minProperties"] <= names.size() + 1) return {};  // the additional one differs from all required ones
  return error("not supported with arbitrary property names", where + "/minProperties");
}

// XGrammar's numbers have at most six decimals, so bounds between which no such number lies are an error.
Error check_bounds(const Schema& schema, const std::string& where) {
  const auto bound = [&](const char* name, double none) {
    return has(schema, name) && schema[name].is_number() ? schema[name].get<double>() : none;
  };
  constexpr double kNone = std::numeric_limits<double>::infinity(), kSteps = 1e6;
  const double low = std::max(bound("minimum", -kNone), bound("exclusiveMinimum", -kNone));
  const double high = std::min(bound("maximum", kNone), bound("exclusiveMaximum", kNone));
  if (low > high || high - low > 2 / kSteps) return {};  // the library reports low > high
  const double first = std::floor(low * kSteps) - 1;
  for (int i = 0; i < 6; ++i) {
    const double number = (first + i) / kSteps;
    const bool is_within = number >= low && number <= high && number > bound("exclusiveMinimum", -kNone) &&
                           number < bound("exclusiveMaximum", kNone);
    if (is_within) return {};
  }
  return error("no number with six decimals fits the bounds", where);
}

// Sets the type of a schema that lacks one to the type that its assertions constrain. The standard would also allow all
// values of other types; the grammar is stricter.
Error infer_type(Schema& schema, const std::string& where) {
  if (has(schema, "type") || std::ranges::any_of(kExclusive, [&](const char* name) { return has(schema, name); }))
    return {};
  for (const auto& [type, names] : kAssertions) {
    if (std::ranges::none_of(names, [&](const char* name) { return name && has(schema, name); })) continue;
    if (has(schema, "type")) return error("assertions about more than one type", where, "a type");
    schema["type"] = type;
  }
  return {};
}

// Objects without listed properties and arrays without items may hold anything.
void open_unrestricted(Schema& schema) {
  const bool is_open = !has(schema, "properties") && !has(schema, "patternProperties") &&
                       !has(schema, "additionalProperties") && !has(schema, "unevaluatedProperties");
  if (is_open && allows_type(schema, "object")) schema["additionalProperties"] = true;
  const bool is_any_list = !has(schema, "items") && !has(schema, "prefixItems") && !has(schema, "unevaluatedItems");
  if (is_any_list && allows_type(schema, "array")) schema["items"] = Schema::object();
}

Error complete(const Schema& root, Schema& schema, const std::string& where);

// A name from a request, shortened and escaped for a message of one line.
std::string brief_name(const std::string& name) {
  const std::string quoted = brief(Json(name));
  return quoted.substr(1, quoted.size() - 2);
}

Error complete_subschemas(const Schema& root, Schema& schema, const std::string& where) {
  for (const char* name : kSubschemas) {
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
      if (Error e = complete(root, value, where + "/" + name + "/" + brief_name(key))) return e;
    }
  }
  return {};
}

Error complete(const Schema& root, Schema& schema, const std::string& where) {
  if (schema.is_boolean()) return {};
  if (!schema.is_object()) return error("wrong type", where, "an object, true or false", brief(Json(schema)));
  // $id starts another root for the references inside.
  if (&schema != &root && has(schema, "$id")) return error("not supported", where + "/$id");
  if (Error e = check_keywords(schema, where)) return e;
  const Schema* resolved = nullptr;
  if (Error e = resolve(root, schema, where, &resolved)) return e;
  if (Error e = replace_one_of(root, schema, where)) return e;
  if (Error e = infer_type(schema, where)) return e;
  if (has(schema, "multipleOf") && allows_type(schema, "number")) {
    return error("supported for integers only", where + "/multipleOf");
  }
  if (Error e = bound_counts(schema, where)) return e;
  if (Error e = replace_string_keywords(schema, where)) return e;
  if (Error e = list_required(schema, where)) return e;
  if (Error e = check_names(schema, where)) return e;
  if (Error e = check_count(schema, where)) return e;
  if (Error e = check_bounds(schema, where)) return e;
  if (Error e = complete_subschemas(root, schema, where)) return e;
  if (Error e = replace_name_patterns(schema, where)) return e;
  open_unrestricted(schema);
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
