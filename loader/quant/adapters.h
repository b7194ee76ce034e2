// LoRA adapters, low-rank changes of weights, in PEFT's folders: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/pack/pack.h"

namespace pinion {

// Adds an adapter's tensors to a checkpoint whose tensors are not selected and renamed yet: MODULE.lora_A.INDEX and
// MODULE.lora_B.INDEX. Tensors of modules_to_save replace the checkpoint's. text: "DIR" or "DIR=FACTOR".
Error add_adapter(const std::string& text, int64_t index, Checkpoint* checkpoint);

// Finds all adapters' updates of a module with weights [n, k]. Appends the names of their tensors.
Error bind_updates(const Checkpoint& checkpoint, const std::string& module, int64_t n, int64_t k,
                   std::vector<LowRankUpdate>* out, std::vector<std::string>* names);

}  // namespace pinion
