// Arrays: the items of several schemas by their position.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "loader/files/json.h"
#include "tokenizer/grammar/schema_converter.h"

namespace pinion {
namespace {

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

// The schemas of item `i`. unevaluatedItems counts where no part describes the item.
Error SchemaConverter::item_at(std::span<const SchemaPart> parts, size_t i, SchemaSet* out) {
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

Error SchemaConverter::complete_array(std::span<const SchemaPart> parts, const std::string& where, Schema* out) {
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
