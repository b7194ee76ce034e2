// The part of config.json that describes a mixture of experts.
#pragma once

#include "loader/json.h"
#include "loader/model_config.h"

namespace pinion {

// Reads it as the family's description says; out's layers are known. A family without experts has nothing to read.
void read_experts(JsonFields& family, JsonFields& file, ModelConfig* out);

}  // namespace pinion
