#include "loader/config/config_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "configs/families.h"

namespace pinion {
namespace {

// A switch that is off asks for nothing.
bool is_off(const Json& value) { return value == false || (value.is_structured() && value.empty()); }

// Fields that must have one value; those that no arithmetic depends on are added to `ignored`.
void check_lists(JsonFields& lists, JsonFields& file, std::vector<std::string>* ignored) {
  for (const auto& [name, wanted] : lists.fields("fixed").object.items()) {
    const Json* value = file.find(name);
    if (value && *value != wanted) file.fail(name, "not supported", brief(wanted), brief(*value));
  }
  const std::vector<std::string> more = lists.texts("ignored");
  ignored->insert(ignored->end(), more.begin(), more.end());
}

// Those that transformers reads for the family: a model that has one may be another without it.
Error read_reference_fields(const std::string& family, std::vector<std::string>* out) {
  Json json;
  if (Error e = parse_json(config_fields_text(), "configs/config_fields.json", &json)) return e;
  JsonFields lists{json, "configs/config_fields.json"};
  for (const std::string& name : {std::string("all"), family}) {
    if (!lists.has(name)) lists.fail(name, "missing field", "made by tools/reference/config_fields.py");
    const std::vector<std::string> fields = lists.texts(name);
    out->insert(out->end(), fields.begin(), fields.end());
  }
  return lists.error;
}

}  // namespace

Error check_other_fields(JsonFields& file, JsonFields& family, ModelConfig* out) {
  Json common;
  if (Error e = parse_json(common_fields_text(), "configs/common_fields.json", &common)) return e;
  JsonFields lists{common, "configs/common_fields.json"};
  std::vector<std::string> harmless, reference, unsupported;
  check_lists(lists, file, &harmless);
  check_lists(family, file, &harmless);
  if (lists.error) return lists.error;
  if (Error e = read_reference_fields(out->family, &reference)) return e;
  for (const std::string& name : file.unread()) {
    if (is_off(file.object[name]) || std::ranges::find(harmless, name) != harmless.end()) continue;
    if (std::ranges::find(reference, name) != reference.end()) {
      unsupported.push_back(brief(name));
    } else {
      out->ignored_fields.push_back(name);
    }
  }
  if (file.error || unsupported.empty()) return file.error;
  return error("fields not supported for family " + out->family, file.where, {}, joined(unsupported));
}

}  // namespace pinion
