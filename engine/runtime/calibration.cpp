#include "engine/runtime/load.h"

#include "engine/forward/probes.h"
#include "engine/session/session.h"
#include "engine/team/memory.h"
#include "kernels/base/hash.h"

namespace pinion {
namespace {

constexpr int64_t kMaxTextsAtOnce = 16;  // of those that the model continues; more take memory and are no faster
constexpr int64_t kChunk = 256;          // tokens of a pass; it determines the order of sums, so it must not change
constexpr int64_t kMinExpertTokens = 4;  // of an expert's down; fewer do not calibrate it (tools/MEASURED.md)

// True for matrices that are quantised here: codes of files are kept.
bool takes_feedback(const PackJob& job, Quant quant) {
  if (has_4_bits(quant)) return traits_of(job.format).bits == 4 && !job.reader.read_w4;
  return job.format == Format::w8 && job.source.dtype != DType::i8;
}

// The job of a layer's matrix that takes feedback.
struct LayerJob {
  PackJob* job;
  InputId input;
};

constexpr int64_t kMaxExpertElements = int64_t{1} << 28;  // of the moments of a layer's experts: 1 GiB

// The input whose moments calibrate a matrix. Experts' gate and up read the same input, so its moments over all tokens
// serve every expert; each down reads one of its own, as do heads of latent attention, which have no moments.
std::optional<InputId> input_of(const Model& model, int64_t index, const MatrixTensor& tensor) {
  if (tensor.head != kNoHead) return std::nullopt;
  if (tensor.expert == kNoExpert) return InputId{index, tensor.stage};
  const bool has_norm = model.layers[index][VectorRole::expert_norm].weight;
  if (tensor.stage != Stage::down) return InputId{index, tensor.stage, has_norm ? kAllExperts : kNoExpert};
  if (model.config.experts.count * moments_elements(tensor.k) > kMaxExpertElements) return std::nullopt;
  return InputId{index, tensor.stage, tensor.expert};
}

std::vector<LayerJob> layer_jobs(const Model& model, std::span<PackJob> jobs) {
  std::map<const Matrix*, PackJob*> by_matrix;
  for (PackJob& job : jobs) {
    if (takes_feedback(job, model.quant)) by_matrix[job.out] = &job;
  }
  std::vector<LayerJob> list;
  for (int64_t layer = 0; layer < std::ssize(model.layers); ++layer) {
    for (const MatrixTensor& tensor : layer_matrices(model.config, layer)) {
      const auto found = by_matrix.find(&matrix_of(model, tensor).weight);
      const std::optional<InputId> input = input_of(model, layer, tensor);
      if (found != by_matrix.end() && input) list.push_back({found->second, *input});
    }
  }
  return list;
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

// Number of layers whose moments fit into half of the memory that packing leaves, or `most`; at least 1.
int64_t layers_at_once(const Model& model, std::span<const LayerJob> jobs, int64_t most) {
  std::map<InputId, int64_t> elements;  // of the moments
  std::vector<int64_t> bytes(model.layers.size());
  for (const auto& [job, input] : jobs) elements[input] = moments_elements(job->out->k);
  for (const auto& [input, count] : elements) bytes[input.layer] += count * static_cast<int64_t>(sizeof(float));
  const int64_t free_bytes = available_memory_bytes() - model.weight_bytes;
  const int64_t fitting = free_bytes / 2 / std::max<int64_t>(1, std::ranges::max(bytes));
  return std::clamp<int64_t>(std::min(fitting, most), 1, std::ssize(bytes));
}

// Zeroed sums for the inputs of these jobs.
Moments moments_for(std::span<const LayerJob> jobs) {
  Moments moments;
  for (const auto& [job, input] : jobs) {
    Moments::Sum& sum = moments.sums[input];
    if (sum.k > 0) continue;
    sum.k = job->out->k;
    sum.values.resize(moments_elements(sum.k));
    const auto floats = static_cast<size_t>(2 * kChunk * (padded_n(sum.k) + kPanelColumns));
    moments.scratch.resize(std::max(moments.scratch.size(), floats));
  }
  return moments;
}

// Computes the feedback of each sum in its place. One worker's factorisation has a fixed order of sums.
// An expert that too few tokens reach has no feedback.
std::map<InputId, Feedback> feedback_of(Team& team, Moments* moments) {
  std::map<InputId, Feedback> feedback;
  std::vector<std::pair<Moments::Sum*, Feedback*>> tasks;
  for (auto& [input, sum] : moments->sums) {
    if (input.expert < 0 || sum.rows >= kMinExpertTokens) tasks.emplace_back(&sum, &feedback[input]);
  }
  team.run([&](Worker& worker) {
    worker.for_each(std::ssize(tasks), [&](int64_t task) {
      const auto [sum, out] = tasks[task];
      *out = make_feedback(std::move(sum->values), sum->k);
    });
    worker.barrier();
  });
  return feedback;
}

}  // namespace

std::string calibration_name(std::span<const CalibrationText> texts, bool has_experts) {
  if (texts.empty()) return {};
  const uint64_t method = has_experts ? 4 : 2;  // another name for weights that older programs calibrated otherwise
  uint64_t hash = kHashSeed + method;
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
  return count_parameters(model.config).all + model.embedding.elements() * static_cast<int64_t>(sizeof(bf16));
}

bool calibrates(const Model& model, std::span<PackJob> jobs) { return !layer_jobs(model, jobs).empty(); }

Error pack_calibrated(const LoadOptions& options, std::unique_ptr<Model> reader, std::span<PackJob> jobs,
                      Model* model) {
  Team alone({});
  Team& team = options.team ? *options.team : alone;
  const int64_t capacity = std::min(kCalibrationWindow, context_length(reader->config));
  const SchedulerOptions windows = {.kv = KvType::f32, .context = capacity, .pass_rows = kChunk, .keeps_inputs = true};
  std::unique_ptr<Session> session;
  if (Error e = open_session(*reader, team, windows, &session)) return e;
  const std::vector<LayerJob> of_layers = layer_jobs(*model, jobs);

  std::vector<CalibrationText> texts = options.calibration;
  const int64_t layers = std::ssize(model->layers),
                at_once = layers_at_once(*model, of_layers, options.calibrated_layers);
  const int64_t runs = (layers + at_once - 1) / at_once;
  int64_t done = 0;
  const auto report = [&](int64_t tokens) {
    done += tokens;
    if (options.progress) options.progress(done, (runs + 1) * count_tokens(options.calibration));
  };
  if (Error e = add_tokens(*reader, team, texts, report)) return e;
  Trace trace(layers);
  session->trace = &trace;
  int64_t packed_jobs = 0;
  for (int64_t first = 0; first < layers; first += at_once) {
    const int64_t count = std::min(at_once, layers - first);
    const bool is_last_run = first + count == layers;
    const auto layer_of = [](const LayerJob& job) { return job.input.layer; };
    const auto begin = std::ranges::lower_bound(of_layers, first, {}, layer_of);
    const std::span run(begin, std::ranges::lower_bound(begin, of_layers.end(), first + count, {}, layer_of));
    Moments moments = moments_for(run);
    moments.rotate = options.rotate;
    trace.moments = &moments;
    if (Error e = run_texts(*session, texts, report)) return e;
    if (is_last_run) {  // frees memory for packing
      session.reset();
      reader.reset();
    }
    const auto feedback = feedback_of(team, &moments);
    for (const auto& [job, input] : run) {
      if (const auto found = feedback.find(input); found != feedback.end()) job->feedback = &found->second;
    }
    int64_t end = packed_jobs, last = run.empty() ? 0 : run.back().job - jobs.data() + 1;
    if (is_last_run) last = std::ssize(jobs);         // the last layer's other jobs are packed later
    while (end < last) end += jobs[end].interleaved;  // whole pairs
    const auto ready = jobs.subspan(packed_jobs, end - packed_jobs);
    std::byte* to = model->arena.data + packed_bytes(jobs.first(packed_jobs));
    if (Error e = pack_all(workers_of(&team), ready, to, {.source_mapped = true})) return e;
    for (PackJob& job : ready) job.feedback = nullptr;
    packed_jobs = end;
  }
  return {};
}

}  // namespace pinion
