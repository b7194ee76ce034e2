// Whether the branches of a JSON schema's oneOf exclude each other: then a grammar of any of them is one of one of
// them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

namespace pinion {

// What a schema's $ref leads to, or the schema itself; null: nowhere.
using FollowReferences = std::function<const nlohmann::ordered_json*(const nlohmann::ordered_json& schema)>;

// No value fits two of the branches (a list of schemas), as far as their types, the values that they list and the
// properties that they require show. Where they show nothing it is false.
bool exclude_each_other(const nlohmann::ordered_json& branches, const FollowReferences& follow);

}  // namespace pinion
