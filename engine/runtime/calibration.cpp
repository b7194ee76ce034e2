#include "engine/runtime/calibration.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "engine/forward/probes.h"
#include "engine/session/session.h"
#include "engine/team/memory.h"
#include "kernels/base/hash.h"
#include "loader/pack/quantize.h"

namespace pinion {
namespace {

constexpr int64_t kMaxTextsAtOnce = 16;  // of those that the model continues; more take memory and are no faster
constexpr int64_t kChunk = 256;          // tokens of a pass; it determines the order of sums, so it must not change

using JobOf = std::map<const Matrix*, PackJob*>;

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

using Report = std::function<void(int64_t tokens)>;  // receives the number of tokens that were evaluated

int64_t count_tokens(std::span<const CalibrationText> texts) {
  int64_t count = 0;
  for (const CalibrationText& text : texts) count += std::ssize(text.ids) + text.added_tokens;
  return count;
}

// Evaluates each text alone, in windows if it is longer than the session's cache.
Error run_texts(Session& session, std::span<const CalibrationText> texts, const Report& done) {
  for (const CalibrationText& text : texts) {
    for (std::span<const int32_t> rest = text.ids; !rest.empty();) {
      const auto window = rest.first(std::min<size_t>(rest.size(), session.sequence.cache.capacity));
      rewind(session.sequence, 0);
      if (Error e = evaluate(session, window, false, nullptr)) return e;
      done(std::ssize(window));
      rest = rest.subspan(window.size());
    }
  }
  return {};
}

// Lets the model add tokens to the texts, several at once. Each text has a seed of its own.
Error add_tokens(const Model& model, Team& team, std::span<CalibrationText> texts, const Report& done) {
  SchedulerOptions options = {.kv = KvType::f32, .sequences = 0, .pass_rows = kChunk, .snapshot_bytes = 0};
  for (const CalibrationText& text : texts) {
    options.sequences += text.added_tokens > 0;
    options.context = std::max(options.context, std::ssize(text.ids) + text.added_tokens);
  }
  options.sequences = std::min(options.sequences, kMaxTextsAtOnce);
  options.context = std::min(options.context, context_length(model.config));
  if (options.sequences == 0) return {};
  Scheduler scheduler;
  if (Error e = open_scheduler(model, team, options, &scheduler)) return e;
  Error failure;
  for (size_t i = 0; i < texts.size(); ++i) {
    CalibrationText& text = texts[i];
    if (text.added_tokens == 0 || std::ssize(text.ids) >= options.context) continue;
    TextRequest request = {.prompt = text.ids};
    request.options = {.max_tokens = text.added_tokens, .ignore_eos = true, .hash_logits = false};
    request.options.sampler.temperature = 1;
    request.options.sampler.seed = i;
    request.on_token = [&](int32_t, const GenerateResult&) {
      done(1);
      return true;
    };
    request.on_end = [&](const Error& e, const GenerateResult& result) {
      if (e) failure = e;
      text.ids.insert(text.ids.end(), result.ids.begin(), result.ids.end());
    };
    int64_t id = 0;
    if (Error e = submit(scheduler, std::move(request), &id)) return e;
  }
  while (!failure && step(scheduler)) {
  }
  return failure;
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

// True for matrices that are quantised here: codes of files are kept.
bool takes_feedback(const PackJob& job, Quant quant) {
  if (has_4_bits(quant)) return traits_of(job.format).bits == 4 && !job.reader.read_w4;
  return job.format == Format::w8 && job.source.dtype != DType::i8;
}

// Zeroed sums for the inputs of matrices that take feedback.
Moments moments_for(const Model& model, int64_t first, int64_t count, const JobOf& jobs) {
  Moments moments;
  moments.first_layer = first;
  moments.layers.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    for (const SharedInput& input : inputs_of(model.layers[first + i])) {
      const auto takes = [&](const Matrix* matrix) { return takes_feedback(*jobs.at(matrix), model.quant); };
      if (std::ranges::none_of(input.matrices, takes)) continue;
      Moments::Sum& sum = moments.layers[i][static_cast<size_t>(input.stage)];
      sum.k = input.matrices[0]->k;
      sum.values.resize(moments_elements(sum.k));
      moments.rows.resize(std::max(moments.rows.size(), static_cast<size_t>(kChunk * padded_n(sum.k))));
    }
  }
  return moments;
}

// Computes the feedback of each sum and frees the moments. One worker's factorisation has a fixed order of sums.
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
void set_feedback(Quant quant, std::span<const Layer> layers, std::span<const std::array<Feedback, kStages>> feedback,
                  const JobOf& jobs) {
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const SharedInput& input : inputs_of(layers[i])) {
      for (const Matrix* matrix : input.matrices) {
        PackJob* job = jobs.at(matrix);
        if (takes_feedback(*job, quant)) job->feedback = &feedback[i][static_cast<size_t>(input.stage)];
      }
    }
  }
}

