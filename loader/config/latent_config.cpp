#include <algorithm>
#include <cmath>

#include "kernels/base/math.h"
#include "kernels/layout.h"
#include "loader/config/config_parts.h"

namespace pinion {

void read_latent(JsonFields& file, ModelConfig* out) {
  LatentConfig& latent = out->latent;
  latent.rank = file.integer("kv_lora_rank", {}, 1, kMaxK);
  latent.query_rank = file.integer("q_lora_rank", 0, 1, kMaxK);
  latent.rope_dims = file.integer("qk_rope_head_dim", {}, 2, kMaxHeadDim);
  out->head_dim = latent.rope_dims + file.integer("qk_nope_head_dim", {}, 1, kMaxHeadDim);
  latent.value_dim = file.integer("v_head_dim", std::max<int64_t>(1, out->hidden_size / out->heads), 1, kMaxHeadDim);
  if (out->kv_heads != out->heads) {
    file.fail("num_key_value_heads", "not supported of latent attention", std::to_string(out->heads),
              std::to_string(out->kv_heads));
  }
}

void stretch_scores(ModelConfig* out) {
  const Rope& rope = out->ropes.front();
  if (out->latent.rank == 0 || rope.kind == RopeKind::none || rope.mscale_all_dim == 0.0 || rope.factor <= 1.0) return;
  const double magnitude = 0.1 * rope.mscale_all_dim * portable_log(rope.factor) + 1.0;
  out->score_scale = static_cast<float>(double{out->score_scale} * magnitude * magnitude);
}

}  // namespace pinion
