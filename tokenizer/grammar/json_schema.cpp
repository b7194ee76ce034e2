#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "loader/files/json.h"
#include "tokenizer/grammar/schema_converter.h"

namespace pinion {
namespace {

// Assertions that a grammar expresses only beside an enum or a const. Unknown keywords are annotations.
constexpr const char* kUnsupported[] = {"not", "if", "contains", "$dynamicRef", "$recursiveRef"};

// Assertions that a grammar can express, by the type of the values that they constrain.
constexpr struct {
  const char* type;
  std::array<const char*, 12> names;  // null: unused
} kAssertions[] = {
    {"object",
     {"properties", "required", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames",
      "minProperties", "maxProperties"}},
    {"array", {"items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems"}},
    {"string", {"minLength", "maxLength", "pattern", "format"}},
    {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};

constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
using Types = unsigned;  // one bit for each of kTypes; a number may be an integer
constexpr Types kInteger = 1u << 2, kNumber = 1u << 3, kAnyType = (1u << std::size(kTypes)) - 1;

Types type_bit(const Schema& name) {
  const auto found = name.is_string() ? std::ranges::find(kTypes, name.get<std::string>()) : std::end(kTypes);
  if (found == std::end(kTypes)) return 0;
  const Types bit = 1u << (found - std::begin(kTypes));
  return bit == kNumber ? kNumber | kInteger : bit;
}

bool has_values(const Schema& schema) { return schema.contains("enum") || schema.contains("const"); }

bool is_assertion(const Schema& schema) {
  if (has_values(schema) || schema.contains("type")) return true;
  if (std::ranges::any_of(kUnsupported, [&](const char* name) { return schema.contains(name); })) return true;
  return std::ranges::any_of(kAssertions, [&](const auto& row) { return has_assertion(schema, row.type); });
}

// The types that all parts allow. Parts without a type constrain values of the types of their assertions only; if no
// part has a type, the grammar allows no others, though the standard does.
Error types_of(Parts parts, Types* out, bool* is_inferred, std::string* where) {
  *out = kAnyType;
  Types inferred = 0;
  bool has_type = false;
  for (const SchemaPart& part : parts) {
    for (const auto& row : kAssertions) inferred |= has_assertion(*part.schema, row.type) ? type_bit(row.type) : 0;
    if (!part.schema->contains("type")) continue;
    has_type = true;
    *where = part.where + "/type";
    const Schema& type = (*part.schema)["type"];
    if (type.is_array() && type.empty()) return error("is empty", *where);
    Types own = 0;
    for (const Schema& name : type.is_array() ? type : Schema::array({type})) {
      if (type_bit(name) == 0) return error("not a type of JSON schema", *where, {}, brief(Json(name)));
      own |= type_bit(name);
    }
    *out &= own;
  }
  *is_inferred = !has_type && inferred != 0;
  if (*is_inferred) *out = inferred;
  if (*out & kNumber) *out &= ~kInteger;
  return {};
}

}  // namespace

bool has_assertion(const Schema& schema, std::string_view type) {
  const auto row = std::ranges::find(kAssertions, type, [](const auto& one) { return std::string_view(one.type); });
  return std::ranges::any_of(row->names, [&](const char* name) { return name && schema.contains(name); });
}

Error read_counts(Parts parts, const char* min_name, const char* max_name, int64_t* min, int64_t* max) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();  // of XGrammar. No text reaches a larger maximum.
  const std::string most = at_most(kMax);
  *min = 0, *max = kUnbounded;
  for (const SchemaPart& part : parts) {
    for (const char* name : {min_name, max_name}) {
      if (!part.schema->contains(name)) continue;
      const Schema& count = (*part.schema)[name];
      const std::string where = part.where + "/" + name;
      if (!is_of_type(count, "integer") || count < 0) return error("wrong type", where, "a count", brief(Json(count)));
      const bool is_large = count > kMax;
      if (is_large && name == min_name) return error("out of range", where, most, brief(Json(count)));
      if (name == min_name) *min = std::max(*min, count.get<int64_t>());
      if (name == max_name && !is_large) *max = std::min(*max, count.get<int64_t>());
    }
  }
  return {};
}

Error SchemaConverter::convert(Schema* out) {
  SchemaSet all;
  if (Error e = add(root_, where_ + ": #", &all)) return e;
  all.has_reference = true;  // "#" may refer to it
  Schema top;
  if (Error e = refer(all, where_ + ": #", &top)) return e;
  if (top == false) return reason_ ? reason_ : error("no value matches", where_ + ": #");
  *out = is_referenced_[0] ? top : definitions_[0];
  Schema definitions = Schema::object();
  for (size_t i = 0; i < definitions_.size(); ++i) {
    if (is_referenced_[i]) definitions[std::to_string(i)] = definitions_[i];
  }
  if (!definitions.empty()) (*out)["$defs"] = std::move(definitions);
  return {};
}

Error SchemaConverter::no_value(const std::string& what, const std::string& where, Schema* out) {
  reason_ = error(what, where);
  *out = false;
  return {};
}

Error SchemaConverter::add(const Schema& schema, const std::string& where, SchemaSet* out) {
  constexpr int kMaxSteps = 50'000;
  constexpr size_t kMaxPartDepth = 200;
  if (++steps_ > kMaxSteps || active_.size() > kMaxPartDepth) {
    return error("too many combinations of keywords and references", where);
  }
  if (schema.is_boolean()) {
    if (schema == true) return {};
    out->has_values = false;
    reason_ = error("no value matches", where);
    return {};
  }
  if (!schema.is_object()) return error("wrong type", where, "an object, true or false", brief(Json(schema)));
  if (std::ranges::find(active_, &schema) != active_.end()) return error("references form a cycle", where);
  // $id starts another root for the references inside.
  const bool is_other_root = &schema != &root_ && schema.contains("$id") && schema["$id"].is_string() &&
                             !schema["$id"].get_ref<const std::string&>().starts_with('#');
  if (is_other_root && schema.dump().find("\"$ref\":\"#") != std::string::npos) {
    return error("not supported around references", where + "/$id");
  }
  if (!out->seen.insert(&schema).second) return {};
  const auto is_around = [](const Schema* one) {
    return is_assertion(*one) || one->contains("allOf") || one->contains("anyOf");
  };
  const bool is_outer = out->parts.empty() && std::ranges::none_of(active_, is_around);
  const bool is_new = std::ranges::find(out->parts, &schema, &SchemaPart::schema) == out->parts.end();
  if (is_assertion(schema) && is_new) out->parts.push_back({&schema, where, is_outer});
  active_.push_back(&schema);
  Error e = add_nested(schema, where, out);
  active_.pop_back();
  return e;
}

// The schemas that apply to the same value: $ref, allOf, anyOf, oneOf and dependencies.
Error SchemaConverter::add_nested(const Schema& schema, const std::string& where, SchemaSet* out) {
  if (schema.contains("$ref")) {
    const Schema& reference = schema["$ref"];
    if (!reference.is_string()) return error("wrong type", where + "/$ref", "a string");
    const auto& name = reference.get_ref<const std::string&>();
    const Schema* target = find_reference(root_, name);
    if (!target) return error("no such schema", where + "/$ref", "# or #/$defs/NAME", brief(Json(reference)));
    if (std::ranges::find(active_, target) != active_.end()) return error("references form a cycle", where + "/$ref");
    out->has_reference = true;
    if (Error e = add(*target, name.starts_with('#') ? where_ + ": " + name : where + "/$ref", out)) return e;
  }
  if (schema.contains("not") && (schema["not"] == true || schema["not"] == Schema::object()))
    return add(false, where + "/not", out);
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(keyword)) continue;
    const Schema& list = schema[keyword];
    const std::string at = where + "/" + keyword;
    if (!list.is_array()) return error("wrong type", at, "a list of schemas");
    if (list.empty()) return error("is empty", at);
    if (std::string_view(keyword) != "allOf") {
      out->choices.push_back({&list, at, std::string_view(keyword) == "oneOf"});
      continue;
    }
    for (size_t i = 0; i < list.size(); ++i) {
      if (Error e = add(list[i], at + "/" + std::to_string(i), out)) return e;
    }
  }
  for (const char* keyword : {"dependentRequired", "dependentSchemas", "dependencies"}) {
    if (!schema.contains(keyword)) continue;
    if (!schema[keyword].is_object()) return error("wrong type", where + "/" + keyword, "an object");
    // Either the property is absent, or the rest applies.
    for (const auto& [name, rest] : schema[keyword].items()) {
      Schema present = rest.is_array() ? Schema{{"required", rest}} : Schema{{"allOf", Schema::array({rest})}};
      present["required"].push_back(name);
      const Schema absent = {{"properties", {{name, false}}}, {"type", "object"}};
      const auto made = made_.try_emplace(&rest, Schema::array({absent, present})).first;
      out->choices.push_back({&made->second, where + "/" + keyword, false});
    }
  }
  return {};
}

