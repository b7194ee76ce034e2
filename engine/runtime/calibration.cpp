#include "engine/runtime/calibration.h"

#include <algorithm>
#include <functional>
#include <map>

#include "engine/forward/probes.h"
#include "engine/session/session.h"
#include "engine/team/memory.h"
#include "kernels/base/hash.h"
#include "loader/pack/quantize.h"

namespace pinion {
namespace {

constexpr int64_t kChunk = 256;  // tokens of a pass; it determines the order of sums, so it must not change

// Matrices of a layer with the same input. Matrices of experts are not included.
struct SharedInput {
  Stage stage;
  std::vector<const Matrix*> matrices;
};

std::vector<SharedInput> inputs_of(const Layer& layer) {
  std::vector<SharedInput> inputs;
  for (const StageTraits& traits : kStageTraits) {
    SharedInput input = {traits.stage, {}};
    for (const Linear& linear : layer.of(traits.stage)) {
      if (linear.weight.n > 0) input.matrices.push_back(&linear.weight);
    }
    if (!input.matrices.empty()) inputs.push_back(std::move(input));
  }
  return inputs;
}

// Runs the text in windows of kCalibrationWindow tokens, or of the model's context if that is less.
Error run_text(Session& session, std::span<const int32_t> ids, const std::function<void(int64_t)>& done) {
  std::vector<float> logits(session.model->config.vocab_size);
  const int64_t window = std::min(kCalibrationWindow, session.sequence.cache.capacity);
  for (int64_t first = 0; first < std::ssize(ids); first += window) {
    const int64_t count = std::min<int64_t>(window, std::ssize(ids) - first);
    rewind(session.sequence, 0);
    if (Error e = evaluate(session, ids.subspan(first, count), false, logits.data())) return e;
    done(count);
  }
  return {};
}

// Number of layers whose moments and feedback fit into a quarter of the free memory; at least 1.
int64_t layers_at_once(const Model& model) {
  int64_t layer_bytes = 1;  // of the largest layer
  for (const Layer& layer : model.layers) {
    int64_t bytes = 0;
    for (const SharedInput& input : inputs_of(layer)) {
      bytes += 2 * moments_elements(input.matrices[0]->k) * static_cast<int64_t>(sizeof(float));
    }
    layer_bytes = std::max(layer_bytes, bytes);
  }
  return std::clamp<int64_t>(available_memory_bytes() / 4 / layer_bytes, 1, std::ssize(model.layers));
}

bool takes_feedback(const PackJob& job) { return job.format == Format::w4 && !job.reader.read_w4; }

// Zeroed sums for the inputs of matrices that are quantised to w4 here.
Moments moments_for(const Model& model, int64_t first, int64_t count, const std::map<const Matrix*, PackJob*>& jobs) {
  Moments moments;
  moments.first_layer = first;
  moments.layers.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    for (const SharedInput& input : inputs_of(model.layers[first + i])) {
      if (std::ranges::none_of(input.matrices, [&](const Matrix* m) { return takes_feedback(*jobs.at(m)); })) continue;
      Moments::Sum& sum = moments.layers[i][static_cast<size_t>(input.stage)];
      sum.k = input.matrices[0]->k;
      sum.values.resize(moments_elements(sum.k));
      moments.rows.resize(std::max(moments.rows.size(), static_cast<size_t>(kChunk * padded_n(sum.k))));
    }
  }
  return moments;
}

// Computes the feedback of each sum and frees the moments. One worker computes a whole factorisation, so that its sums
// have a fixed order.
std::vector<std::array<Feedback, kStages>> feedback_of(Team& team, Moments* moments) {
  std::vector<std::array<Feedback, kStages>> feedback(moments->layers.size());
  team.run([&](Worker& worker) {
    worker.for_each(std::ssize(feedback) * kStages, [&](int64_t task) {
      const auto layer = task / kStages, stage = task % kStages;
      Moments::Sum& sum = moments->layers[layer][stage];
      if (sum.k == 0) return;
      feedback[layer][stage] = make_feedback(&sum.values, sum.k);
      std::vector<float>().swap(sum.values);
    });
    worker.barrier();
  });
  return feedback;
}

// Points each job at its layer's feedback.
void set_feedback(std::span<const Layer> layers, std::span<const std::array<Feedback, kStages>> feedback,
                  const std::map<const Matrix*, PackJob*>& jobs) {
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const SharedInput& input : inputs_of(layers[i])) {
      for (const Matrix* matrix : input.matrices) {
        PackJob* job = jobs.at(matrix);
        if (takes_feedback(*job)) job->feedback = &feedback[i][static_cast<size_t>(input.stage)];
      }
    }
  }
}

