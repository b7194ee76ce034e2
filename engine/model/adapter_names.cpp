// Adapters that were made for the other kind of file than the model's: GGUF adapters of folders, PEFT's of GGUF files.
#include <nlohmann/json.hpp>

#include "engine/model/model.h"
#include "kernels/base/text.h"
#include "loader/checkpoint/number_formats.h"
#include "loader/gguf/gguf_folder.h"

namespace pinion {
namespace {

// The same matrix in the adapter's kind of file and in the model's.
struct Counterparts {
  MatrixTensor from, to;
};

// By module of the adapter's kind of file. Experts are left out, and recurrent layers if their heads have another
// order.
std::map<std::string, Counterparts> counterparts(const ModelConfig& from, const ModelConfig& to) {
  using enum MatrixRole;
  constexpr MatrixRole kRecurrent[] = {state_qkv, state_z, state_b, state_a, state_out};
  std::map<std::pair<MatrixRole, int64_t>, MatrixTensor> own;
  for (const MatrixTensor& matrix : all_matrices(to)) own.insert({{matrix.role, matrix.layer}, matrix});
  std::map<std::string, Counterparts> result;
  for (const MatrixTensor& matrix : all_matrices(from)) {
    const auto found = own.find({matrix.role, matrix.layer});
    const bool is_tiled = from.recurrence.tiled_heads != to.recurrence.tiled_heads;
    if (found == own.end() || matrix.expert != kNoExpert || found->second.n != matrix.n) continue;
    if (is_tiled && std::ranges::count(kRecurrent, matrix.role) > 0) continue;
    result.insert_or_assign(matrix.module(), Counterparts{matrix, found->second});
  }
  return result;
}

// Copies the rows of B into the order of the model's files. Misfits, also matrices that share a tensor in only one kind
// of file, stay as they are: binding finds that their shapes differ.
void reorder_rows(const Counterparts& matrix, Model* model, TensorView* b) {
  const RowOrder &from = matrix.from.order, &to = matrix.to.order;
  if (b->shape.size() != 2 || b->shape[0] != matrix.to.n || !is_float(b->dtype)) return;
  if ((from.is_identity() && to.is_identity()) || from.selects_rows() || to.selects_rows()) return;
  const int64_t rank = b->shape[1];
  float* copy = model->vectors.emplace_back(std::make_unique<float[]>(b->elements())).get();
  for (int64_t i = 0; i < matrix.to.n; ++i) {
    read_floats(*b, from.file_row(i) * rank, rank, copy + to.file_row(i) * rank);
  }
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
  const std::map<std::string, Counterparts> all = counterparts(from, model->config);
  for (TensorView& tensor : model->checkpoint.tensors) {
    for (const char* part : {".lora_A.", ".lora_B."}) {
      const std::string ending = part + std::to_string(index);
      const auto found = all.find(tensor.name.substr(0, tensor.name.rfind(ending)));
      if (!tensor.name.ends_with(ending) || found == all.end()) continue;
      tensor.name = found->second.to.module() + ending;
      if (part == std::string_view(".lora_B.")) reorder_rows(found->second, model, &tensor);
    }
  }
  std::ranges::sort(model->checkpoint.tensors, {}, &TensorView::name);
  return {};
}

}  // namespace pinion
