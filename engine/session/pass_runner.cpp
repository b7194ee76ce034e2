#include "engine/session/pass_runner.h"

#include "engine/team/memory.h"

namespace pinion {

Error make_sequence(const ModelConfig& config, KvPool* pool, int64_t capacity, Sequence* out) {
  Sequence sequence;
  sequence.cache = make_kv_cache(pool, capacity);
  sequence.ropes = rope_frequencies(config, 0);
  if (Error e = allocate_recurrent_state(config, &sequence.state)) return e;
  sequence.ids.reserve(capacity);
  *out = std::move(sequence);
  return {};
}

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

bool can_truncate(const ModelConfig& config) {
  return recurrent_layers(config) == 0 && !frequencies_follow_length(config);
}

int64_t rewind(Sequence& sequence, int64_t position) {
  const int64_t held = std::ssize(sequence.ids);
  position = std::clamp<int64_t>(position, 0, held);
  const int64_t in_state = held - sequence.state.drafts.held;
  if (sequence.state.layers > 0 && position >= in_state) {
    sequence.state.drafts.held = position - in_state;
  } else if (sequence.state.layers > 0) {
    position = restore_snapshot(&sequence.snapshots, position, &sequence.state);
  }
  sequence.ids.resize(position);
  return position;
}

void clear(Sequence& sequence) {
  release_blocks(&sequence.cache, 0);
  restore_snapshot(&sequence.snapshots, 0, &sequence.state);
  sequence.ids.clear();
}

Error make_runner(const Model& model, Team& team, Team* prefill_team, const Kernels* kernels, PassRunner* out) {
  out->model = &model;
  out->team = &team;
  out->prefill_team = prefill_team ? prefill_team : &team;
  out->kernels = kernels;
  return kernels ? Error{} : select_kernels({}, &out->kernels);
}

int64_t mapped_bytes(const Model& model) { return model.from_cache() ? model.weight_bytes : 0; }

Error allocate_scratch(PassRunner* runner, int64_t tokens, int64_t positions, int64_t cache_bytes, int64_t other_bytes,
                       const std::string& what, const std::string& detail) {
  const auto make = [&](ScratchSizer* sizer, Scratch* scratch) {
    make_scratch(*runner->model, *runner->kernels, tokens, positions,
                 std::max(runner->team->size(), runner->prefill_team->size()), sizer, scratch);
  };
  ScratchSizer counter, allocator{.allocates = true};
  Scratch unallocated;
  unallocated.activations.inputs.keeps_values = runner->scratch.activations.inputs.keeps_values;
  make(&counter, &unallocated);
  const int64_t bytes = mapped_bytes(*runner->model) + cache_bytes + counter.bytes + other_bytes;
  if (Error e = check_memory(bytes, free_memory(), "too little memory for " + what, "session",
                             " (" + megabytes_text(cache_bytes) + " of them KV cache" + detail + ")")) {
    return e;
  }
  make(&allocator, &runner->scratch);
  return {};
}

void copy_block(PassRunner& runner, KvPool& pool, int32_t from, int32_t to) {
  runner.followers.send_copy(from, to);
  copy_block(pool, from, to);
}

std::span<const int32_t> panel_best(const PassRunner& runner, int64_t logit_row) {
  const int64_t panels = panel_count(runner.model->config.vocab_size);
  return std::span(runner.scratch.activations.panel_best).subspan(logit_row * panels, panels);
}

int64_t run_pass(PassRunner& runner, std::span<Segment> segments, float* logits) {
  int64_t rows = 0;
  for (Segment& segment : segments) {
    segment.row = rows;
    rows += segment.size();
  }
  const Pass pass = {.model = *runner.model,
                     .kernels = *runner.kernels,
                     .activations = runner.scratch.activations,
                     .segments = segments,
                     .rows = rows,
                     .logits = logits,
                     .hidden = runner.hidden.empty() ? nullptr : runner.hidden.data(),
                     .profile = runner.profile,
                     .trace = runner.trace};
  Exchange* exchange = runner.model->exchange;
  const int64_t exchange_ns = exchange ? exchange->traffic.ns : 0;
  if (exchange) exchange->is_in_pass = true;
  runner.followers.send_pass(segments, runner.profile != nullptr);
  plan(pass, &runner.scratch);
  const auto evaluate_rows = [&](Worker& worker) { forward(worker, pass, runner.scratch); };
  Team& team = rows > 1 ? *runner.prefill_team : *runner.team;
  if (rows > 1 || runner.profile) {
    team.run(evaluate_rows);
  } else {
    team.run_active(evaluate_rows);
  }
  if (exchange) exchange->is_in_pass = false;
  if (exchange && runner.profile) runner.profile->exchange_ns += exchange->traffic.ns - exchange_ns;
  for (const Segment& segment : segments) {
    if (segment.state->layers > 0) segment.state->drafts.held = segment.drafts;
  }
  return rows;
}

bool are_logits_finite(const PassRunner& runner, int64_t first, int64_t count) {
  for (int64_t row = first; row < first + count; ++row) {
    if (std::ranges::count(panel_best(runner, row), kNonFinitePanel) > 0) return false;
  }
  return true;
}

}  // namespace pinion
