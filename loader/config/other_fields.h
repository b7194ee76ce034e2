// Fields of a config.json that nothing reads: those that the reference reads are refused, all others ignored.
#pragma once

#include "loader/config/families.h"
#include "loader/config/json.h"
#include "loader/config/model_config.h"

namespace pinion {

// To be called when everything else has read the file, which holds the family's defaults too. Also checks the fields
// that must have one value. Gives ignored_fields.
Error check_other_fields(JsonFields& file, JsonFields& family, ModelConfig* out);

}  // namespace pinion
