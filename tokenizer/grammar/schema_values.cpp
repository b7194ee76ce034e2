// References of schemas, values of enum and const checked against the keywords beside them, and disjoint branches.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/base/text.h"
#include "tokenizer/answers/json_scanner.h"
#include "tokenizer/grammar/hooks.h"
#include "tokenizer/grammar/schema_converter.h"
#include "tokenizer/tokens/unicode.h"

namespace pinion {
namespace {

// A token of a JSON pointer in a URI fragment: %20 is a blank, ~1 is / and ~0 is ~ (RFC 6901, RFC 3986).
std::string unescaped_token(std::string_view token) {
  std::string text;
  for (size_t i = 0; i < token.size(); ++i) {
    const std::optional<uint32_t> byte = token[i] == '%' ? parse_hex(token.substr(i + 1), 2) : std::nullopt;
    text += byte ? static_cast<char>(*byte) : token[i];
    i += byte ? 2 : 0;
  }
  return replaced(replaced(text, "~1", "/"), "~0", "~");
}

// The schema that `reference` names by its $id or $anchor.
const Schema* find_named(const Schema& schema, std::string_view reference) {
  const auto is_named = [&](const char* keyword, std::string_view name) {
    const auto found = schema.find(keyword);
    return found != schema.end() && found->is_string() && found->get_ref<const std::string&>() == name;
  };
  if (schema.is_object()) {
    if (reference[0] == '#' && is_named("$anchor", reference.substr(1))) return &schema;
    if (is_named("$id", reference) || is_named("id", reference)) return &schema;
  }
  if (!schema.is_structured()) return nullptr;
  for (const Schema& child : schema) {
    if (const Schema* found = find_named(child, reference)) return found;
  }
  return nullptr;
}

// True if a value fits the keywords about numbers or strings. No array or object fits keywords about them.
bool fits_limits(const Schema& value, const Schema& schema) {
  const auto limit = [&](const char* name) { return schema.contains(name) ? schema[name] : Schema(); };
  if (value.is_structured()) return !has_assertion(schema, value.type_name());
  if (value.is_number()) {
    const Schema low = limit("minimum"), high = limit("maximum"), above = limit("exclusiveMinimum"),
                 below = limit("exclusiveMaximum"), step = limit("multipleOf");
    if (low.is_number() && (above == true ? value <= low : value < low)) return false;
    if (high.is_number() && (below == true ? value >= high : value > high)) return false;
    if ((above.is_number() && value <= above) || (below.is_number() && value >= below)) return false;
    return !step.is_number() || std::fmod(value.get<double>(), step.get<double>()) == 0;
  }
  if (!value.is_string()) return true;
  const auto& text = value.get_ref<const std::string&>();
  const size_t length = char_count(text);
  if (limit("minLength").is_number() && length < limit("minLength")) return false;
  if (limit("maxLength").is_number() && length > limit("maxLength")) return false;
  const Schema pattern = limit("pattern");
  std::string escaped;
  return !pattern.is_string() || escape_pattern(pattern.get_ref<const std::string&>(), "", &escaped) ||
         matches_pattern(escaped, json_escaped(text));
}

bool is_listed(const Schema& value, const Schema& schema) {
  if (schema.contains("const") && value != schema["const"]) return false;
  if (!schema.contains("enum") || !schema["enum"].is_array()) return true;
  return std::ranges::find(schema["enum"], value) != schema["enum"].end();
}

class DisjointCheck {
 public:
  explicit DisjointCheck(const ResolveReference& resolve) : resolve_(resolve) {}

  bool are_disjoint(const Schema& a, const Schema& b) {
    constexpr int kMaxSteps = 100'000, kMaxDepth = 64;  // references may form cycles
    if (++steps_ > kMaxSteps || depth_ >= kMaxDepth) return false;
    ++depth_;
    const bool found = compare(resolve_(a), resolve_(b));
    --depth_;
    return found;
  }

 private:
  bool compare(const Schema& a, const Schema& b) {
    for (const auto& [one, other] : {std::pair(&a, &b), {&b, &a}}) {
      if (one->is_object() && one->contains("anyOf")) {
        return std::ranges::all_of((*one)["anyOf"], [&](const Schema& branch) { return are_disjoint(branch, *other); });
      }
    }
    const Schema values = values_of(a), others = values_of(b);
    if (!values.empty() && !others.empty()) {
      return std::ranges::none_of(values, [&](const Schema& value) {
        return std::ranges::any_of(others, [&](const Schema& other) { return may_be_equal(value, other); });
      });
    }
    if (!values.empty() || !others.empty()) {
      const std::string type = type_of(values.empty() ? a : b);
      return std::ranges::all_of(values.empty() ? others : values, [&](const Schema& value) {
        return !type.empty() && type != value.type_name();  // nlohmann/json has the names of JSON schema
      });
    }
    if (!type_of(a).empty() && !type_of(b).empty() && type_of(a) != type_of(b)) return true;
    const auto is_object = [](const Schema& one) { return one.is_object() && one.value("type", "") == "object"; };
    return is_object(a) && is_object(b) && required_differ(a, b);
  }

