// The rotations of a config.json: rope_theta beside rope_scaling, or all of it in rope_parameters, both as published.
#pragma once

#include "loader/config/json.h"
#include "loader/config/model_config.h"

namespace pinion {

// Fills out->ropes; the head's and the context's sizes are there already. An unknown kind and an unknown field are
// errors in `file`. The family's description says what else it has: partial_rotary, ntk_alpha, query_scaling,
// ropes_by_layer_type.
void read_ropes(JsonFields& family, JsonFields& file, ModelConfig* out);

}  // namespace pinion
