#include "engine/forward/experts.h"

#include "engine/forward/mlp.h"

namespace pinion {
namespace {

// The largest keys so far, in descending order. Comparisons with NaN are false: indices remain distinct, and a NaN
// logit reaches the weights.
struct Largest {
  std::span<int32_t> indices;  // [capacity]
  float* keys;                 // [capacity]
  size_t found = 0;

  void offer(size_t index, float key) {
    if (found == indices.size() && !(key > keys[found - 1])) return;
    size_t rank = found < indices.size() ? found++ : found - 1;
    for (; rank > 0 && key > keys[rank - 1]; --rank) {
      indices[rank] = indices[rank - 1];
      keys[rank] = keys[rank - 1];
    }
    indices[rank] = static_cast<int32_t>(index);
    keys[rank] = key;
  }
};

struct Scores {
  std::span<const float> logits;
  const RoutingRule& rule;
  double largest = double{std::ranges::max(logits)};  // logit
  double sum = 0.0;                                   // of the exponentials of all experts, if they are needed

  double of(size_t expert) const {
    return rule.config.sigmoid ? double{sigmoid(logits[expert])} : portable_exp(double{logits[expert]} - largest);
  }
  // Otherwise logits have the same order and cost no exponentials.
  bool order_by_scores() const { return rule.correction || (rule.config.groups > 1 && rule.config.group_best > 1); }
  float key(size_t expert) const {
    if (!order_by_scores()) return logits[expert];
    if (rule.config.corrects_logits) return logits[expert] + rule.correction[expert];
    return static_cast<float>(of(expert) / (rule.config.sigmoid ? 1.0 : sum)) +
           (rule.correction ? rule.correction[expert] : 0);
  }
};

void offer_group(const Scores& scores, int64_t group, Largest* out) {
  const size_t size = scores.logits.size() / scores.rule.config.groups, first = group * size;
  for (size_t i = first; i < first + size; ++i) out->offer(i, scores.key(i));
}

void choose_largest(const Scores& scores, Largest* out) {
  const ExpertsConfig& c = scores.rule.config;
  if (c.groups == 1) return offer_group(scores, 0, out);
  std::array<int32_t, kMaxExpertGroups> kept, best;
  std::array<float, kMaxExpertGroups> sums, keys;
  Largest groups = {std::span(kept).first(c.groups_kept), sums.data()};
  for (int64_t group = 0; group < c.groups; ++group) {
    Largest largest = {std::span(best).first(c.group_best), keys.data()};
    offer_group(scores, group, &largest);
    groups.offer(group, std::accumulate(keys.begin(), keys.begin() + c.group_best, 0.0f));
  }
  std::ranges::sort(groups.indices);
  for (const int32_t group : groups.indices) offer_group(scores, group, out);
}

// SparseMixer (Liu et al. 2023) with two experts: the weight of each is its softmax among the logits near it, for the
// second without the first.
void weigh_sparsely(const Scores& scores, std::span<int32_t> experts, float* weights) {
  for (const size_t n : {0, 1}) {
    const float most = scores.logits[experts[n]];
    double sum = 0.0;
    for (int32_t i = 0; i < std::ssize(scores.logits); ++i) {
      const float logit = scores.logits[i];
      const bool is_near = !((most - logit) / std::max(std::abs(logit), most) > scores.rule.config.near);
      if (is_near && (n == 0 || i != experts[0])) sum += portable_exp(double{logit} - double{most});
    }
    weights[n] = static_cast<float>(1.0 / sum);
  }
  if (experts[1] < experts[0]) std::swap(experts[0], experts[1]), std::swap(weights[0], weights[1]);
}

// Maximum rows of padding after the packed rows of an expert.
int64_t padding_rows(const Kernels& kernels) { return std::max(kernels.s8_shape.rows, kernels.f32_shape.rows) - 1; }

// The first row of an expert in the packed buffers.
int64_t packed_row(const Kernels& kernels, const ExpertGroups& groups, int64_t group) {
  return groups.experts[group].first + group * padding_rows(kernels);
}

// The inputs of the chosen experts: several tokens packed in the shared buffers, a single token unpacked in the
// worker's local buffers.
struct ExpertInputs {
  Multiplier m;
  const ExpertGroups& groups;
  InputForms forms;
  int64_t k;

  Input packed(int64_t group) const {
    const int64_t rows = groups.experts[group].rows;
    const int64_t block = rows == 1 ? 1 : block_rows(forms.codes() ? m.kernels.s8_shape : m.kernels.f32_shape, rows);
    const int64_t first = packed_row(m.kernels, groups, group);
    return input_in(m.shared, forms, rows, k, block, m.shared.values.data() + first * k, first);
  }

