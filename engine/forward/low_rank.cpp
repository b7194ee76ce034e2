#include "engine/forward/low_rank.h"

namespace pinion {
namespace {

// The normed rows of a latent as the input of the matrices that read it.
Input latent_input(Worker& worker, const Pass& p, Stage stage, const std::vector<float>& latent, int64_t width,
                   VectorRole norm, const Layer& layer, int64_t index) {
  const float eps = p.model.config.latent.norm_eps;
  const Multiplier m = begin_stage(worker, p, stage);
  const Input in = prepare(m, p.rows, width, forms_of(layer, {stage}), [&](int64_t first, int64_t count, float* out) {
    for (int64_t r = 0; r < count; ++r) {
      p.kernels.rms_norm(latent.data() + (first + r) * width, layer[norm].weight, width, eps, out + r * width);
    }
    return out;
  });
  trace_input(worker, p.trace, index, stage, in);
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
  const Multiplier m = begin_stage(worker, p, Stage::qkv);
  project(m, x,
          {{&layer[MatrixRole::q], q},
           {&layer[MatrixRole::latent_q_a], s.q.data()},
           {&layer[MatrixRole::latent_kv_a], s.kv.data()},
           {&layer[MatrixRole::latent_k_rope], s.k_rope.data()}});
  if (c.query_rank > 0) {
    project(m, latent_input(worker, p, Stage::q_latent, s.q, c.query_rank, VectorRole::latent_q_norm, layer, index),
            {{&layer[MatrixRole::latent_q], q}});
  }
  project(m, latent_input(worker, p, Stage::kv_latent, s.kv, c.rank, VectorRole::latent_kv_norm, layer, index),
          {{&layer[MatrixRole::latent_k], k}, {&layer[MatrixRole::latent_v], v}});
}

void finish_laurel(Worker& worker, const Pass& p, const Layer& layer, int64_t index) {
  Activations& s = p.activations;
  const Linear& right = layer[MatrixRole::laurel_right];
  const int64_t n = p.model.config.hidden_size, rank = right.weight.k;
  const Multiplier m = begin_stage(worker, p, Stage::laurel);
  const Input narrow = prepare(m, p.rows, rank, forms_of(right),
                               [&](int64_t first, int64_t, float*) { return s.laurel_narrow.data() + first * rank; });
  trace_input(worker, p.trace, index, Stage::laurel, narrow);
  project(m, narrow, {{&right, s.laurel.data()}});
  // No barrier at the end: attention does not read these buffers, and add_laurel() runs after its barriers.
  worker.for_each(p.rows, [&](int64_t row) {
    float *out = s.laurel.data() + row * n, *normed = m.local.values.data();
    normalize(p, layer[VectorRole::laurel_norm], out, out);
    normalize(p, layer[VectorRole::attention_norm], s.x.data() + row * n, normed);
    for (int64_t i = 0; i < n; ++i) out[i] += normed[i];
  });
}

void add_laurel(Worker& worker, const Pass& p) {
  constexpr float kRootOfHalf = 0.70710678f;
  const int64_t n = p.model.config.hidden_size;
  worker.for_each(p.rows, [&](int64_t row) {
    float* x = p.activations.x.data() + row * n;
    const float* laurel = p.activations.laurel.data() + row * n;
    for (int64_t i = 0; i < n; ++i) x[i] = (x[i] + laurel[i]) * kRootOfHalf;
  });
  worker.barrier();
}

}  // namespace pinion
