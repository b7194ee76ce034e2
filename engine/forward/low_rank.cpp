#include "engine/forward/low_rank.h"

namespace pinion {
Input narrow_input(Worker& worker, const Pass& p, Stage stage, const std::vector<float>& narrow, int64_t width,
                   const float* norm, float eps, const Layer& layer, int64_t index) {
  const Multiplier m = begin_stage(worker, p, stage);
  const Input in = prepare(m, p.rows, width, forms_of(layer, {stage}), [&](int64_t first, int64_t count, float* out) {
    const float* rows = narrow.data() + first * width;
    for (int64_t at = 0; norm && at < count * width; at += width) {
      p.kernels.rms_norm(rows + at, norm, width, eps, out + at);
    }
    return norm ? out : rows;
  });
  trace_input(worker, p.trace, index, stage, in);
  return in;
}

void make_latent_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, LatentScratch* out) {
  const LatentConfig& c = model.config.latent;
  sizer->make(&out->q, tokens * c.query_rank);
  sizer->make(&out->kv, tokens * c.rank);
  sizer->make(&out->k_rope, tokens * c.rope_dims);
}

void project_latents(Worker& worker, const Pass& p, LatentScratch& s, const Layer& layer, const Input& x, int64_t index,
                     float* q, float* k, float* v, float* gates) {
  const LatentConfig& c = p.model.config.latent;
  const Multiplier m = begin_stage(worker, p, Stage::qkv);
  project(m, x,
          {{&layer[MatrixRole::q], q},
           {&layer[MatrixRole::latent_q_a], s.q.data()},
           {&layer[MatrixRole::latent_kv_a], s.kv.data()},
           {&layer[MatrixRole::latent_k_rope], s.k_rope.data()},
           {&layer[MatrixRole::attention_gate], gates}});
  const auto normed = [&](Stage stage, const std::vector<float>& latent, int64_t width, VectorRole norm) {
    return narrow_input(worker, p, stage, latent, width, layer[norm].weight, c.norm_eps, layer, index);
  };
  if (c.query_rank > 0) {
    project(m, normed(Stage::q_latent, s.q, c.query_rank, VectorRole::latent_q_norm),
            {{&layer[MatrixRole::latent_q], q}});
  }
  project(m, normed(Stage::kv_latent, s.kv, c.rank, VectorRole::latent_kv_norm),
          {{&layer[MatrixRole::latent_k], k}, {&layer[MatrixRole::latent_v], v}});
}

void finish_laurel(Worker& worker, const Pass& p, const Layer& layer, int64_t index) {
  Activations& s = p.activations;
  const Linear& right = layer[MatrixRole::laurel_right];
  const int64_t n = p.model.config.hidden_size, rank = right.weight.k;
  const Input narrow = narrow_input(worker, p, Stage::laurel, s.laurel_narrow, rank, nullptr, 0.0f, layer, index);
  const Multiplier m = begin_stage(worker, p, Stage::laurel);
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
