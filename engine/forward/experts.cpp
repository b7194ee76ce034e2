#include "engine/forward/experts.h"

#include <algorithm>

#include "engine/forward/gather.h"

namespace pinion {
namespace {

constexpr const Linear Expert::* kMatrices[] = {&Expert::gate, &Expert::up, &Expert::down};

void add_forms(const Expert& expert, InputForms* out) {
  for (const auto matrix : kMatrices) out->add((expert.*matrix).weight);
}

// The most rows that padding adds to an expert's packed rows.
int64_t padding_rows(const Kernels& kernels) { return std::max(kernels.s8_shape.rows, kernels.f32_shape.rows) - 1; }

int64_t place_of(const Kernels& kernels, const ExpertGroups& groups, int64_t group) {
  return groups.experts[static_cast<size_t>(group)].first + group * padding_rows(kernels);
}

// The inputs of the chosen experts. Of several tokens: packed, in the shared buffers. Of one token: the row itself,
// with codes in the worker's own buffers.
struct ExpertInputs {
  Multiplier m;
  const ExpertGroups& groups;
  InputForms forms;
  int64_t k;

  Input packed(int64_t group) const {
    const int64_t rows = groups.experts[static_cast<size_t>(group)].rows;
    const int64_t block = rows == 1 ? 1 : block_rows(forms.codes() ? m.kernels.s8_shape : m.kernels.f32_shape, rows);
    const int64_t place = place_of(m.kernels, groups, group);
    return input_in(m.shared, forms, rows, k, block, m.shared.values.data() + place * k, place);
  }

  Input one_row(const float* row, int64_t place) const { return input_in(m.own, forms, 1, k, 1, row, place); }
  void quantize(const float* row, int64_t place) const { quantize_row(m, row, k, forms, place); }