// Number of jobs up to the end of these layers. Jobs are in the order of layers.
int64_t jobs_end(std::span<const PackJob> jobs, std::span<const Layer> layers,
                 const std::map<const Matrix*, PackJob*>& by_matrix) {
  const PackJob* last = jobs.data();
  for (const Layer& layer : layers) {
    for (const SharedInput& input : inputs_of(layer)) {
      for (const Matrix* matrix : input.matrices) last = std::max<const PackJob*>(last, by_matrix.at(matrix));
    }
  }
  return last - jobs.data() + 1;
}

// The model in mode none, with a session.
struct Unquantised {
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;
};

Error open_unquantised(Team& team, Unquantised* out) {
  const int64_t capacity = std::min(kCalibrationWindow, context_length(out->model->config));
  return open_session(*out->model, team, {.kv = KvType::f32, .capacity = capacity, .prefill_chunk = kChunk},
                      &out->session);
}

}  // namespace

std::string calibration_name(std::span<const int32_t> ids) {
  if (ids.empty()) return {};
  return std::to_string(ids.size()) + " tokens " + hash_text(hash_words(kHashSeed, std::as_bytes(ids)));
}

std::vector<int32_t> calibration_windows(std::span<const int32_t> prefix, std::span<const int32_t> text) {
  std::vector<int32_t> ids;
  while (!text.empty() && std::ssize(ids) + std::ssize(prefix) < kMaxCalibrationTokens) {
    ids.insert(ids.end(), prefix.begin(), prefix.end());
    const size_t room = kCalibrationWindow - prefix.size();
    const auto window = text.first(std::min(text.size(), room));
    ids.insert(ids.end(), window.begin(), window.end());
    text = text.subspan(window.size());
  }
  return ids;
}

Error check_calibration(const LoadOptions& options, const ModelConfig& config) {
  if (options.calibration.empty()) return {};
  if (options.quant != Quant::w4a8) return error("only w4a8 has weights to calibrate", "--calibrate", "--quant w4a8");
  for (const int32_t id : options.calibration) {
    if (id >= 0 && id < config.vocab_size) continue;
    return error("token id outside the vocabulary", "calibration", "below " + std::to_string(config.vocab_size),
                 std::to_string(id));
  }
  return {};
}

Error pack_calibrated(const LoadOptions& options, std::unique_ptr<Model> unquantised, std::span<PackJob> jobs,
                      Model* model) {
  Team alone({});
  Team& team = options.team ? *options.team : alone;
  Unquantised runner = {std::move(unquantised), nullptr};
  if (Error e = open_unquantised(team, &runner)) return e;
  std::map<const Matrix*, PackJob*> by_matrix;
  for (PackJob& job : jobs) by_matrix[job.out] = &job;

  const int64_t layers = std::ssize(model->layers), at_once = layers_at_once(*model);
  const int64_t runs = (layers + at_once - 1) / at_once;
  int64_t done = 0;
  const auto report = [&](int64_t tokens) {
    done += tokens;
    if (options.progress) options.progress(done, runs * std::ssize(options.calibration));
  };
  Trace trace(layers);
  runner.session->trace = &trace;
  int64_t packed_jobs = 0;
  for (int64_t first = 0; first < layers; first += at_once) {
    const int64_t count = std::min(at_once, layers - first);
    const bool is_last_run = first + count == layers;
    const auto run_layers = std::span<const Layer>(model->layers).subspan(first, count);
    Moments moments = moments_for(*model, first, count, by_matrix);
    moments.rotate = options.rotate;
    trace.moments = &moments;
    if (Error e = run_text(*runner.session, options.calibration, report)) return e;
    if (is_last_run) {  // frees memory for packing
      runner.session.reset();
      runner.model.reset();
    }
    const auto feedback = feedback_of(team, &moments);
    set_feedback(run_layers, feedback, by_matrix);

    const int64_t end = is_last_run ? std::ssize(jobs) : jobs_end(jobs, run_layers, by_matrix);
    const auto ready = jobs.subspan(packed_jobs, end - packed_jobs);
    std::byte* to = model->arena.data + packed_bytes(jobs.first(packed_jobs));
    if (Error e = pack_all(workers_of(&team), ready, to, {.source_mapped = true})) return e;
    for (PackJob& job : ready) job.feedback = nullptr;
    packed_jobs = end;
  }
  return {};
}

}  // namespace pinion
