// Adapters that were made for the other kind of file than the model's: GGUF adapters of folders, PEFT's of GGUF files.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "engine/model/layer_tensors.h"
#include "engine/model/model.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

constexpr int64_t kNoRow = -1;

// By module of the adapter's kind of file, then by module of the model's: the first one's row for each row of the
// second, or kNoRow. Files may share a tensor among matrices that others store one by one.
using Renamings = std::map<std::string, std::map<std::string, std::vector<int64_t>>>;

// The tensor's row for a row of a matrix that begins at `first` of the tensor.
int64_t tensor_row(const MatrixTensor& matrix, int64_t first, int64_t row) {
  return (matrix.order.selects_rows() ? 0 : first) + matrix.order.file_row(row);
}

// Experts and, if their heads have another order, recurrent layers are left out.
Renamings renamings(const ModelConfig& from, const ModelConfig& to) {
  using enum MatrixRole;
  constexpr MatrixRole kRecurrent[] = {state_qkv, state_z, state_b, state_a, state_out};
  std::map<std::tuple<MatrixRole, int64_t>, MatrixTensor> own;
  std::map<std::string, int64_t> rows, next, next_own;  // by module: all rows; the first row of the next matrix
  for (const MatrixTensor& matrix : all_matrices(to)) {
    own.insert({{matrix.role, matrix.layer}, matrix});
    rows[matrix.module()] += matrix.n;
  }
  Renamings result;
  for (const MatrixTensor& matrix : all_matrices(from)) {
    const auto found = own.find({matrix.role, matrix.layer});
    const bool is_tiled = from.recurrence.tiled_heads != to.recurrence.tiled_heads;
    const bool is_left_out =
        matrix.expert != kNoExpert || (is_tiled && std::ranges::count(kRecurrent, matrix.role) > 0);
    if (found == own.end() || is_left_out || found->second.n != matrix.n) continue;
    const std::string module = matrix.module(), own_module = found->second.module();
    std::vector<int64_t>& order = result[module][own_module];
    order.resize(rows[own_module], kNoRow);
    for (int64_t row = 0; row < matrix.n; ++row) {
      order[tensor_row(found->second, next_own[own_module], row)] = tensor_row(matrix, next[module], row);
    }
    next[module] += matrix.n;
    next_own[own_module] += matrix.n;
  }
  return result;
}

// Copies the rows of B into an order of their own. Misfits stay as they are, so that binding reports them.
void reorder_rows(const std::vector<int64_t>& rows, int64_t all_rows, Model* model, TensorView* b) {
  if (b->shape.size() != 2 || b->shape[0] != all_rows || !is_float(b->dtype)) return;
  const int64_t rank = b->shape[1];
  b->shape[0] = std::ssize(rows);
  float* copy = model->vectors.emplace_back(std::make_unique<float[]>(b->elements())).get();
  for (size_t row = 0; row < rows.size(); ++row) {
    if (rows[row] != kNoRow) read_floats(*b, rows[row] * rank, rank, copy + static_cast<int64_t>(row) * rank);
  }
  b->dtype = DType::f32;
  b->data = reinterpret_cast<const std::byte*>(copy);
  b->bytes = b->elements() * static_cast<int64_t>(sizeof *copy);
}

}  // namespace

Error rename_adapter(const std::string& folder, const std::string& architecture, int64_t index, Model* model) {
  Checkpoint& checkpoint = model->checkpoint;
  std::string text, row, own_row;
  if (Error e = read_model_text(folder, "config.json", kMaxJsonBytes, &text)) return e;
  if (checkpoint.is_gguf_file) {
    Json config;
    if (Error e = parse_json(text, folder, &config)) return e;
    own_row = config.value(kGgufRow, "");
  }
  if (Error e = adapter_row(own_row, model->config.family, architecture, &row)) return e;
  if (checkpoint.is_gguf_file && !architecture.empty()) return {};
  if (!checkpoint.is_gguf_file) {
    text = replaced(text, "\"quantization_config\"", "\"codes\"");  // names do not depend on it
    text.insert(text.find('{') + 1, "\"" + std::string(kGgufRow) + "\": \"" + row + "\",");
  }
  ModelConfig from;
  if (Error e = parse_model_config(text, folder, &from, !checkpoint.is_gguf_file)) return e;
  const Renamings all = renamings(from, model->config);
  std::vector<TensorView> renamed;
  std::erase_if(checkpoint.tensors, [&](const TensorView& tensor) {
    for (const char* part : {".lora_A.", ".lora_B."}) {
      const std::string ending = part + std::to_string(index);
      const auto found = all.find(tensor.name.substr(0, tensor.name.rfind(ending)));
      if (!tensor.name.ends_with(ending) || found == all.end()) continue;
      int64_t all_rows = 0;
      for (const auto& [module, rows] : found->second) all_rows += std::ssize(rows) - std::ranges::count(rows, kNoRow);
      for (const auto& [module, rows] : found->second) {
        TensorView& copy = renamed.emplace_back(tensor);
        copy.name = module + ending + "." + found->first;
        if (part == std::string_view(".lora_B.")) reorder_rows(rows, all_rows, model, &copy);
      }
      return true;
    }
    return false;
  });
  std::ranges::move(renamed, std::back_inserter(checkpoint.tensors));
  std::ranges::sort(checkpoint.tensors, {}, &TensorView::name);
  return {};
}

}  // namespace pinion
