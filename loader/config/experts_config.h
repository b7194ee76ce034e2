// The part of config.json that describes a mixture of experts.
#pragma once

#include "loader/config/json.h"
#include "loader/config/model_config.h"

namespace pinion {

// Reads it as the family's description says; out's layers are known. A family without experts has nothing to read.
void read_experts(JsonFields& family, JsonFields& file, ModelConfig* out);

// Whether a quantization_config is one of experts in 4 bits, in a family where these are read.
bool has_mxfp4_experts(JsonFields& family, JsonFields& quantization);

// That quantization_config. What it leaves as it is must not be experts.
Error read_mxfp4_experts(JsonFields& quantization, ExpertsConfig* out);

}  // namespace pinion
