#include "loader/config/config_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "configs/families.h"
#include "loader/files/nearest.h"

namespace pinion {
namespace {

// The model_type that tells families apart: beside a vision model that of the language model.
std::string model_type(JsonFields& file) {
  std::string outer = file.text("model_type", "");
  const Json* inner = file.find("text_config");
  return inner && inner->is_object() ? JsonFields{*inner, file.where}.text("model_type", outer) : outer;
}

// "LlamaForCausalLM" -> "Llama": what follows is alike in all and would decide what is near.
std::string_view stem(std::string_view name) { return name.substr(0, name.find("For")); }

// Up to three of the names whose stems are at least half like that of `name`, the nearest first.
std::vector<std::string> nearest(std::string_view name, const std::vector<std::string>& names) {
  constexpr size_t kMost = 3, kLongest = 64;  // a file may hold any name
  std::vector<std::pair<size_t, std::string>> near;
  if (stem(name).size() > kLongest) return {};
  for (const std::string& other : names) {
    const size_t distance = edit_distance(stem(name), stem(other));
    if (2 * distance <= std::max(stem(name).size(), stem(other).size())) near.emplace_back(distance, other);
  }
  std::ranges::sort(near);
  near.resize(std::min(near.size(), kMost));
  std::vector<std::string> found;
  for (const auto& [distance, other] : near) found.push_back(other);
  return found;
}

}  // namespace

Error read_families(std::vector<Family>* out) {
  for (const FamilyText& text : family_texts()) {
    const std::string name(text.name);
    if (Error e =
            parse_json(text.json, "configs/models/" + name + ".json", &out->emplace_back(name, Json()).description)) {
      return e;
    }
  }
  return {};
}

bool read_switch(JsonFields& family, std::string_view name, JsonFields& file) {
  const Json* value = family.find(name);
  return value && value->is_string() ? file.boolean(value->get<std::string>()) : family.boolean(name);
}

Error find_family(const std::vector<Family>& families, JsonFields& file, const Family** out,
                  std::string* architecture) {
  std::vector<std::string> names = file.texts("architectures");
  const std::string type = model_type(file);
  const bool by_type = names.empty();
  if (by_type) names = {type};
  std::vector<std::string> supported, other_types;
  for (const Family& family : families) {
    JsonFields fields{family.description, family.name};
    const std::vector<std::string> types = fields.texts("model_types");
    const std::vector<std::string> architectures = fields.texts("architectures");
    for (const std::string& name : by_type ? types : architectures) {
      if (std::ranges::find(supported, name) == supported.end()) supported.push_back(name);
    }
    const auto match = std::ranges::find_first_of(names, by_type ? types : architectures);
    if (match == names.end()) continue;
    if (type.empty() || std::ranges::find(types, type) != types.end()) {
      *out = &family;
      *architecture = by_type ? architectures[0] : *match;
      return file.error;
    }
    other_types.insert(other_types.end(), types.begin(), types.end());
  }
  if (!other_types.empty()) {
    file.fail("model_type", "does not fit " + joined(names), joined(other_types), brief(type));
  }
  const std::string near = joined(nearest(names[0], supported));
  file.fail(by_type ? "model_type" : "architectures", "unknown architecture",
            "one that README.md lists" + (near.empty() ? "" : ", perhaps " + near), brief(joined(names)));
  return file.error;
}

}  // namespace pinion
