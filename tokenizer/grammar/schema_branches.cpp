#include <algorithm>
#include <nlohmann/json.hpp>

#include "tokenizer/grammar/sources.h"

namespace pinion {
namespace {

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
    const Schema none = Schema::array(), names = a.value("required", none), others = b.value("required", none);
    return std::ranges::any_of(names, [&](const Schema& name) {
      const auto& text = name.get_ref<const std::string&>();
      return std::ranges::find(others, name) != others.end() &&
             are_disjoint(a["properties"][text], b["properties"][text]);
    });
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