  Input single(const float* row, int64_t index) const { return input_in(m.local, forms, 1, k, 1, row, index); }
  void quantize(const float* row, int64_t index) const { quantize_local(m, row, k, forms, index); }

  // Packs the inputs of all experts. make(group, first, count, out) returns `count` rows of an expert, see prepare().
  template <class Make>
  void pack(Make make) const {
    m.worker.for_each(std::ssize(groups.experts), [&](int64_t group) {
      const Input in = packed(group);
      for (int64_t first = 0; first < in.rows; first += in.block) {
        const int64_t count = std::min(in.block, in.rows - first);
        const float* rows = make(groups.experts[group], first, count, m.local.values.data());
        pack_block(m, rows, packed_row(m.kernels, groups, group) + first, count, in);
      }
    });
    m.worker.barrier();
  }
};

// Chooses experts by the logits in the scratch and groups the tokens by expert. Returns the choices.
const Choices& choose(Worker& worker, const Pass& p, ExpertScratch& s, const Layer& layer, LocalExpertScratch* local) {
  const ExpertsConfig& c = p.model.config.experts;
  const RoutingRule rule = {c, layer[VectorRole::router_correction].weight, layer[VectorRole::expert_scale].weight};
  const int64_t tokens = p.rows;
  const auto choose_for = [&](int64_t token, Choices* out) {
    const std::span<const float> logits = std::span(s.router).subspan(token * c.count, c.count);
    const std::span<int32_t> experts = std::span(out->experts).subspan(token * c.per_token, c.per_token);
    choose_experts(logits, rule, experts, out->weights.data() + token * c.per_token);
    if (c.shared_size == 0) return;
    out->shared[token] = layer[MatrixRole::shared_weight].weight.n > 0 ? sigmoid(s.shared_weight[token]) : 1.0f;
  };
  // Every worker chooses for a single token, and groups the choices of several: both cost less than a barrier.
  Choices& choices = tokens == 1 ? local->choices : s.choices;
  if (tokens == 1) {
    choose_for(0, &choices);
  } else {
    worker.for_each(tokens, [&](int64_t token) { choose_for(token, &choices); });
    worker.barrier();
  }
  group_by_expert(choices, tokens, c.per_token, &local->groups);
  return choices;
}

// Packs the tokens of each expert. Tokens are normed again for each of their experts.
void pack_tokens(const Pass& p, const Layer& layer, const ExpertInputs& inputs) {
  const ModelConfig& c = p.model.config;
  const int32_t* tokens = inputs.groups.tokens.data();
  inputs.pack([&](const ExpertRows& group, int64_t first, int64_t count, float* out) {
    for (int64_t r = 0; r < count; ++r) {
      const float* x = p.activations.x.data() + tokens[group.first + first + r] * c.hidden_size;
      float* row = out + r * c.hidden_size;
      const Vector& own = layer[VectorRole::expert_norm];
      if (const Vector& norm = own.weight ? own : layer[VectorRole::mlp_norm]; norm.weight) {
        normalize(p, norm, x, row);
      } else {
        std::copy_n(x, c.hidden_size, row);
      }
      const float weight = c.experts.scales_inputs ? inputs.groups.weights[group.first + first + r] : 1.0f;
      for (int64_t i = 0; weight != 1.0f && i < c.hidden_size; ++i) row[i] *= weight;
    }
    return out;
  });
}

// Computes the activations of every entry. A task is the same panel of an expert's gate and up. On one board all
// experts have the same number of rows.
template <class InputOf>
void gate_and_up(const Multiplier& m, const Pass& p, const Layer& layer, const ExpertGroups& groups, InputOf input_of) {
  const int64_t inner = p.model.config.experts.inner_size;
  const Linear& any_up = layer.experts.front()[MatrixRole::up];
  const int64_t panels = panel_count(any_up.weight.n);
  const Kernels& kernels = m.table();
  Tile tile;
  for_each_panel_run(m.worker, std::ssize(groups.experts), panels, p.rows, [&](int64_t index, PanelRange run) {
    const ExpertRows& group = groups.experts[index];
    const Expert& expert = layer.experts[group.expert];
    const Input in = input_of(index);
    for_each_row_tile(0, in.rows, in.block, [&](int64_t first, int64_t rows) {
      multiply_gated(kernels, expert[MatrixRole::gate], expert[MatrixRole::up], gating_of(p.model.config, layer), run,
                     in, first, rows, &tile, p.activations.activation.data() + (group.first + first) * inner);
    });
  });
  m.worker.barrier();
  const int64_t entries = p.rows * p.model.config.experts.per_token;
  gather(m.worker, p, p.activations.activation.data(), entries, any_up.rows);
}

// Adds columns of the shared expert's output to the residual stream, or weighs them in place.
void add_shared(const Pass& p, const Choices& choices, int64_t column, int64_t columns, float* sums) {
  const int64_t hidden = p.model.config.hidden_size;
  for (int64_t row = 0; row < p.rows; ++row) {
    const float weight = choices.shared[row];
    float* x = sums + row * hidden + column;
    const float* value = p.activations.branch.data() + row * hidden + column;
    for (int64_t c = 0; c < columns; ++c) x[c] = value == x ? weight * value[c] : x[c] + weight * value[c];
  }
}

// Adds the experts' outputs to the residual stream, or to `branch` with sums_experts(). A task adds all experts to its
// columns in a fixed order: the shared expert first, then the others in ascending order.
template <class InputOf>
void down(const Multiplier& m, const Pass& p, ExpertScratch& s, const Layer& layer, const Choices& choices,
          const ExpertGroups& groups, InputOf input_of) {
  const ModelConfig& c = p.model.config;
  const bool is_apart = layer[VectorRole::expert_norm].weight;
  const bool is_summed = sums_experts(c, layer), has_shared = c.experts.shared_size > 0;
  float* sums = is_apart ? s.sums.data() : is_summed ? p.activations.branch.data() : p.activations.x.data();
  const bool clears = is_apart || (is_summed && !has_shared);
  const int64_t hidden = c.hidden_size;
  const Epilogue scaled = {.alpha = is_summed ? 1.0f : c.branch_scale};
  const Kernels& kernels = m.table();
  Tile tile;
  alignas(kAlignmentBytes) float values[kTileRows * kPanelColumns];
  const Linear& any_down = layer.experts.front()[MatrixRole::down];
  m.worker.for_each_run(panel_count(any_down.weight.n), panels_per_claim(p.rows), [&](PanelRange run) {
    const int64_t begin = run.first * kPanelColumns, column = any_down.first + begin;
    const int64_t columns = std::min(run.count * kPanelColumns, any_down.weight.n - begin);
    for (int64_t row = 0; clears && row < p.rows; ++row) std::fill_n(sums + row * hidden + column, columns, 0.0f);
    if (!is_apart && has_shared) add_shared(p, choices, column, columns, sums);
    for (int64_t i = 0; i < std::ssize(groups.experts); ++i) {
      const ExpertRows& group = groups.experts[i];
      const Input in = input_of(i);
      for_each_row_tile(0, in.rows, in.block, [&](int64_t first, int64_t rows) {
        multiply(kernels, layer.experts[group.expert][MatrixRole::down], run, in, first, rows, scaled, &tile, values,
                 kPanelColumns);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t entry = group.first + first + r;
          float* x = sums + groups.tokens[entry] * hidden + column;
          const float *value = values + r * kPanelColumns, weight = c.experts.scales_inputs ? 1 : groups.weights[entry];
          for (int64_t at = 0; at < columns; ++at) x[at] += weight * value[at];
        }
      });
    }
  });
  m.worker.barrier();
  gather(m.worker, p, sums, p.rows, any_down.rows);
}

}  // namespace

