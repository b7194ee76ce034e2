// Large lists and objects of a JSON text without a Json for each of their values. json.cpp reads them with the rest.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loader/files/json.h"

namespace pinion {

// A list or an object laid flat, for those with some hundred thousand items: each would cost a Json several
// allocations.
struct FlatJson {
  enum class Kind : uint8_t { kText, kCount, kOther, kList, kObject };
  struct Node {
    Kind kind;
    uint32_t size;  // kText: bytes; kList: items; kObject: members
    uint64_t at;    // kText: begins here in `texts`; kCount: an integer from 0; kOther: index in `others`; kList,
                    // kObject: the node behind the last inside
  };
  std::vector<Node> nodes;  // in the order of the text, the whole first; members as a kText, the key, and the value
  std::string texts;
  std::vector<Json> others;  // null, booleans, numbers that are no integer from 0

  std::string_view text(size_t node) const { return std::string_view(texts).substr(nodes[node].at, nodes[node].size); }
  size_t behind(size_t node) const { return nodes[node].kind < Kind::kList ? node + 1 : nodes[node].at; }
};

// {object: {member: ...}} of a text. If the value is a list or an object, it goes to `out`, and the Json has an empty
// one in its place.
struct FlatMember {
  std::string_view object, member;
  FlatJson* out;
};

// As parse_json() of json.h; what goes to `flat` may hold keys twice, whatever the limits say.
Error parse_json(std::string_view text, const std::string& where, Json* out, JsonLimits limits,
                 std::span<const FlatMember> flat);

std::string brief(const FlatJson& json, size_t node);  // as of a Json

}  // namespace pinion
