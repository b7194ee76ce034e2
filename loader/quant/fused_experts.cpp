#include <cmath>

#include "loader/checkpoint/number_formats.h"
#include "loader/config/model_config.h"
#include "loader/quant/stored_weights.h"

namespace pinion {
namespace {

// Rows of experts as a file of fused experts has them.
struct FusedRows {
  int64_t rows, k;  // of an expert
  bool alternates;  // gate and up

  // Row of all experts' rows in the file.
  int64_t file_row(int64_t row) const {
    const int64_t half = rows / 2, in_expert = row % rows;
    return alternates ? row - in_expert + in_expert % half * 2 + in_expert / half : row;
  }
};

Error bind_mxfp4(const Checkpoint& checkpoint, int64_t experts, const std::string& module, const FusedRows& fused,
                 LinearWeight* out) {
  const int64_t groups = fused.k / kMxGroup;
  if (fused.k % kMxGroup != 0) {
    return error("MXFP4 needs whole groups of inputs", checkpoint.folder + ": " + module,
                 "a multiple of " + std::to_string(kMxGroup), fused.k);
  }
  TensorView codes, scales;
  out->tensors = {module + "_blocks", module + "_scales"};
  const std::initializer_list<int64_t> shape = {experts, fused.rows, groups, kMxGroupBytes};
  if (Error e = checkpoint.bind(out->tensors[0], shape, {DType::u8}, &codes)) return e;
  if (Error e = checkpoint.bind(out->tensors[1], {experts, fused.rows, groups}, {DType::u8}, &scales)) return e;
  out->weight = codes;
  out->weight.name = module;
  out->stored_as = out->reader.stored_as = kMxfp4;
  out->reader.read = [=, all_codes = codes.data, all_scales = scales.data](int64_t first, int64_t count,
                                                                           float* numbers) {
    for (int64_t r = first; r < first + count; ++r, numbers += fused.k) {
      const int64_t group = fused.file_row(r) * groups;
      read_mxfp4(all_codes + group * kMxGroupBytes, all_scales + group, groups, numbers);
    }
  };
  out->reader.read_w4 = [=, all_codes = codes.data, all_scales = scales.data](int64_t first, int64_t count,
                                                                              W4Rows* rows) -> int64_t {
    std::vector<W4Block> blocks(groups);
    std::vector<uint8_t> row(fused.k);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t group = fused.file_row(first + r) * groups;
      for (int64_t g = 0; g < groups; ++g) {
        const int exponent = std::to_integer<int>(all_scales[group + g]);
        if (exponent == 255) return r;  // NaN
        blocks[g] = {std::ldexp(0.5f, exponent - 127), 0.0f};
      }
      for (int64_t i = 0; i < fused.k; ++i) {
        row[i] = std::to_integer<uint8_t>(all_codes[group * kMxGroupBytes + i / 2] >> i % 2 * 4) & 15;
      }
      append_w4_row(blocks, row.data(), rows);
    }
    return -1;
  };
  return {};
}

// Columns of an expert's numbers [k, rows] are rows of its matrix.
Error bind_transposed(const Checkpoint& checkpoint, int64_t experts, const std::string& module, const FusedRows& fused,
                      LinearWeight* out) {
  const std::string name = checkpoint.find(module + ".weight") ? module + ".weight" : module;
  out->tensors = {name};
  const TensorView* found = checkpoint.find(name);
  const bool is_flat = found && found->shape.size() == 2;
  if (Error e = is_flat ? checkpoint.bind(name, {experts * fused.k, fused.rows}, &out->weight)
                        : checkpoint.bind(name, {experts, fused.k, fused.rows}, &out->weight)) {
    return e;
  }
  out->reader = {.stored_as = "columns", .read = {}, .explain_nan = {}, .scattered = true};
  out->reader.read = [=, values = out->weight](int64_t first, int64_t count, float* numbers) {
    const int64_t k = fused.k, step = fused.alternates ? 2 : 1;
    for (int64_t here = 0; count > 0; first += here, count -= here, numbers += here * k) {
      const int64_t expert = first / fused.rows, column = fused.file_row(first) % fused.rows;
      here = std::min(count, (fused.rows - column + step - 1) / step);  // in this expert, or half of it
      const bool is_whole = is_block(values.dtype);
      const int64_t begin = is_whole ? 0 : column, width = is_whole ? fused.rows : (here - 1) * step + 1;
      std::vector<float> line(width);
      for (int64_t i = 0; i < k; ++i) {
        read_floats(values, (expert * k + i) * fused.rows + begin, width, line.data());
        for (int64_t r = 0; r < here; ++r) numbers[r * k + i] = line[column - begin + r * step];
      }
    }
  };
  return {};
}

Error bind_stacked(const Checkpoint& checkpoint, int64_t experts, const std::string& module, const FusedRows& stacked,
                   LinearWeight* out) {
  out->tensors = {checkpoint.find(module) ? module : module + ".weight"};
  if (Error e = checkpoint.bind(out->tensors[0], {experts, stacked.rows, stacked.k}, &out->weight)) return e;
  if (is_block(out->weight.dtype)) out->stored_as = dtype_name(out->weight.dtype);
  return {};
}

}  // namespace