Error SchemaConverter::refer(const SchemaSet& all, const std::string& around, Schema* out) {
  constexpr int kMaxDepth = 100;
  const std::string& where = all.parts.empty() ? around : all.parts.front().where;
  if (!all.has_values) {
    *out = false;
    return {};
  }
  if (depth_ >= kMaxDepth) return error("references nest too deeply", where);
  ++depth_;
  std::vector<const Schema*> active;  // references inside this value's parts may repeat those around it
  std::swap(active, active_);
  Error e;
  if (!all.has_reference) {
    e = expand(all, where, out);
  } else {
    std::vector<const Schema*> key;
    for (const SchemaPart& part : all.parts) key.push_back(part.schema);
    key.push_back(nullptr);
    for (const Choice& choice : all.choices) key.push_back(choice.branches);
    const auto [found, is_new] = numbers_.try_emplace(key, definitions_.size());
    const size_t number = found->second;
    if (is_new) {
      definitions_.emplace_back();
      is_referenced_.push_back(false);
      Schema made;
      e = expand(all, where, &made);
      definitions_[number] = std::move(made);
      if (!e && &resolved(definitions_[number]) == &definitions_[number] && definitions_[number].contains("$ref")) {
        e = error("references form a cycle", where);
      }
    }
    *out = definitions_[number] == false ? Schema(false) : Schema{{"$ref", "#/$defs/" + std::to_string(number)}};
    if (number != 0 || !is_new) is_referenced_[number] = true;
  }
  std::swap(active, active_);
  --depth_;
  return e;
}

