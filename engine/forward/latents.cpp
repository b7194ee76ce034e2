#include "engine/forward/latents.h"

#include <initializer_list>

#include "engine/forward/trace.h"

namespace pinion {
namespace {

// A latent's rows, normed, as the input of the matrices that read it.
Input normed_latent(Worker& worker, const Pass& p, Stage stage, const std::vector<float>& latent, int64_t width,
                    const float* norm, std::initializer_list<const Linear*> matrices, int64_t index) {
  const float eps = p.model.config.latent.norm_eps;
  const Multiplier m = begin_stage(worker, p, stage);
  const Input in = prepare(m, p.rows, width, matrices, [&](int64_t first, int64_t count, float* out) {
    for (int64_t r = 0; r < count; ++r) {
      p.kernels.rms_norm(latent.data() + (first + r) * width, norm, width, eps, out + r * width);
    }
    return out;
  });
  trace_input(worker, p, index, stage, in);
  return in;
}

}  // namespace

void make_latent_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, LatentScratch* out) {
  const LatentConfig& c = model.config.latent;
  sizer->make(&out->q, tokens * c.query_rank);
  sizer->make(&out->kv, tokens * c.rank);
  sizer->make(&out->k_rope, tokens * c.rope_dims);
}

void project_latents(Worker& worker, const Pass& p, LatentScratch& s, const Layer& layer, const Input& x, int64_t index,
                     float* q, float* k, float* v) {
  const LatentConfig& c = p.model.config.latent;
  const LatentLayer& l = layer.latent;
  const Multiplier m = begin_stage(worker, p, Stage::qkv);
  project(m, x, {{&layer.q, q}, {&l.q_a, s.q.data()}, {&l.kv_a, s.kv.data()}, {&l.k_rope, s.k_rope.data()}});
  if (c.query_rank > 0) {
    project(m, normed_latent(worker, p, Stage::q_latent, s.q, c.query_rank, l.q_norm, {&l.q}, index), {{&l.q, q}});
  }
  project(m, normed_latent(worker, p, Stage::kv_latent, s.kv, c.rank, l.kv_norm, {&l.k, &l.v}, index),
          {{&l.k, k}, {&l.v, v}});
}

}  // namespace pinion