void choose_experts(std::span<const float> logits, const RoutingRule& rule, std::span<int32_t> experts,
                    float* weights) {
  Largest chosen = {experts, weights};
  Scores scores = {logits, rule};
  const bool needs_sum = !rule.config.sigmoid && (scores.order_by_scores() || !rule.config.normalised);
  for (size_t i = 0; needs_sum && i < logits.size(); ++i) scores.sum += scores.of(i);
  choose_largest(scores, &chosen);
  if (rule.config.near > 0.0f) return weigh_sparsely(scores, experts, weights);
  std::ranges::sort(experts);
  double sum = rule.config.sigmoid ? 1.0 : scores.sum;
  if (rule.config.normalised) {
    sum = 0.0;
    for (const int32_t expert : experts) sum += scores.of(expert);
  }
  for (size_t i = 0; i < experts.size(); ++i) {
    weights[i] = static_cast<float>(scores.of(experts[i]) / sum * double{rule.config.scale});
    if (rule.scales) weights[i] *= rule.scales[experts[i]];
  }
}

void ExpertGroups::make(ScratchSizer* sizer, int64_t choices, int64_t expert_count) {
  if (sizer->allocates) experts.reserve(expert_count);
  sizer->make(&tokens, choices);
  sizer->make(&weights, choices);
  sizer->make(&next, expert_count);
}