  static Schema values_of(const Schema& schema) {
    if (!schema.is_object()) return Schema::array();
    return schema.contains("const") ? Schema::array({schema["const"]}) : schema.value("enum", Schema::array());
  }

  // Empty: any. Integers count as numbers.
  static std::string type_of(const Schema& schema) {
    if (!schema.is_object() || schema.contains("$comment")) return {};
    const std::string type = schema.value("type", "");
    return type == "integer" ? "number" : type;
  }

  // Two objects are assumed equal, and two lists: their comparison would depend on the order of names in objects.
  static bool may_be_equal(const Schema& a, const Schema& b) {
    return a.is_structured() ? std::string_view(a.type_name()) == b.type_name() : a == b;
  }

  // True if both require some property for which no value matches both schemas.
  bool required_differ(const Schema& a, const Schema& b) {
    const Schema none = Schema::array(), names = a.value("required", none), rest = b.value("required", none);
    return std::ranges::any_of(names, [&](const Schema& name) {
      const auto& text = name.get_ref<const std::string&>();
      return std::ranges::find(rest, name) != rest.end() && are_disjoint(a["properties"][text], b["properties"][text]);
    });
  }

  const ResolveReference& resolve_;
  int steps_ = 0, depth_ = 0;
};

}  // namespace

const Schema* find_reference(const Schema& root, std::string_view reference) {
  if (root.is_object() && root.contains("$id") && root["$id"].is_string()) {
    const auto& id = root["$id"].get_ref<const std::string&>();
    if (reference.starts_with(id)) reference.remove_prefix(id.size());
  }
  if (reference.empty() || reference == "#") return &root;
  if (!reference.starts_with("#/")) return find_named(root, reference);
  const Schema* at = &root;
  for (const std::string_view token : split(reference.substr(2), '/')) {
    const std::string name = unescaped_token(token);
    const bool is_index = !name.empty() && name.size() < 8 && name.find_first_not_of("0123456789") == name.npos;
    if (at->is_object() && at->contains(name)) {
      at = &(*at)[name];
    } else if (is_index && at->is_array() && std::stoul(name) < at->size()) {
      at = &(*at)[std::stoul(name)];
    } else {
      return nullptr;
    }
  }
  return at;
}

bool is_of_type(const Schema& value, const Schema& type) {
  if (type == "integer" && value.is_number_float()) return std::trunc(value.get<double>()) == value.get<double>();
  return type == "integer" ? value.is_number()
                           : type == value.type_name();  // nlohmann/json has the names of JSON schema
}

bool matches_schema(const Schema& root, const Schema& value, const Schema& schema, int depth) {
  constexpr int kMaxDepth = 100;
  if (!schema.is_object()) return schema != false;
  const auto matches = [&](const Schema& other) { return matches_schema(root, value, other, depth + 1); };
  if (depth > kMaxDepth || !is_listed(value, schema) || !fits_limits(value, schema)) return false;
  if (schema.contains("type")) {
    const Schema types = schema["type"].is_array() ? schema["type"] : Schema::array({schema["type"]});
    if (std::ranges::none_of(types, [&](const Schema& type) { return is_of_type(value, type); })) return false;
  }
  if (schema.contains("$ref") && schema["$ref"].is_string()) {
    const Schema* target = find_reference(root, schema["$ref"].get_ref<const std::string&>());
    if (!target || !matches(*target)) return false;
  }
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    if (!schema.contains(keyword) || !schema[keyword].is_array()) continue;
    const auto count = std::ranges::count_if(schema[keyword], matches), all = std::ssize(schema[keyword]);
    if (keyword[1] == 'l' ? count < all : keyword[0] == 'o' ? count != 1 : count == 0) return false;
  }
  if (schema.contains("not") && matches(schema["not"])) return false;
  if (!schema.contains("if")) return true;
  const char* branch = matches(schema["if"]) ? "then" : "else";
  return !schema.contains(branch) || matches(schema[branch]);
}

bool are_disjoint(const Schema& branches, const ResolveReference& resolve) {
  DisjointCheck check(resolve);
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (!check.are_disjoint(branches[i], branches[k])) return false;
    }
  }
  return true;
}

}  // namespace pinion
