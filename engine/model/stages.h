// The stages of a pass, which is what profiles, traces and the list of a layer's tensors speak of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pinion {

// In the order of the pass. An input is what a projection reads: merged or taken as it is, then quantised or packed.
// The router chooses experts and, where there are several tokens, gathers those of each; other layers have none.
enum class Stage : uint8_t {
  embed,
  attention_norm,
  qkv,
  attention,
  o_input,
  o,
  mlp_norm,
  router,
  gate_up,
  down_input,
  down,
  final_norm,
  head,
};

constexpr std::array<std::string_view, 13> kStageNames = {
    "embed",  "attention_norm", "qkv",        "attention", "o_input",    "o",   "mlp_norm",
    "router", "gate_up",        "down_input", "down",      "final_norm", "head"};
constexpr size_t kStages = kStageNames.size();

// What every worker does for itself when there is one token: time that more workers do not shorten.
constexpr std::array<bool, kStages> kRepeatedForOneToken = {false, true,  false, false, true, false, true,
                                                            false, false, true,  false, true, false};

}  // namespace pinion
