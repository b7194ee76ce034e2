// Which description of configs/models a config.json belongs to. What stands in one: configs/families.h.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loader/config/json.h"

namespace pinion {

// A description with the program's own name for it.
struct Family {
  std::string name;
  Json description;
};

Error read_families(std::vector<Family>* out);

// The family that lists one of the file's architectures and its model_type, or, in a file without any architecture,
// the latter alone. The error for one that no family lists names those that are spelt most like it.
Error find_family(const std::vector<Family>& families, JsonFields& file, const Family** out, std::string* architecture);

}  // namespace pinion
