// The data of configs/ that is built into the program, as the files' own text.
#pragma once

#include <span>
#include <string_view>

namespace pinion {

// A model family: one file of configs/models. loader/model_config.cpp reads it.
struct FamilyText {
  std::string_view name;  // the file's name without .json
  std::string_view json;
};

std::span<const FamilyText> family_texts();

// configs/common_fields.json: fields of config.json that no family's arithmetic depends on (ignored), and those that
// may have one value only (fixed).
std::string_view common_fields_text();

}  // namespace pinion
