#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tokenizer/grammar/sources.h"

namespace pinion {
namespace {

// Also the type names of nlohmann/json.
constexpr std::string_view kTypes[] = {"null", "boolean", "number", "string", "array", "object"};

// A set of kTypes, one bit each. Integers count as numbers.
using Types = unsigned;
constexpr Types kAnyType = (1u << std::size(kTypes)) - 1;

Types type_named(std::string_view name) {
  const auto found = std::ranges::find(kTypes, name == "integer" ? "number" : name);
  return found == std::end(kTypes) ? kAnyType : Types{1} << (found - std::begin(kTypes));
}

Types types_named(const Schema& type) {
  if (type.is_string()) return type_named(type.get_ref<const std::string&>());
  if (!type.is_array()) return kAnyType;
  Types all = 0;
  for (const Schema& name : type) all |= name.is_string() ? type_named(name.get_ref<const std::string&>()) : kAnyType;
  return all;
}

class DisjointCheck {
 public:
  explicit DisjointCheck(const ResolveReference& resolve) : resolve_(resolve) {}

  bool are_disjoint(const Schema& a, const Schema& b) {
    constexpr int kMaxSteps = 20'000, kMaxDepth = 64;  // references may form cycles
    if (++steps_ > kMaxSteps || depth_ >= kMaxDepth) return false;
    ++depth_;
    const bool found = compare(a, b);
    --depth_;
    return found;
  }

 private:
  bool compare(const Schema& a, const Schema& b) {
    const Schema *left = resolve_(a), *right = resolve_(b);
    if (!left || !right) return false;
    if (*left == false || *right == false) return true;
    if (!left->is_object() || !right->is_object()) return false;
    for (const char* name : {"anyOf", "oneOf"}) {
      if (left->contains(name)) return all_disjoint((*left)[name], *right);
      if (right->contains(name)) return all_disjoint((*right)[name], *left);
    }
    if (has_values(*left)) return all_values_differ(*left, *right);
    if (has_values(*right)) return all_values_differ(*right, *left);
    if ((types_of(*left) & types_of(*right)) == 0) return true;
    return has_object_type(*left) && has_object_type(*right) && required_differ(*left, *right);
  }

  static bool has_values(const Schema& schema) {
    return schema.contains("const") || (schema.contains("enum") && schema["enum"].is_array());
  }

  static Schema values_of(const Schema& schema) {
    return schema.contains("const") ? Schema::array({schema["const"]}) : schema["enum"];
  }

  static Types types_of(const Schema& schema) {
    return schema.contains("type") && !schema.contains("$comment") ? types_named(schema["type"]) : kAnyType;
  }

  static bool has_object_type(const Schema& schema) { return schema.contains("type") && schema["type"] == "object"; }

  bool all_disjoint(const Schema& branches, const Schema& other) {
    return std::ranges::all_of(branches, [&](const Schema& branch) { return are_disjoint(branch, other); });
  }

  // Two objects are assumed equal, and two lists: their comparison would depend on the order of names in objects.
  static bool may_be_equal(const Schema& a, const Schema& b) {
    return a.is_structured() ? std::string_view(a.type_name()) == b.type_name() : a == b;
  }

  static bool all_values_differ(const Schema& schema, const Schema& other) {
    const Schema values = values_of(schema);
    if (!has_values(other)) {
      return std::ranges::all_of(
          values, [&](const Schema& value) { return !(type_named(value.type_name()) & types_of(other)); });
    }
    const Schema others = values_of(other);
    return std::ranges::none_of(values, [&](const Schema& value) {
      return std::ranges::any_of(others, [&](const Schema& second) { return may_be_equal(value, second); });
    });
  }

  static bool is_required(const Schema& schema, const Schema& name) {
    if (!schema.contains("required") || !schema["required"].is_array()) return false;
    return std::ranges::find(schema["required"], name) != schema["required"].end();
  }

  // True if both require some property for which no value matches both schemas.
  bool required_differ(const Schema& a, const Schema& b) {
    const auto has_properties = [](const Schema& schema) {
      return schema.contains("properties") && schema["properties"].is_object();
    };
    if (!has_properties(a) || !has_properties(b)) return false;
    for (const auto& [name, schema] : a["properties"].items()) {
      const auto other = b["properties"].find(name);
      if (other == b["properties"].end() || !is_required(a, name) || !is_required(b, name)) continue;
      if (are_disjoint(schema, *other)) return true;
    }
    return false;
  }

  const ResolveReference& resolve_;
  int steps_ = 0, depth_ = 0;
};

}  // namespace

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
