// Which layers keep a recurrent state instead of attending, and its shape. Part of reading a config.json.
#pragma once

#include "loader/config/json.h"
#include "loader/config/model_config.h"

namespace pinion {

void read_delta(JsonFields& family, JsonFields& file, ModelConfig* out);

}  // namespace pinion