Error bind_shared_experts(const Checkpoint& checkpoint, const ExpertsConfig& experts, const std::string& module,
                          bool is_gate_up, int64_t rows, int64_t k, LinearWeight* out) {
  *out = {};
  const FusedRows fused = {rows, k, is_gate_up && !experts.halves};
  const auto bind = experts.stacked ? bind_stacked : experts.mxfp4 ? bind_mxfp4 : bind_transposed;
  if (Error e = bind(checkpoint, experts.count, module, fused, out)) return e;
  if (out->reader.read) {
    out->reader.explain_nan = [=](int64_t row) {
      return error("NaN or infinity in the weights",
                   module + "[" + std::to_string(row / rows) + "] row " + std::to_string(fused.file_row(row) % rows));
    };
  }
  out->weight.shape = {experts.count * rows, k};
  return {};
}

Error bind_columns(const Checkpoint& checkpoint, const std::string& name, int64_t heads, int64_t rows, int64_t k,
                   LinearWeight* out) {
  *out = {};
  if (Error e = bind_transposed(checkpoint, heads, name, {rows, k, false}, out)) return e;
  if (is_block(out->weight.dtype)) out->stored_as = dtype_name(out->weight.dtype);
  out->weight.shape = {heads * rows, k};
  return {};
}

void find_stacked_experts(const Checkpoint& checkpoint, ModelConfig* config) {
  const std::string &gate_up = config->name("stacked_gate_up"), &down = config->name("stacked_down");
  if (gate_up.empty()) return;
  const auto first = std::ranges::find(config->layer, true, &LayerConfig::has_experts) - config->layer.begin();
  const std::string name = module_name(gate_up, first);
  const TensorView* found = checkpoint.find(checkpoint.find(name) ? name : name + ".weight");
  if (!found) return;
  ExpertsConfig& experts = config->experts;
  experts.fused = experts.halves =
      found->shape == std::vector<int64_t>{experts.count, config->hidden_size, 2 * experts.inner_size} &&
      config->hidden_size != 2 * experts.inner_size;
  experts.stacked = !experts.fused;
  config->names["expert_gate"] = config->names["expert_up"] = gate_up;
  config->names["expert_down"] = down;
}

void split_gate_up(int64_t inner, std::span<float> numbers) {
  const std::vector<float> stored(numbers.begin(), numbers.end());
  for (int64_t i = 0; i < std::ssize(stored); i++) {
    const int64_t column = i % (2 * inner);
    numbers[i - column + column % 2 * inner + column / 2] = stored[i];
  }
}

}  // namespace pinion
