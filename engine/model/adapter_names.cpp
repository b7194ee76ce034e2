// Adapters that were made for the other kind of file than the model's: GGUF adapters of folders, PEFT's of GGUF files.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/model/layer_tensors.h"
#include "engine/model/model.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

// A module's name in the model's files and, for each of its rows there, the row in the adapter's kind of file.
struct Renaming {
  std::string module;
  std::vector<int64_t> rows;
};

// By module of the adapter's kind of file. Experts are left out, and recurrent layers if their heads have another
// order. Matrices that share a tensor in only one of the two kinds get a number of rows that no adapter has.
std::map<std::string, Renaming> renamings(const ModelConfig& from, const ModelConfig& to) {
  using enum MatrixRole;
  constexpr MatrixRole kRecurrent[] = {state_qkv, state_z, state_b, state_a, state_out};
  std::map<std::pair<MatrixRole, int64_t>, MatrixTensor> own;
  for (const MatrixTensor& matrix : all_matrices(to)) own.insert({{matrix.role, matrix.layer}, matrix});
  std::map<std::string, Renaming> result;
  std::map<std::string, int64_t> next, next_own;  // by module: the first row of the next matrix
  for (const MatrixTensor& matrix : all_matrices(from)) {
    const auto found = own.find({matrix.role, matrix.layer});
    const bool is_tiled = from.recurrence.tiled_heads != to.recurrence.tiled_heads;
    if (found == own.end() || matrix.expert != kNoExpert || found->second.n != matrix.n) continue;
    if (is_tiled && std::ranges::count(kRecurrent, matrix.role) > 0) continue;
    const RowOrder &order = matrix.order, &own_order = found->second.order;
    auto& [module, rows] = result[matrix.module()];
    module = found->second.module();
    const int64_t begin = order.selects_rows() ? 0 : next[matrix.module()];
    const int64_t own_begin = own_order.selects_rows() ? 0 : next_own[module];
    next[matrix.module()] += matrix.n;
    next_own[module] += matrix.n;
    for (int64_t i = 0; i < matrix.n; ++i) {
      const auto at = static_cast<size_t>(own_begin + own_order.file_row(i));
      rows.resize(std::max(rows.size(), at + 1));
      rows[at] = begin + order.file_row(i);
    }
  }
  return result;
}

// Copies the rows of B into another order, if it has all of them.
void reorder_rows(const std::vector<int64_t>& rows, Model* model, TensorView* b) {
  const int64_t count = std::ssize(rows);
  if (b->shape.size() != 2 || b->shape[0] != count || std::ranges::max(rows) >= count || !is_float(b->dtype)) return;
  const int64_t rank = b->shape[1];
  float* copy = model->vectors.emplace_back(std::make_unique<float[]>(b->elements())).get();
  for (int64_t i = 0; i < count; ++i) read_floats(*b, rows[i] * rank, rank, copy + i * rank);
  *b = {b->name, DType::f32, b->shape, reinterpret_cast<const std::byte*>(copy), 4 * b->elements()};
}

}  // namespace

Error rename_adapter(const std::string& folder, const std::string& architecture, int64_t index, Model* model) {
  const bool is_file = model->checkpoint.is_gguf_file;
  Json config;
  ModelConfig from;
  std::string text, row;
  if (Error e = read_model_text(folder, "config.json", kMaxJsonBytes, &text)) return e;
  if (Error e = is_file ? parse_json(text, folder, &config) : Error{}) return e;
  const std::string own_row = is_file ? config.value(kGgufRow, "") : "";
  if (Error e = adapter_row(own_row, model->config.family, architecture, &row)) return e;
  if (is_file && !architecture.empty()) return {};
  if (!is_file) {
    text = replaced(text, "\"quantization_config\"", "\"codes\"");  // names do not depend on it
    text.insert(text.find('{') + 1, "\"" + std::string(kGgufRow) + "\": \"" + row + "\",");
  }
  if (Error e = parse_model_config(text, folder, &from, !is_file)) return e;
  const std::map<std::string, Renaming> all = renamings(from, model->config);
  for (TensorView& tensor : model->checkpoint.tensors) {
    for (const char* part : {".lora_A.", ".lora_B."}) {
      const std::string ending = part + std::to_string(index);
      const auto found = all.find(tensor.name.substr(0, tensor.name.rfind(ending)));
      if (!tensor.name.ends_with(ending) || found == all.end()) continue;
      tensor.name = found->second.module + ending;
      if (part == std::string_view(".lora_B.")) reorder_rows(found->second.rows, model, &tensor);
    }
  }
  std::ranges::sort(model->checkpoint.tensors, {}, &TensorView::name);
  return {};
}

}  // namespace pinion
