#include "loader/config/config_parts.h"

#include "loader/files/hints.h"

namespace pinion {
namespace {

// Identifies the family; in a vision-language model the type of the language model does.
std::string model_type(JsonFields& file) {
  std::string outer = file.text("model_type", "");
  const Json* inner = file.find("text_config");
  return inner && inner->is_object() ? JsonFields{*inner, file.where}.text("model_type", outer) : outer;
}

// "LlamaForCausalLM" -> "Llama": the suffix is the same in all names and would dominate the distance.
std::string_view stem(std::string_view name) { return name.substr(0, name.find("For")); }

// Up to three names, nearest first, whose stems need edits in at most half of the letters.
std::vector<std::string> similar_names(std::string_view name, const std::vector<std::string>& names) {
  constexpr size_t kMaxNames = 3, kMaxLetters = 64;  // a file may hold any name
  std::vector<std::pair<size_t, std::string>> near;
  if (stem(name).size() > kMaxLetters) return {};
  for (const std::string& candidate : names) {
    const size_t distance = edit_distance(stem(name), stem(candidate));
    if (2 * distance <= std::max(stem(name).size(), stem(candidate).size())) near.emplace_back(distance, candidate);
  }
  std::ranges::sort(near);
  near.resize(std::min(near.size(), kMaxNames));
  std::vector<std::string> found;
  for (const auto& [distance, candidate] : near) found.push_back(candidate);
  return found;
}

// A switch that is off changes nothing.
bool is_off(const Json& value) { return value == false || (value.is_structured() && value.empty()); }

// Checks the `fixed` fields, which may have one value only; adds the `ignored` ones, which have no effect on logits.
void check_lists(JsonFields& lists, JsonFields& file, std::vector<std::string>* ignored) {
  for (const auto& [name, expected] : lists.fields("fixed").object.items()) {
    const Json* value = file.find(name);
    if (value && *value != expected) file.fail(name, "not supported", brief(expected), brief(*value));
  }
  for (const std::string& name : lists.texts("ignored")) ignored->push_back(name);
}

// Fields that transformers reads for the family: a model that sets one may compute something else without it.
Error read_reference_fields(const std::string& family, std::vector<std::string>* out) {
  Json json;
  if (Error e = parse_json(config_fields_text(), "configs/config_fields.json", &json)) return e;
  JsonFields lists{json, "configs/config_fields.json"};
  for (const std::string& name : {std::string("all"), family}) {
    if (!lists.has(name)) lists.fail(name, "missing field", "made by tools/reference/config_fields.py");
    for (const std::string& field : lists.texts(name)) out->push_back(field);
  }
  return lists.error;
}

// Merges a description into that of the family it extends. `depth` ends circles.
Error inherit(std::span<Family> families, Family* family, int depth = 0) {
  constexpr const char* kExtends = "extends";
  constexpr int kMaxDepth = 8;
  JsonFields fields{family->description, family->path()};
  const std::string name = fields.text(kExtends, "");
  if (fields.error || name.empty()) return fields.error;
  const auto parent = std::ranges::find(families, name, &Family::name);
  if (parent == families.end() || depth == kMaxDepth) {
    return error(depth == kMaxDepth ? "families extend each other" : "no such family", fields.where + ": " + kExtends,
                 {}, brief(name));
  }
  if (Error e = inherit(families, &*parent, depth + 1)) return e;
  Json merged = parent->description;
  // Lists about the files of one family; a field that another family may ignore could matter here.
  for (const char* key :
       {"architectures", "model_types", "ignored", "skipped_tensors", "renamed_tensors", "skipped_endings"}) {
    merged.erase(key);
  }
  merged.merge_patch(family->description);
  merged.erase(kExtends);
  family->description = std::move(merged);
  return {};
}

}  // namespace

Error read_families(std::span<const FamilyText> texts, std::vector<Family>* out) {
  for (const FamilyText& text : texts) {
    Family& family = out->emplace_back(std::string(text.name), Json());
    if (Error e = parse_json(text.json, family.path(), &family.description)) return e;
  }
  for (Family& family : *out) {
    if (Error e = inherit(*out, &family)) return e;
  }
  return {};
}

bool read_switch(JsonFields& family, std::string_view name, JsonFields& file) {
  const Json* value = family.find(name);
  return value && value->is_string() ? file.boolean(value->get<std::string>()) : family.boolean(name);
}

std::string with_head(const std::string& architecture) {
  for (std::string_view ending : {"TextModel", "Model", "TextForSequenceClassification", "ForSequenceClassification"}) {
    if (!architecture.ends_with(ending) || architecture.ends_with("HeadModel")) continue;
    return architecture.substr(0, architecture.size() - ending.size()) + "ForCausalLM";
  }
  return architecture;
}

Error find_family(const std::vector<Family>& families, JsonFields& file, const Family** out,
                  std::string* architecture) {
  std::vector<std::string> names = file.texts("architectures");
  const std::string type = model_type(file);
  const bool by_type = names.empty();
  const std::string given = by_type ? type : joined(names);
  std::ranges::transform(names, names.begin(), with_head);
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
      // Without a type, the family that lists the architecture first; Llama's is also that of some other types.
      const bool is_own = by_type || !type.empty() || *match == architectures[0];
      if (is_own || !*out) *out = &family, *architecture = by_type ? architectures[0] : *match;
      if (is_own) return file.error;
      continue;
    }
    other_types.insert(other_types.end(), types.begin(), types.end());
  }
  if (*out) return file.error;
  if (!other_types.empty()) file.fail("model_type", "does not fit " + given, joined(other_types), brief(type));
  const std::string near = joined(similar_names(names[0], supported));
  file.fail(by_type ? "model_type" : "architectures", "unknown architecture",
            "one listed in README.md" + (near.empty() ? "" : ", perhaps " + near), brief(given));
  return file.error;
}

Error check_other_fields(JsonFields& file, JsonFields& family, ModelConfig* out) {
  Json common;
  if (Error e = parse_json(common_fields_text(), "configs/common_fields.json", &common)) return e;
  JsonFields lists{common, "configs/common_fields.json"};
  std::vector<std::string> without_effect, reference, unsupported;
  check_lists(lists, file, &without_effect);
  check_lists(family, file, &without_effect);
  if (lists.error) return lists.error;
  if (Error e = read_reference_fields(out->family, &reference)) return e;
  for (const std::string& name : file.unread()) {
    if (is_off(file.object[name]) || std::ranges::find(without_effect, name) != without_effect.end()) continue;
    const bool has_effect = std::ranges::find(reference, name) != reference.end();
    (has_effect ? unsupported : out->ignored_fields).push_back(has_effect ? brief(name) : name);
  }
  if (file.error || unsupported.empty()) return file.error;
  return error("fields not supported for family " + out->family, file.where, {}, joined(unsupported));
}

}  // namespace pinion