// Number of jobs up to the end of these layers. Jobs are in the order of layers.
int64_t jobs_end(std::span<const PackJob> jobs, std::span<const Layer> layers, const JobOf& by_matrix) {
  const PackJob* last = jobs.data();
  for (const Layer& layer : layers) {
    for (const SharedInput& input : inputs_of(layer)) {
      for (const Matrix* matrix : input.matrices) last = std::max<const PackJob*>(last, by_matrix.at(matrix));
    }
  }
  return last - jobs.data() + 1;
}

}  // namespace

std::string calibration_name(std::span<const CalibrationText> texts) {
  if (texts.empty()) return {};
  uint64_t hash = kHashSeed;
  for (const CalibrationText& text : texts) {
    const int64_t sizes[] = {std::ssize(text.ids), text.added_tokens};
    hash = hash_words(hash_words(hash, std::as_bytes(std::span(sizes))), std::as_bytes(std::span(text.ids)));
  }
  return std::to_string(texts.size()) + " texts " + hash_text(hash);
}

std::vector<CalibrationText> calibration_windows(std::span<const int32_t> prefix, std::span<const int32_t> text) {
  std::vector<CalibrationText> windows;
  text = text.first(std::min<size_t>(text.size(), kMaxCalibrationTokens));
  while (!text.empty()) {
    std::vector<int32_t>& ids = windows.emplace_back().ids;
    ids.assign(prefix.begin(), prefix.end());
    const auto window = text.first(std::min(text.size(), kCalibrationWindow - prefix.size()));
    ids.insert(ids.end(), window.begin(), window.end());
    text = text.subspan(window.size());
  }
  return windows;
}

Error check_calibration(const LoadOptions& options, const ModelConfig& config) {
  if (!options.calibration.empty() && options.quant == Quant::none) {
    return error("mode none has no weights to calibrate", "--calibrate", "--quant w4a8");
  }
  for (const CalibrationText& text : options.calibration) {
    if (Error e = check_ids(config, text.ids)) return e;
  }
  return {};
}

int64_t calibration_bytes(const Model& model) {
  return (count_parameters(model.config).all + model.embedding.elements()) * static_cast<int64_t>(sizeof(bf16));
}

bool calibrates(const Model& model, std::span<const PackJob> jobs) {
  std::set<const Matrix*> feedback;
  for (const PackJob& job : jobs) {
    if (takes_feedback(job, model.quant)) feedback.insert(job.out);
  }
  return std::ranges::any_of(model.layers, [&](const Layer& layer) {
    return std::ranges::any_of(layer.matrix, [&](const Linear& linear) { return feedback.contains(&linear.weight); });
  });
}

Error pack_calibrated(const LoadOptions& options, std::unique_ptr<Model> exact, std::span<PackJob> jobs, Model* model) {
  Team alone({});
  Team& team = options.team ? *options.team : alone;
  const int64_t capacity = std::min(kCalibrationWindow, context_length(exact->config));
  const SchedulerOptions windows = {.kv = KvType::f32, .context = capacity, .pass_rows = kChunk};
  std::unique_ptr<Session> session;
  if (Error e = open_session(*exact, team, windows, &session)) return e;
  JobOf by_matrix;
  for (PackJob& job : jobs) by_matrix[job.out] = &job;

  std::vector<CalibrationText> texts = options.calibration;
  const int64_t layers = std::ssize(model->layers), at_once = layers_at_once(*model);
  const int64_t runs = (layers + at_once - 1) / at_once;
  int64_t done = 0;
  const auto report = [&](int64_t tokens) {
    done += tokens;
    if (options.progress) options.progress(done, (runs + 1) * count_tokens(options.calibration));
  };
  if (Error e = add_tokens(*exact, team, texts, report)) return e;
  Trace trace(layers);
  session->trace = &trace;
  int64_t packed_jobs = 0;
  for (int64_t first = 0; first < layers; first += at_once) {
    const int64_t count = std::min(at_once, layers - first);
    const bool is_last_run = first + count == layers;
    const auto run_layers = std::span<const Layer>(model->layers).subspan(first, count);
    Moments moments = moments_for(*model, first, count, by_matrix);
    moments.rotate = options.rotate;
    trace.moments = &moments;
    if (Error e = run_texts(*session, texts, report)) return e;
    if (is_last_run) {  // frees memory for packing
      session.reset();
      exact.reset();
    }
    const auto feedback = feedback_of(team, &moments);
    set_feedback(model->quant, run_layers, feedback, by_matrix);

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
