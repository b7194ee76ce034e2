// The stages of a pass, which is what profiles, traces and the list of a layer's tensors speak of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace pinion {

// In the order of the pass. Latents are what queries, or keys and values, are made of where that is not the stream
// (DeepSeek's attention). A layer that attends has o, one with a recurrent state has state_out, some have both. An
// input is what a projection reads: merged or taken as it is, then quantised or packed. The router chooses experts and,
// where there are several tokens, gathers those of each; other layers have none. Streams are what AltUp makes of the
// others; laurel, layer_gate and layer_out are small products beside the branches (Gemma 3n).
enum class Stage : uint8_t {
  embed,
  streams,
  attention_norm,
  qkv,
  q_latent,
  kv_latent,
  laurel,
  attention,
  o_input,
  o,
  state_out,
  mlp_norm,
  router,
  gate_up,
  down_input,
  down,
  layer_gate,
  layer_out,
  final_norm,
  head,
};

struct StageTraits {
  std::string_view name;
  bool is_repeated = false;  // for one token every worker does it for itself: more workers do not shorten it
};
constexpr StageTraits kStageTraits[] = {
    {"embed"},
    {"streams"},
    {"attention_norm", true},
    {"qkv"},
    {"q_latent"},
    {"kv_latent"},
    {"laurel"},
    {"attention"},
    {"o_input", true},
    {"o"},
    {"state_out"},
    {"mlp_norm", true},
    {"router"},
    {"gate_up"},
    {"down_input", true},
    {"down"},
    {"layer_gate"},
    {"layer_out"},
    {"final_norm", true},
    {"head"},
};
constexpr size_t kStages = std::size(kStageTraits);

}  // namespace pinion