const Schema& SchemaConverter::resolved(const Schema& made) const {
  const Schema* at = &made;
  while (at->is_object() && at->contains("$ref")) {
    const Schema* next = &definitions_[std::stoul((*at)["$ref"].get<std::string>().substr(std::size("#/$defs/") - 1))];
    if (next == &made) return made;
    at = next;
  }
  return *at;
}

Error SchemaConverter::expand(const SchemaSet& all, const std::string& where, Schema* out) {
  if (std::ranges::any_of(all.parts, [](const SchemaPart& part) { return has_values(*part.schema); })) {
    return expand_values(all, out);
  }
  return all.choices.empty() ? expand_types(all, where, out) : expand_choice(all, out);
}

// An enum or const keeps the values that match all keywords beside it.
Error SchemaConverter::expand_values(const SchemaSet& all, Schema* out) {
  const auto first = std::ranges::find_if(all.parts, [](const SchemaPart& part) { return has_values(*part.schema); });
  const bool is_constant = first->schema->contains("const");
  const Schema given = is_constant ? Schema::array({(*first->schema)["const"]}) : (*first->schema)["enum"];
  const std::string where = first->where + (is_constant ? "/const" : "/enum");
  if (!given.is_array()) return error("wrong type", where, "a list of values", brief(Json(given)));
  if (given.empty()) return error("is empty", where);
  Schema values = Schema::array();
  for (const Schema& value : given) {
    const auto matches = [&](const Schema& schema) { return matches_schema(root_, value, schema); };
    const bool is_kept =
        std::ranges::all_of(all.parts, [&](const SchemaPart& part) { return matches(*part.schema); }) &&
        std::ranges::all_of(all.choices, [&](const Choice& choice) {
          const auto count = std::ranges::count_if(*choice.branches, matches);
          return choice.is_exclusive ? count == 1 : count > 0;
        });
    if (is_kept && std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  if (values.empty()) return no_value("no value matches the keywords beside it", where, out);
  *out = values.size() == 1 ? Schema{{"const", values[0]}} : Schema{{"enum", values}};
  return {};
}

// The keywords beside anyOf or oneOf apply to each branch.
Error SchemaConverter::expand_choice(const SchemaSet& all, Schema* out) {
  SchemaSet rest = all;
  const Choice choice = rest.choices.front();
  rest.choices.erase(rest.choices.begin());
  rest.seen.clear();           // a branch may refer to the schema around it
  rest.has_reference = false;  // a recursion leads through the definition around this choice
  Schema branches = Schema::array();
  for (size_t i = 0; i < choice.branches->size(); ++i) {
    const std::string at = choice.where + "/" + std::to_string(i);
    SchemaSet branch = rest;
    Schema made;
    if (Error e = add((*choice.branches)[i], at, &branch)) return e;
    if (Error e = refer(branch, at, &made)) return e;
    if (made != false && (choice.is_exclusive || std::ranges::find(branches, made) == branches.end())) {
      branches.push_back(std::move(made));
    }
  }
  if (branches.empty()) return no_value("no branch matches the keywords beside it", choice.where, out);
  const auto resolve = [&](const Schema& branch) -> const Schema& { return resolved(branch); };
  // XGrammar reads oneOf as anyOf, which is the same only for disjoint branches.
  if (choice.is_exclusive && !are_disjoint(branches, resolve)) {
    return error("not supported if a value may match two branches", choice.where,
                 "branches of different types, or objects that require a property with different values");
  }
  *out = branches.size() == 1 ? branches[0] : Schema{{"anyOf", branches}};
  return {};
}

Error SchemaConverter::expand_types(const SchemaSet& all, const std::string& where, Schema* out) {
  Types types = 0;
  std::string type_where = where;
  bool is_inferred = false;
  if (Error e = types_of(all.parts, &types, &is_inferred, &type_where)) return e;
  if (types == 0) return no_value("no value has all these types", type_where, out);
  for (const SchemaPart& part : all.parts) {
    for (const char* name : kUnsupported) {
      if (part.schema->contains(name)) return error("not supported", part.where + "/" + name);
    }
  }
  *out = Schema::object();
  if (types == (kAnyType & ~kInteger)) return {};
  Schema branches = Schema::array();
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (!(types >> i & 1)) continue;
    Schema made;
    if (Error e = expand_type(all.parts, kTypes[i], where, &made)) return e;
    if (is_inferred && made != false) made["$comment"] = kAnyTypeComment;
    if (made != false) branches.push_back(std::move(made));
  }
  *out = branches.empty() ? Schema(false) : branches.size() == 1 ? branches[0] : Schema{{"anyOf", branches}};
  return {};
}

Error SchemaConverter::expand_type(Parts parts, std::string_view type, const std::string& where, Schema* out) {
  Error e;
  if (type == "object") {
    e = complete_object(parts, where, out);
  } else if (type == "array") {
    e = complete_array(parts, where, out);
  } else if (type == "string") {
    e = complete_string(parts, out);
  } else if (type == "integer" || type == "number") {
    e = complete_number(parts, type == "integer", out);
  } else {
    *out = {{"type", type}};
  }
  const bool has_reason = type == "object" || type == "array";
  if (!e && *out == false && !has_reason) reason_ = error("no " + std::string(type) + " matches all limits", where);
  return e;
}

Error complete_schema(std::string_view text, const std::string& where, std::string* out) {
  Schema schema, made;
  if (Error e = parse_ordered_json(text, where, &schema)) return e;
  if (Error e = SchemaConverter(schema, where).convert(&made)) return e;
  *out = made.dump();
  return {};
}

}  // namespace pinion
