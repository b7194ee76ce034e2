// Models of random weights, generated in the packed form.

#include "engine/runtime/load.h"
#include "engine/team/memory.h"
#include "kernels/base/hash.h"

namespace pinion {
namespace {

uint64_t random_bits(uint64_t counter) { return splitmix64_finalise((counter + 1) * kGoldenGamma); }

// Random bits, eight bytes at a time, after `valid` has made valid codes of them.
template <class F>
void random_bytes(std::byte* to, int64_t bytes, uint64_t seed, F valid) {
  for (int64_t i = 0; i < bytes; i += 8) {
    const uint64_t eight = valid(random_bits(seed + static_cast<uint64_t>(i)));
    std::memcpy(to + i, &eight, std::min<int64_t>(8, bytes - i));
  }
}

// Codes that are about uniform in [-127, 127].
void random_codes(std::byte* panel, int64_t bytes, uint64_t seed) {
  random_bytes(panel, bytes, seed, [](uint64_t eight) {
    for (int b = 0; b < 64; b += 8) {
      if ((eight >> b & 0xff) == 0x80) eight += uint64_t{1} << b;  // -128 is no valid code
    }
    return eight;
  });
}

// Magnitudes in [2^-7, 2^-5), small enough for sums without overflow.
void random_bf16(std::byte* row, int64_t bytes, uint64_t seed) {
  random_bytes(row, bytes, seed, [](uint64_t four) { return (four & 0x80ff80ff80ff80ffu) | 0x3c003c003c003c00u; });
}

constexpr float kCodeScale = 2.4e-4f;   // weights up to 0.03, usual for in_features of 1000
constexpr float kLowDeviation = 4.61f;  // of random low halves (Matrix::spread)

// Sets a constant scale for all columns of a w8 panel, and the column sums of its codes.
void fill_scales(const int8_t* codes, int64_t k, float* scale, int32_t* column_sum) {
  std::fill_n(scale, kPanelColumns, kCodeScale);
  std::fill_n(column_sum, kPanelColumns, 0);
  for (int64_t i = 0; i < padded_k(k) * kPanelColumns; ++i) column_sum[i / 4 % kPanelColumns] += codes[i];
}

// Records of w4, w4n, w4z, w8h or mxfp4, in which every nibble is a valid code, or of w2, whose codes are 0 to 2.
template <Format F>
void random_records(std::byte* panel, int64_t bytes, uint64_t seed) {
  const std::vector<f16> scales(kPanelColumns, to_f16(F == Format::w2 ? 16.0f : F == Format::w4n ? 0.25f : 4.0f));
  for (int64_t at = 0; at < bytes; at += record_bytes(F)) {
    random_bytes(panel + at, code_bytes(F), seed + static_cast<uint64_t>(at), [](uint64_t eight) {
      return F == Format::w2 ? eight & ~((eight & 0x5555555555555555u) << 1) : eight;  // 3 becomes 1
    });
    if (!traits_of(F).is_halved) std::memcpy(panel + at + code_bytes(F), scales.data(), kPanelColumns * sizeof(f16));
    if (F == Format::w4z) std::memset(panel + at + record_bytes(F) - kPanelColumns, 8 * kZeroSteps, kPanelColumns);
  }
}

// By Format.
using Fill = void (*)(std::byte* panel, int64_t bytes, uint64_t seed);
constexpr Fill kFills[] = {random_bf16,
                           random_codes,
                           random_records<Format::w4>,
                           random_records<Format::w4z>,
                           random_records<Format::w2>,
                           random_records<Format::mxfp4>,
                           random_records<Format::w4n>,
                           random_records<Format::w8h>};
static_assert(std::size(kFills) == std::size(kFormats));

// Fills a matrix whose memory is assigned.
void fill_matrix(const Workers& workers, const Matrix& m, uint64_t seed) {
  const int64_t bytes = panel_bytes(m.format, m.k);
  auto* scale = const_cast<float*>(m.scale);
  auto* sums = const_cast<int32_t*>(m.column_sum);
  run_pieces(workers, panel_count(m.n), [&](int64_t p) {
    auto* panel = const_cast<std::byte*>(panel_of(m, p));
    kFills[static_cast<size_t>(m.format)](panel, bytes, seed + static_cast<uint64_t>(p * bytes));
    if (m.low) {
      std::fill_n(const_cast<bf16_pair*>(m.spread) + p * kPanelColumns, kPanelColumns,
                  bf16_pair{.second = to_bf16(kLowDeviation), .first = {}});
      const int64_t low = kPanelColumns * low_bytes(m.format, m.k);
      random_bytes(reinterpret_cast<std::byte*>(const_cast<uint8_t*>(m.low)) + p * low, low,
                   ~seed + static_cast<uint64_t>(p * low), [](uint64_t eight) { return eight; });
    }
    if (m.column_sum) {
      fill_scales(reinterpret_cast<const int8_t*>(panel), m.k, scale + p * kPanelColumns, sums + p * kPanelColumns);
    } else if (m.scale) {
      std::fill_n(scale + p * kPanelColumns, kPanelColumns, m.low ? kCodeScale : 0x1p-10f);
    }
  });
}

const float* constant_vector(Model* model, int64_t n, float value) {
  float* values = model->vectors.emplace_back(std::make_unique<float[]>(n)).get();
  std::fill_n(values, n, value);
  return values;
}

// Adds the job that would pack a matrix of floats, without numbers.
void add_job(const MatrixTensor& spec, const LoadOptions& options, const LayerMatrices& int8, Model* model,
             std::vector<PackJob>* jobs) {
  const bool is_head = spec.role == MatrixRole::head;
  const bool is_expert = spec.expert != kNoExpert;
  Format format = spec.is_exact
                      ? Format::bf16
                      : weight_format(options, model->config, spec.module() + ".weight", spec.role, is_expert);
  format = with_int8(int8, spec, format);
  const bool is_given = format == Format::bf16 || (is_head && options.head);
  if (options.synthetic_ternary && !is_given && spec.k % kW2GroupK == 0) format = Format::w2;
  Linear& out = matrix_of(*model, spec);
  const int64_t n = divide(*model, spec).count, rotation = weight_rotation(options, format, spec.k);
  out.weight = {.format = format, .k = spec.k, .rotation = rotation};
  out.alpha = spec.alpha;
  if (spec.has_bias) out.bias = constant_vector(model, spec.n, 0.01f);
  if (n == 0) return;
  if (is_expert) model->expert_bytes += packed_bytes(format, n, spec.k);
  jobs->push_back({.source = {spec.module(), DType::bf16, {n, spec.k}},
                   .format = format,
                   .out = &out.weight,
                   .rotation = rotation});
  if (spec.is_read_with_gate) interleave_last_two(*jobs);
}

// Lists the jobs of all matrices, in the order of packing, and fills all vectors.
std::vector<PackJob> shape_model(const LoadOptions& options, Model* model) {
  const ModelConfig& c = model->config;
  const LayerMatrices int8 = int8_matrices(options.quant, c);
  std::vector<PackJob> jobs;
  model->layers.resize(c.layers);
  for (int64_t i = 0; i < c.layers; ++i) {
    Layer* layer = &model->layers[i];
    init_layer(c, i, layer);
    for (const VectorTensor& spec : layer_vectors(c, i)) {
      Vector& vector = (*layer)[spec.role];
      (spec.is_bias ? vector.bias : vector.weight) = constant_vector(model, spec.n, spec.synthetic);
    }
    balance_heads(c, i, &model->layers);
    for (const MatrixTensor& spec : layer_matrices(c, i)) add_job(spec, options, int8, model, &jobs);
  }
  model->final_norm.weight = constant_vector(model, c.hidden_size, 1.0f);
  if (c.norm_bias) model->final_norm.bias = constant_vector(model, c.hidden_size, 0.1f);
  if (c.embedding_norm || !c.name("embedding_norm").empty()) model->embedding_norm = model->final_norm;
  model->head_norm = model->final_norm;
  if (c.layer_input.size > 0) model->layer_inputs.norm.weight = constant_vector(model, c.layer_input.size, 1.0f);
  model->altup = {std::vector<Linear>(altup_projections(c)), std::vector<Linear>(altup_projections(c))};
  for (const MatrixTensor& spec : model_matrices(c)) add_job(spec, options, int8, model, &jobs);
  add_job(head_matrix(c), options, int8, model, &jobs);
  model->weight_bytes = packed_bytes(jobs);
  return jobs;
}

}  // namespace

Error synthetic_model(const std::string& config_path, const LoadOptions& options, std::unique_ptr<Model>* out) {
  std::string text;
  if (!options.lora.empty()) return error("random weights take no adapters", "--lora", {}, options.lora[0]);
  if (Error e = read_text_file(config_path, kMaxJsonBytes, &text)) return e;
  auto model = std::make_unique<Model>();
  if (Error e = parse_model_config(text, config_path, &model->config)) return e;
  if (Error e = check_head_format(options, model->config)) return e;
  const ModelConfig& c = model->config;
  model->quant = options.quant;
  model->exchange = options.exchange;

  const std::vector<PackJob> jobs = shape_model(options, model.get());
  const int64_t embedding_bytes = (c.vocab_size + c.extra_rows + c.position_rows) * c.hidden_size * 2;
  const int64_t layer_rows = c.layer_input.vocab_size * c.layers, layer_bytes = layer_rows * c.layer_input.size * 2;
  const int64_t bytes = model->weight_bytes + embedding_bytes + layer_bytes;
  if (Error e = check_memory(bytes, free_memory(), "too little memory for the weights", config_path)) return e;
  if (Error e = allocate_arena(bytes, &model->arena)) return e;
  if (Error e = place_all(jobs, model->arena.data)) return e;
  const Workers workers = workers_of(options.team);
  int64_t offset = 0;
  for (const PackJob& job : jobs) {
    fill_matrix(workers, *job.out, static_cast<uint64_t>(offset));
    offset += packed_bytes({&job, 1});
    if (options.progress) options.progress(offset, model->weight_bytes);
  }
  const auto random_rows = [&](const char* name, int64_t rows, int64_t width) {
    std::byte* data = model->arena.data + offset;
    random_bf16(data, rows * width * 2, static_cast<uint64_t>(offset));
    offset += rows * width * 2;
    return TensorView{name, DType::bf16, {rows, width}, data, rows * width * 2};
  };
  model->embedding = random_rows("embedding", c.vocab_size + c.extra_rows, c.hidden_size);
  model->positions = random_rows("positions", c.position_rows, c.hidden_size);
  model->layer_inputs.embedding = random_rows("layer embedding", layer_rows, c.layer_input.size);
  if (options.team) Team::unpin_caller();
  *out = std::move(model);
  return {};
}

}  // namespace pinion