void group_by_expert(const Choices& choices, int64_t tokens, int64_t per_token, ExpertGroups* out) {
  const int64_t count = tokens * per_token;
  std::ranges::fill(out->next, 0);
  for (int64_t i = 0; i < count; ++i) ++out->next[choices.experts[i]];
  out->experts.clear();
  int32_t first = 0;
  for (size_t expert = 0; expert < out->next.size(); ++expert) {
    const int32_t rows = out->next[expert];
    if (rows > 0) out->experts.push_back({static_cast<int32_t>(expert), first, rows});
    out->next[expert] = first;
    first += rows;
  }
  for (int64_t i = 0; i < count; ++i) {
    const int32_t entry = out->next[choices.experts[i]]++;
    out->tokens[entry] = static_cast<int32_t>(i / per_token);
    out->weights[entry] = choices.weights[i];
  }
}

void route(Worker& worker, const Pass& p, ExpertScratch& s, const Layer& layer, const Input& y) {
  project(begin_stage(worker, p, Stage::router), y,
          {{&layer[MatrixRole::router], s.router.data()}, {&layer[MatrixRole::shared_weight], s.shared_weight.data()}});
}

void add_experts(Worker& worker, const Pass& p, ExpertScratch& s, const Layer& layer, const Input& y, int64_t index) {
  const ModelConfig& c = p.model.config;
  LocalExpertScratch& local = s.workers[worker.index];
  const ExpertGroups& groups = local.groups;
  const int64_t inner = c.experts.inner_size;

  const Multiplier m = begin_stage(worker, p, Stage::router);
  const Choices& choices = choose(worker, p, s, layer, &local);
  InputForms forms = {.values = m.shared.keeps_values};
  for (const ExpertRows& group : groups.experts) forms.add(layer.experts[group.expert].matrix);
  const ExpertInputs in{m, groups, forms, c.hidden_size};
  const ExpertInputs activated{m, groups, forms, inner};
  const auto row = [&](int64_t entry) { return p.activations.activation.data() + entry * inner; };

  if (p.rows == 1 && !c.experts.scales_inputs) {
    in.quantize(y.values, 0);
    gate_and_up(begin_stage(worker, p, Stage::gate_up), p, layer, groups,
                [&](int64_t) { return in.single(y.values, 0); });
    begin_stage(worker, p, Stage::down_input);
    for (int64_t i = 0; i < std::ssize(groups.experts); ++i) activated.quantize(row(i), i);
    down(begin_stage(worker, p, Stage::down), p, s, layer, choices, groups,
         [&](int64_t i) { return activated.single(row(i), i); });
    return;
  }
  pack_tokens(p, layer, in);
  for (int64_t i = 0; p.trace && layer[VectorRole::expert_norm].weight && i < std::ssize(groups.experts); ++i)
    trace_input(worker, p.trace, {index, Stage::gate_up, kAllExperts}, in.packed(i));
  gate_and_up(begin_stage(worker, p, Stage::gate_up), p, layer, groups, [&](int64_t i) { return in.packed(i); });
  begin_stage(worker, p, Stage::down_input);
  activated.pack([&](const ExpertRows& group, int64_t first, int64_t, float*) { return row(group.first + first); });
  for (int64_t i = 0; p.trace && i < std::ssize(groups.experts); ++i)
    trace_input(worker, p.trace, {index, Stage::down, groups.experts[i].expert}, activated.packed(i));
  down(begin_stage(worker, p, Stage::down), p, s, layer, choices, groups,
       [&](int64_t i) { return activated.packed(i); });
}

void make_expert_scratch(const Model& model, const Kernels& kernels, int64_t tokens, ScratchSizer* sizer,
                         Activations* activations, ExpertScratch* out) {
  const ExpertsConfig& c = model.config.experts;
  if (c.count == 0) return;
  InputForms forms;
  for (const Layer& layer : model.layers) {
    for (const Expert& expert : layer.experts) forms.add(expert.matrix);
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
  const bool is_apart = std::ranges::any_of(model.layers, [](auto& l) { return l[VectorRole::expert_norm].weight; });
  if (is_apart) sizer->make(&out->sums, tokens * model.config.hidden_size);
  make_choices(&out->choices, tokens);
  sizer->make(&activations->activation, entries * c.inner_size);
  activations->inputs.make(sizer, forms, rows, widest);
  for (LocalInputBuffers& local : activations->local_inputs)
    local.make(sizer, forms, std::max(c.per_token, block), widest);
  out->workers.resize(activations->local_inputs.size());
  for (LocalExpertScratch& local : out->workers) {
    make_choices(&local.choices, 1);
    local.groups.make(sizer, entries, c.count);
  }
}

}  // namespace pinion
