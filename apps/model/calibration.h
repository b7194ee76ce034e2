// The texts that calibrate quantised weights: by default the model's own, which it continues from the beginnings in
// configs/beginnings.json.
#pragma once

#include "apps/model/run_options.h"
#include "engine/model/load_options.h"
#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

// Sets load->calibration by --calibrate. tokenizer: that of the folder; null: loaded here, if there is one.
Error read_calibration(const RunOptions& run, const Tokenizer* tokenizer, LoadOptions* load);

}  // namespace pinion
