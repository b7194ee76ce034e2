// Objects: properties of several schemas, patterns of further names. Arrays: items of several schemas by position.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "loader/files/json.h"
#include "tokenizer/answers/json_scanner.h"
#include "tokenizer/grammar/hooks.h"
#include "tokenizer/grammar/schema_converter.h"

namespace pinion {
namespace {

// A name from a request, shortened and escaped for a message of one line.
std::string brief_name(const std::string& name) {
  const std::string quoted = brief(Json(name));
  return quoted.substr(1, quoted.size() - 2);
}

const Schema* find_keyword(const SchemaPart& part, const char* keyword) {
  const auto found = part.schema->find(keyword);
  return found == part.schema->end() ? nullptr : &*found;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// A pattern of exactly these names.
std::string literal_pattern(const std::vector<std::string>& names) {
  std::string pattern;
  for (const std::string& name : names) pattern += (pattern.empty() ? "^(?:" : "|") + regex_escaped(name);
  std::string escaped;
  return escape_pattern(pattern + ")$", "", &escaped) ? std::string() : escaped;
}

// The first items and the rest: prefixItems and items, or a list as items and additionalItems (before draft 2020-12).
// unevaluatedItems depends on the schemas inside its own only, so elsewhere it counts as the rest.
struct ItemKeywords {
  const char *first, *rest;
};

ItemKeywords keywords_of(const SchemaPart& part) {
  const bool is_list = part.schema->contains("items") && (*part.schema)["items"].is_array();
  const bool has_inner = !part.is_outer && !part.schema->contains(is_list ? "additionalItems" : "items");
  if (has_inner) return {is_list ? "items" : "prefixItems", "unevaluatedItems"};
  return is_list ? ItemKeywords{"items", "additionalItems"} : ItemKeywords{"prefixItems", "items"};
}

size_t first_items(const SchemaPart& part) {
  const char* first = keywords_of(part).first;
  return part.schema->contains(first) ? (*part.schema)[first].size() : 0;
}

}  // namespace

Error SchemaConverter::read_names(Parts parts, Names* out) {
  for (const SchemaPart& part : parts) {
    for (const char* keyword : {"properties", "patternProperties"}) {
      const Schema* schemas = find_keyword(part, keyword);
      const std::string where = part.where + "/" + keyword;
      if (!schemas) continue;
      if (!schemas->is_object()) return error("wrong type", where, "an object of schemas");
      out->has_list = true;
      for (const auto& [name, schema] : schemas->items()) {
        if (std::string_view(keyword) == "properties") {
          add_once(name, &out->listed);
          continue;
        }
        std::string escaped;
        if (Error e = escape_pattern(name, where, &escaped)) return e;
        add_once(escaped, &out->patterns);
      }
    }
    out->is_open |= part.schema->contains("additionalProperties") || part.schema->contains("unevaluatedProperties");
    const Schema* required = find_keyword(part, "required");
    if (!required || required->is_boolean()) continue;  // a boolean: draft 3
    const std::string where = part.where + "/required", want = "a list of strings";
    if (!required->is_array()) return error("wrong type", where, want);
    for (const Schema& name : *required) {
      if (!name.is_string()) return error("wrong type", where, want, brief(Json(name)));
      add_once(name, &out->required);
    }
  }
  out->is_open |= !out->has_list && out->required.empty();
  return {};
}

// Applies propertyNames: the names of an enum become properties, a pattern applies to all names.
Error SchemaConverter::limit_names(Parts parts, Names* names) {
  static const Schema kString = {{"type", "string"}};
  SchemaSet all;
  for (const SchemaPart& part : parts) {
    const Schema* schema = find_keyword(part, "propertyNames");
    if (!schema) continue;
    const std::string at = part.where + "/propertyNames";
    all.parts.push_back({&kString, at});
    if (Error e = add(*schema, at, &all)) return e;
  }
  Schema made = kString;
  const std::string where = all.parts.empty() ? "" : all.parts[0].where;
  if (!all.parts.empty()) {
    if (Error e = refer(all, where, &made)) return e;
    made = resolved(made);
  }
  if (made == kString) return {};
  if (made.is_null() || made.contains("anyOf")) return error("not supported with branches", where);
  if (made != false && made.contains("type")) {
    names->key = key_pattern(made);
    std::erase_if(names->listed, [&](const auto& name) { return !matches_pattern(names->key, json_escaped(name)); });
    return {};
  }
  const Schema values = made == false ? Schema::array() : made.value("enum", Schema::array({made.value("const", "")}));
  const auto is_value = [&](const std::string& name) {
    return std::ranges::find(values, Schema(name)) != values.end();
  };
  std::erase_if(names->listed, std::not_fn(is_value));
  for (const Schema& value : values) {
    if (names->is_open || !names->patterns.empty() || contains(names->required, value)) add_once(value, &names->listed);
  }
  names->is_finite = true;
  return {};
}

// The schemas of one property's value, or of the names that match the `chosen` patterns only.
Error SchemaConverter::value_of(Parts parts, const Names& names, const std::string* name, size_t chosen,
                                SchemaSet* out) {
  int count = 0;  // schemas of the value
  const SchemaPart* unevaluated = nullptr;
  for (const SchemaPart& part : parts) {
    const auto add_value = [&](const char* keyword, const std::string& key) {
      ++count;
      return add((*part.schema)[keyword][key], part.where + "/" + keyword + "/" + brief_name(key), out);
    };
    bool is_listed = false;
    if (const Schema* properties = find_keyword(part, "properties");
        name && properties && properties->contains(*name)) {
      is_listed = true;
      if (Error e = add_value("properties", *name)) return e;
    }
    const Schema none = Schema::object(), *patterns = find_keyword(part, "patternProperties");
    for (const auto& [pattern, schema] : (patterns ? *patterns : none).items()) {
      std::string escaped;
      if (Error e = escape_pattern(pattern, part.where, &escaped)) return e;
      if (!(chosen >> (std::ranges::find(names.patterns, escaped) - names.patterns.begin()) & 1)) continue;
      is_listed = true;
      if (Error e = add_value("patternProperties", pattern)) return e;
    }
    // unevaluatedProperties depends on the schemas inside its own only; all others may be outside.
    const bool has_inner = !part.is_outer && part.schema->contains("unevaluatedProperties");
    const char* others =
        part.schema->contains("additionalProperties") || !has_inner ? "additionalProperties" : "unevaluatedProperties";
    if (part.is_outer && part.schema->contains("unevaluatedProperties")) unevaluated = &part;
    if (is_listed || !part.schema->contains(others)) continue;
    ++count;
    if (Error e = add((*part.schema)[others], part.where + "/" + others, out)) return e;
  }
  for (SchemaPart& part : out->parts) part.is_outer &= count == 1;
  if (count > 0 || !unevaluated) return {};
  return add((*unevaluated->schema)["unevaluatedProperties"], unevaluated->where + "/unevaluatedProperties", out);
}

Error SchemaConverter::add_property(Parts parts, const Names& names, const std::string& name, const std::string& where,
                                    Schema* out) {
  SchemaSet value;
  Schema made;
  size_t chosen = 0;
  for (size_t i = 0; i < names.patterns.size(); ++i) {
    chosen |= size_t{matches_pattern(names.patterns[i], json_escaped(name))} << i;
  }
  if (Error e = value_of(parts, names, &name, chosen, &value)) return e;
  if (Error e = refer(value, where + "/properties/" + brief_name(name), &made)) return e;
  if (made != false) {
    (*out)["properties"][name] = std::move(made);
  } else if (contains(names.required, name)) {
    *out = false;
    if (!value.has_values) reason_ = error("property is not allowed", where + "/required", {}, brief(Json(name)));
  }
  return {};
}

// The names that are not listed. XGrammar applies one pattern to a name, so each combination of patterns becomes one.
Error SchemaConverter::add_others(Parts parts, const Names& names, const std::string& where, Schema* out) {
  const Schema properties = out->value("properties", Schema::object());
  const bool has_gap = properties.size() < names.listed.size();  // a property that no value matches
  for (size_t chosen = size_t{1} << names.patterns.size(); chosen-- > 0;) {
    if (chosen == 0 && !names.is_open) break;
    SchemaSet value;
    Schema made;
    if (Error e = value_of(parts, names, nullptr, chosen, &value)) return e;
    if (Error e = refer(value, where + (chosen ? "/patternProperties" : "/additionalProperties"), &made)) return e;
    if (made == false) continue;
    std::vector<std::string> lines;
    if (!names.key.empty()) lines.push_back(names.key);
    for (const bool is_excluded : {false, true}) {
      for (size_t i = 0; i < names.patterns.size(); ++i) {
        if ((chosen >> i & 1) != is_excluded) lines.push_back((is_excluded ? "!" : "") + names.patterns[i]);
      }
    }
    if (!names.listed.empty() && (!lines.empty() || has_gap)) lines.push_back("!" + literal_pattern(names.listed));
    if (lines.empty()) {
      (*out)["additionalProperties"] = made.empty() ? Schema(true) : std::move(made);
      continue;
    }
    if (lines[0][0] == '!') lines.insert(lines.begin(), length_pattern("0,"));
    const std::string pattern = joined(lines, "\n");
    const std::optional<int64_t> states = lines.size() == 1 ? 1 : automaton_states(pattern);
    if (!states) return error("pattern of names is not supported beside other names", where);
    if (*states > 0) (*out)["patternProperties"][pattern] = std::move(made);
  }
  // XGrammar allows no other properties, except in an object without any keyword.
  if (out->size() == 1) (*out)["additionalProperties"] = false;
  return {};
}

Error SchemaConverter::complete_object(Parts parts, const std::string& where, Schema* out) {
  constexpr size_t kPatterns = 4;
  Names names;
  int64_t min = 0, max = 0;
  *out = {{"type", "object"}};
  if (Error e = read_counts(parts, "minProperties", "maxProperties", &min, &max)) return e;
  if (Error e = read_names(parts, &names)) return e;
  if (names.patterns.size() > kPatterns) return error("too many patterns", where + "/patternProperties", "at most 4");
  if (Error e = limit_names(parts, &names)) return e;
  for (const std::string& name : names.required) {
    const bool is_allowed = !names.is_finite && (names.key.empty() || matches_pattern(names.key, json_escaped(name)));
    if (!contains(names.listed, name) && !is_allowed) {
      return no_value("required name does not match propertyNames", where + "/required", out);
    }
    add_once(name, &names.listed);
  }
  for (const std::string& name : names.listed) {
    if (Error e = add_property(parts, names, name, where, out)) return e;
    if (*out == false) return {};
  }
  if (names.is_finite) {
    if (out->size() == 1) (*out)["additionalProperties"] = false;
  } else if (Error e = add_others(parts, names, where, out)) {
    return e;
  }
  if (!names.required.empty()) (*out)["required"] = names.required;
  const bool is_closed =
      !out->contains("patternProperties") && out->value("additionalProperties", Schema(false)) == false;
  const auto listed = out->contains("properties") ? std::ssize((*out)["properties"]) : 0;
  const auto required = std::ssize(names.required);
  if (min > max || required > max || (is_closed && min > listed)) {
    return no_value("no object has so many properties", where, out);
  }
  // XGrammar allows a name twice, which counts as one property; one additional name differs from all required ones.
  if (min > required + 1 && !is_closed) {
    return error("not supported with arbitrary property names", where + "/minProperties");
  }
  if (min > required) (*out)["minProperties"] = min;
  if (max < kUnbounded && !(is_closed && max >= listed)) (*out)["maxProperties"] = max;
  return {};
}

// The schemas of item `i`. unevaluatedItems counts where no part describes the item.
Error SchemaConverter::item_at(Parts parts, size_t i, SchemaSet* out) {
  int count = 0;  // schemas of the item
  for (const SchemaPart& part : parts) {
    const auto [first, rest] = keywords_of(part);
    if (i < first_items(part)) {
      const std::string where = part.where + "/" + first + "/" + std::to_string(i);
      if (Error e = add((*part.schema)[first][i], where, out)) return e;
    } else if (part.schema->contains(rest)) {
      if (Error e = add((*part.schema)[rest], part.where + "/" + rest, out)) return e;
    } else {
      continue;
    }
    ++count;
  }
  for (SchemaPart& part : out->parts) part.is_outer &= count == 1;
  for (const SchemaPart& part : parts) {
    if (count > 0 || !part.schema->contains("unevaluatedItems")) continue;
    if (Error e = add((*part.schema)["unevaluatedItems"], part.where + "/unevaluatedItems", out)) return e;
  }
  return {};
}

// Lists all arrays without equal items, if there are few values: in each order, or else in the order of the values.
bool SchemaConverter::list_unique(const Schema& items, int64_t min, int64_t max, Schema* out) const {
  constexpr size_t kMaxArrays = 1200;
  const Schema& made = resolved(items);
  if (!made.is_object()) return false;  // recursive
  Schema values = made.contains("enum") ? made["enum"] : Schema::array();
  if (made.contains("const")) values = Schema::array({made["const"]});
  if (made.value("type", "") == "boolean") values = {false, true};
  if (values.empty()) return false;
  for (const bool is_ordered : {false, true}) {
    std::vector<Schema> arrays = {Schema::array()};
    for (size_t i = 0; i < arrays.size() && arrays.size() <= kMaxArrays; ++i) {
      if (std::ssize(arrays[i]) >= max) continue;
      const Schema last = arrays[i].empty() ? Schema() : arrays[i].back();
      const auto begin = is_ordered && !arrays[i].empty() ? std::ranges::find(values, last) + 1 : values.begin();
      for (auto value = begin; value != values.end(); ++value) {
        if (std::ranges::find(arrays[i], *value) != arrays[i].end()) continue;
        arrays.push_back(arrays[i]);
        arrays.back().push_back(*value);
      }
    }
    if (arrays.size() > kMaxArrays) continue;
    std::erase_if(arrays, [&](const Schema& array) { return std::ssize(array) < min; });
    *out = arrays.empty() ? Schema(false) : Schema{{"enum", arrays}};
    return true;
  }
  return false;
}

Error SchemaConverter::complete_array(Parts parts, const std::string& where, Schema* out) {
  int64_t min = 0, max = 0;
  if (Error e = read_counts(parts, "minItems", "maxItems", &min, &max)) return e;
  size_t firsts = 0;
  bool has_rest = false, is_unique = false;
  for (const SchemaPart& part : parts) {
    const auto [first, rest] = keywords_of(part);
    if (part.schema->contains(first) && !(*part.schema)[first].is_array()) {
      return error("wrong type", part.where + "/" + first, "a list of schemas");
    }
    firsts = std::max(firsts, first_items(part));
    has_rest |= part.schema->contains(rest) || part.schema->contains("unevaluatedItems");
    is_unique |= part.schema->contains("uniqueItems") && (*part.schema)["uniqueItems"] == true;
  }
  *out = {{"type", "array"}};
  for (size_t i = 0; i < firsts && static_cast<int64_t>(i) < max; ++i) {
    SchemaSet all;
    Schema item;
    if (Error e = item_at(parts, i, &all)) return e;
    if (Error e = refer(all, where + "/items", &item)) return e;
    if (item == false) {
      max = std::min(max, static_cast<int64_t>(i));
    } else {
      (*out)["prefixItems"].push_back(std::move(item));
    }
  }
  Schema rest = false;
  if ((has_rest || firsts == 0) && static_cast<int64_t>(firsts) < max) {
    SchemaSet all;
    if (Error e = item_at(parts, firsts, &all)) return e;
    if (Error e = refer(all, where + "/items", &rest)) return e;
  }
  if (rest == false) max = std::min(max, static_cast<int64_t>(firsts));
  if (min > max) return no_value("no array has so many items", where, out);
  if (is_unique && firsts == 0 && rest != false && list_unique(rest, min, max, out)) return {};
  (*out)["items"] = std::move(rest);
  if (min > 0) (*out)["minItems"] = min;
  if (max < kUnbounded && (*out)["items"] != false) (*out)["maxItems"] = max;
  return {};
}

}  // namespace pinion