  // Packs all of them. make(group, first, count, out) gives that many of an expert's rows, see prepare().
  template <class Make>
  void pack(Make make) const {
    m.worker.for_each(std::ssize(groups.experts), [&](int64_t group) {
      const Input in = packed(group);
      for (int64_t first = 0; first < in.rows; first += in.block) {
        const int64_t count = std::min(in.block, in.rows - first);
        const float* rows = make(groups.experts[static_cast<size_t>(group)], first, count, m.own.values.data());
        pack_block(m, rows, place_of(m.kernels, groups, group) + first, count, in);
      }
    });
    m.worker.barrier();
  }
};

// Chooses experts by the router's logits in the scratch, and groups the tokens by expert. Returns the choices.
const Choices& choose(Worker& worker, const Pass& p, ExpertScratch& s, const Layer& layer, OwnExpertScratch* own) {
  const ExpertsConfig& c = p.model.config.experts;
  const RoutingRule rule = {.normalised = c.normalised,
                            .sigmoid = c.sigmoid,
                            .correction = layer.router_correction,
                            .scale = c.scale,
                            .groups = c.groups,
                            .groups_kept = c.groups_kept,
                            .group_best = c.group_best};
  const int64_t tokens = p.rows;
  const auto choose_for = [&](int64_t token, Choices* out) {
    const std::span<const float> logits(s.router.data() + token * c.count, static_cast<size_t>(c.count));
    const std::span<int32_t> experts(out->experts.data() + token * c.per_token, static_cast<size_t>(c.per_token));
    choose_experts(logits, rule, experts, out->weights.data() + token * c.per_token);
    if (c.shared_size == 0) return;
    const auto at = static_cast<size_t>(token);
    out->shared[at] = layer.shared_weight.weight.n > 0 ? sigmoid(s.shared_weight[at]) : 1.0f;
  };
  // Every worker chooses for a single token, and sorts the choices of several: each costs less than a barrier.
  Choices& choices = tokens == 1 ? own->choices : s.choices;
  if (tokens == 1) {
    choose_for(0, &choices);
  } else {
    worker.for_each(tokens, [&](int64_t token) { choose_for(token, &choices); });
    worker.barrier();
  }
  group_by_expert(choices, tokens, c.per_token, &own->groups);
  return choices;
}

// The tokens of each expert, normed once more for each.
void gather_tokens(const Pass& p, const Layer& layer, const ExpertInputs& inputs) {
  const ModelConfig& c = p.model.config;
  const int32_t* tokens = inputs.groups.tokens.data();
  inputs.pack([&](const ExpertRows& group, int64_t first, int64_t count, float* out) {
    for (int64_t r = 0; r < count; ++r) {
      const float* x = p.activations.x.data() + tokens[group.first + first + r] * c.hidden_size;
      float* row = out + r * c.hidden_size;
      if (layer.mlp_norm.weight) {
        normalize(p, layer.mlp_norm, x, row);
      } else {
        std::copy_n(x, c.hidden_size, row);
      }
    }
    return out;
  });
}

const Expert& expert_of(const Layer& layer, const ExpertRows& group) {
  return layer.experts[static_cast<size_t>(group.expert)];
}

// The activations of every entry: the same panels of both of an expert's matrices are one task. All experts have the
// same rows here.
template <class InputOf>
void gate_and_up(const Multiplier& m, const Pass& p, const Layer& layer, const ExpertGroups& groups, InputOf input_of) {
  const int64_t inner = p.model.config.experts.inner_size;
  const Linear& one = layer.experts.front().up;
  const int64_t panels = panel_count(one.weight.n);
  const Kernels& kernels = m.table();
  Tile tile;
  const auto multiply_run = [&](int64_t index, PanelRange run) {
    const ExpertRows& group = groups.experts[static_cast<size_t>(index)];
    const Expert& expert = expert_of(layer, group);
    const Input in = input_of(index);
    each_tile(0, in.rows, in.block, [&](int64_t first, int64_t rows) {
      multiply_gated(kernels, expert.gate, expert.up, gating_of(p.model.config, layer), run, in, first, rows, &tile,
                     p.activations.activation.data() + (group.first + first) * inner);
    });
  };
  const int64_t most = panels_at_once(p.rows);
  m.worker.for_each_run(std::ssize(groups.experts) * panels, most, [&](TaskRange all) {
    while (all.count > 0) {  // may go on in the next expert
      const int64_t panel = all.first % panels, count = std::min(all.count, panels - panel);
      multiply_run(all.first / panels, {panel, count});
      all = {all.first + count, all.count - count};
    }
  });
  m.worker.barrier();
  const int64_t entries = p.rows * p.model.config.experts.per_token;
  gather(m.worker, p, p.activations.activation.data(), entries, one.rows);
}

// Some columns of what the shared expert computed, into the residual stream.
void add_shared(const Pass& p, const Choices& choices, int64_t column, int64_t columns) {
  const int64_t hidden = p.model.config.hidden_size;
  for (int64_t row = 0; row < p.rows; ++row) {
    const float weight = choices.shared[static_cast<size_t>(row)];
    float* x = p.activations.x.data() + row * hidden + column;
    const float* value = p.activations.branch.data() + row * hidden + column;
    for (int64_t c = 0; c < columns; ++c) x[c] += weight * value[c];
  }
}

// Adds the experts' outputs to the residual stream. One task sums all experts for its columns, the shared one first,
// the others by rising index, so the order of each sum is fixed.
template <class InputOf>
void down(const Multiplier& m, const Pass& p, const Layer& layer, const Choices& choices, const ExpertGroups& groups,
          InputOf input_of) {
  const int64_t hidden = p.model.config.hidden_size;
  const Epilogue scaled = {.alpha = p.model.config.branch_scale};
  const Kernels& kernels = m.table();
  Tile tile;
  alignas(kAlignmentBytes) float values[kTileRows * kPanelColumns];
  const Linear& one = layer.experts.front().down;
  m.worker.for_each_run(panel_count(one.weight.n), panels_at_once(p.rows), [&](PanelRange run) {
    const int64_t begin = run.first * kPanelColumns, column = one.first + begin;
    const int64_t columns = std::min(run.count * kPanelColumns, one.weight.n - begin);
    if (p.model.config.experts.shared_size > 0) add_shared(p, choices, column, columns);
    for (int64_t i = 0; i < std::ssize(groups.experts); ++i) {
      const ExpertRows& group = groups.experts[static_cast<size_t>(i)];
      const Input in = input_of(i);
      each_tile(0, in.rows, in.block, [&](int64_t first, int64_t rows) {
        multiply(kernels, expert_of(layer, group).down, run, in, first, rows, scaled, &tile, values, kPanelColumns);
        for (int64_t r = 0; r < rows; ++r) {
          const auto entry = static_cast<size_t>(group.first + first + r);
          float* x = p.activations.x.data() + groups.tokens[entry] * hidden + column;
          const float* value = values + r * kPanelColumns;
          for (int64_t c = 0; c < columns; ++c) x[c] += groups.weights[entry] * value[c];
        }
      });
    }
  });
  m.worker.barrier();
  gather(m.worker, p, p.activations.x.data(), p.rows, one.rows);
}

}  // namespace

void route(Worker& worker, const Pass& p, ExpertScratch& s, const Layer& layer, const Input& y) {
  project(begin_stage(worker, p, Stage::router), y,
          {{&layer.router, s.router.data()}, {&layer.shared_weight, s.shared_weight.data()}});
}

void add_experts(Worker& worker, const Pass& p, ExpertScratch& s, const Layer& layer, const Input& y) {
  const ModelConfig& c = p.model.config;
  OwnExpertScratch& own = s.workers[static_cast<size_t>(worker.index)];
  const ExpertGroups& groups = own.groups;
  const int64_t inner = c.experts.inner_size;

  const Multiplier m = begin_stage(worker, p, Stage::router);
  const Choices& choices = choose(worker, p, s, layer, &own);
  InputForms forms;
  for (const ExpertRows& group : groups.experts) add_forms(expert_of(layer, group), &forms);
  const ExpertInputs in{m, groups, forms, c.hidden_size};
  const ExpertInputs activated{m, groups, forms, inner};
  const auto row = [&](int64_t entry) { return p.activations.activation.data() + entry * inner; };

  if (p.rows == 1) {
    in.quantize(y.values, 0);
    gate_and_up(begin_stage(worker, p, Stage::gate_up), p, layer, groups,
                [&](int64_t) { return in.one_row(y.values, 0); });
    begin_stage(worker, p, Stage::down_input);
    for (int64_t i = 0; i < std::ssize(groups.experts); ++i) activated.quantize(row(i), i);
    down(begin_stage(worker, p, Stage::down), p, layer, choices, groups,
         [&](int64_t i) { return activated.one_row(row(i), i); });
    return;
  }
  gather_tokens(p, layer, in);
  gate_and_up(begin_stage(worker, p, Stage::gate_up), p, layer, groups, [&](int64_t i) { return in.packed(i); });
  begin_stage(worker, p, Stage::down_input);
  activated.pack([&](const ExpertRows& group, int64_t first, int64_t, float*) { return row(group.first + first); });
  down(begin_stage(worker, p, Stage::down), p, layer, choices, groups, [&](int64_t i) { return activated.packed(i); });
}

void make_expert_scratch(const Model& model, const Kernels& kernels, int64_t tokens, ScratchSizer* sizer,
                         Activations* activations, ExpertScratch* out) {
  const ExpertsConfig& c = model.config.experts;
  if (c.count == 0) return;
  InputForms forms;
  for (const Layer& layer : model.layers) {
    for (const Expert& expert : layer.experts) add_forms(expert, &forms);
  }
  const auto make_choices = [&](Choices* choices, int64_t count) {
    sizer->make(&choices->experts, count * c.per_token);
    sizer->make(&choices->weights, count * c.per_token);
    if (c.shared_size > 0) sizer->make(&choices->shared, count);
  };
  const int64_t entries = tokens * c.per_token;
  const int64_t rows = entries + std::min(c.count, entries) * padding_rows(kernels);
  const int64_t widest = std::max(model.config.hidden_size, c.inner_size);
  const int64_t block = std::max(kernels.s8_shape.rows, kernels.f32_shape.rows);
  sizer->make(&out->router, tokens * c.count);
  if (c.shared_size > 0) sizer->make(&out->shared_weight, tokens);
  make_choices(&out->choices, tokens);
  sizer->make(&activations->activation, entries * c.inner_size);
  activations->inputs.make(sizer, forms, rows, widest);
  for (OwnInputBuffers& own : activations->own_inputs) own.make(sizer, forms, std::max(c.per_token, block), widest);
  out->workers.resize(activations->own_inputs.size());
  for (OwnExpertScratch& own : out->workers) {
    make_choices(&own.choices, 1);
    own.groups.make(sizer, entries, c.count);
  }
}

}  // namespace pinion
