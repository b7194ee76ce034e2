#include "tokenizer/grammar/schema_branches.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

namespace pinion {
namespace {

using Schema = nlohmann::ordered_json;

// nlohmann/json's names are JSON schema's, but for integers.
constexpr std::string_view kTypes[] = {"null", "boolean", "number", "string", "array", "object"};

// Of kTypes, one bit each. Integers are numbers.
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
  for (const Schema& one : type) all |= one.is_string() ? type_named(one.get_ref<const std::string&>()) : kAnyType;
  return all;
}

class Comparison {
 public:
  explicit Comparison(const FollowReferences& follow) : follow_(follow) {}

  bool excludes(const Schema& a, const Schema& b) {
    constexpr int kMostSteps = 20'000, kMostDepth = 64;  // references may lead in circles
    if (++steps_ > kMostSteps || depth_ >= kMostDepth) return false;
    ++depth_;
    const bool found = follow_and_compare(a, b);
    --depth_;
    return found;
  }

 private:
  bool follow_and_compare(const Schema& a, const Schema& b) {
    const Schema *left = follow_(a), *right = follow_(b);
    if (!left || !right) return false;
    if (*left == false || *right == false) return true;
    if (!left->is_object() || !right->is_object()) return false;
    for (const char* name : {"anyOf", "oneOf"}) {
      if (left->contains(name)) return all_exclude((*left)[name], *right);
      if (right->contains(name)) return all_exclude((*right)[name], *left);
    }
    if (has_values(*left)) return all_values_differ(*left, *right);
    if (has_values(*right)) return all_values_differ(*right, *left);
    if ((types_of(*left) & types_of(*right)) == 0) return true;
    return writes_objects(*left) && writes_objects(*right) && required_differ(*left, *right);
  }

  static bool has_values(const Schema& schema) {
    return schema.contains("const") || (schema.contains("enum") && schema["enum"].is_array());
  }

  static Schema values_of(const Schema& schema) {
    return schema.contains("const") ? Schema::array({schema["const"]}) : schema["enum"];
  }

  static Types types_of(const Schema& schema) {
    return schema.contains("type") ? types_named(schema["type"]) : kAnyType;
  }

  // A text of a schema without a type is one of the type that its assertions are about.
  static bool writes_objects(const Schema& schema) {
    return schema.contains("type") ? types_of(schema) == type_named("object") : schema.contains("properties");
  }

  bool all_exclude(const Schema& branches, const Schema& other) {
    return std::ranges::all_of(branches, [&](const Schema& branch) { return excludes(branch, other); });
  }

  // Lists and objects may be equal whatever the order of their names is: enough that both are some.
  static bool may_be_equal(const Schema& a, const Schema& b) {
    return a.is_structured() ? std::string_view(a.type_name()) == b.type_name() : a == b;
  }

  static bool all_values_differ(const Schema& schema, const Schema& other) {
    const Schema values = values_of(schema);
    if (!has_values(other)) {
      return std::ranges::all_of(values,
                                 [&](const Schema& one) { return !(type_named(one.type_name()) & types_of(other)); });
    }
    const Schema others = values_of(other);
    return std::ranges::none_of(values, [&](const Schema& one) {
      return std::ranges::any_of(others, [&](const Schema& of_other) { return may_be_equal(one, of_other); });
    });
  }

  static bool is_required(const Schema& schema, const Schema& name) {
    if (!schema.contains("required") || !schema["required"].is_array()) return false;
    return std::ranges::find(schema["required"], name) != schema["required"].end();
  }

  // Both must have a property of this name, and no value of it fits both.
  bool required_differ(const Schema& a, const Schema& b) {
    const auto has_properties = [](const Schema& schema) {
      return schema.contains("properties") && schema["properties"].is_object();
    };
    if (!has_properties(a) || !has_properties(b)) return false;
    for (const auto& [name, schema] : a["properties"].items()) {
      const auto other = b["properties"].find(name);
      if (other == b["properties"].end() || !is_required(a, name) || !is_required(b, name)) continue;
      if (excludes(schema, *other)) return true;
    }
    return false;
  }

  const FollowReferences& follow_;
  int steps_ = 0, depth_ = 0;
};

}  // namespace

bool exclude_each_other(const nlohmann::ordered_json& branches, const FollowReferences& follow) {
  Comparison comparison(follow);
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (!comparison.excludes(branches[i], branches[k])) return false;
    }
  }
  return true;
}

}  // namespace pinion
