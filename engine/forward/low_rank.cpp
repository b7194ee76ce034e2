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
  trace_input(worker, p.trace, {index, stage}, in);
  return in;
}

void make_latent_scratch(const Model& model, int64_t tokens, ScratchSizer* sizer, LatentScratch* out) {
  const LatentConfig& c = model.config.latent;
  sizer->make(&out->q, tokens * c.query_rank);
  sizer->make(&out->kv, tokens * c.rank);
  sizer->make(&out->k_rope, tokens * c.rope_dims);
  if (c.rank > 0) sizer->make(&out->attended, tokens * model.config.largest(&LayerConfig::heads) * c.rank);
}

void project_latents(Worker& worker, const Pass& p, LatentScratch& s, const Layer& layer, const Input& x, int64_t index,
                     float* q, float* gates) {
  const LatentConfig& c = p.model.config.latent;
  const Multiplier m = begin_stage(worker, p, Stage::qkv);
  project(m, x,
          {{&layer[MatrixRole::q], q},
           {&layer[MatrixRole::latent_q_a], s.q.data()},
           {&layer[MatrixRole::latent_kv_a], s.kv.data()},
           {&layer[MatrixRole::latent_k_rope], s.k_rope.data()},
           {&layer[MatrixRole::attention_gate], gates}});
  if (c.query_rank == 0) return;
  const float* norm = layer[VectorRole::latent_q_norm].weight;
  project(m, narrow_input(worker, p, Stage::q_latent, s.q, c.query_rank, norm, c.norm_eps, layer, index),
          {{&layer[MatrixRole::latent_q], q}});
}

void project_heads(Worker& worker, const Pass& p, const Layer& layer, Stage stage, MatrixRole role,
                   const RowRange& heads, const HeadRows& from, const HeadRows& to) {
  const Multiplier m = begin_stage(worker, p, stage);
  if (heads.count == 0) return;
  const auto linear = [&](int64_t head) -> const Linear& { return layer.latent_heads[heads.first + head][role]; };
  const InputForms forms = forms_of(linear(0));
  const int64_t k = linear(0).weight.k;
  const int64_t block = p.rows == 1 ? 1 : block_rows(forms.codes() ? m.kernels.s8_shape : m.kernels.f32_shape, p.rows);
  const int64_t blocks = (p.rows + block - 1) / block;
  const auto input = [&](int64_t head) {
    const int64_t first = head * blocks * block;
    const float* values = forms.values ? m.shared.values.data() + first * k : nullptr;
    return input_in(m.shared, forms, p.rows, k, block, values, first);
  };
  worker.for_each(heads.count * blocks, [&](int64_t task) {
    const int64_t first = task % blocks * block, count = std::min(block, p.rows - first);
    float* rows = m.local.values.data();
    for (int64_t r = 0; r < count; ++r) std::copy_n(from.at(task / blocks, first + r), k, rows + r * k);
    pack_block(m, rows, task * block, count, input(task / blocks));
  });
  worker.barrier();
  Tile tile;
  for_each_panel_run(worker, heads.count, panel_count(linear(0).weight.n), p.rows, [&](int64_t head, PanelRange run) {
    for_each_row_tile(0, p.rows, block, [&](int64_t first, int64_t rows) {
      multiply(m.table(), linear(head), run, input(head), first, rows, {}, &tile,
               to.at(head, first) + run.first * kPanelColumns, to.row);
    });
  });
  worker.barrier();
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
