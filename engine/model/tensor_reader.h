// What a model takes of its checkpoint by name: tensors, and copies of its small vectors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <span>
#include <string>

#include "engine/model/model.h"

namespace pinion {

struct TensorReader {
  Model* model;
  std::set<std::string> bound = {};  // tensors by name

  Error bind(const std::string& name, std::initializer_list<int64_t> shape, TensorView* out) {
    bound.insert(name);
    return model->checkpoint.bind(name, shape, out);
  }
  std::string where(const std::string& name) const { return model->checkpoint.where(name); }

  // The model's own copy of a tensor's numbers, each times `scale`.
  Error read_bias(const TensorView& tensor, float scale, std::span<float>* out);

  // The file's numbers, one for each row, in the matrix's order.
  std::span<float> in_order(const RowOrder& order, std::span<float> stored);

  Error read_layer_vector(const VectorTensor& spec, Layer* layer);
  Error read_norm(const std::string& module, int64_t n, Norm* out);

 private:
  std::span<float> new_vector(size_t n);
  Error read(const TensorView& tensor, std::span<float>* out);
  Error read_vector(const std::string& name, std::initializer_list<int64_t> shape, float offset, std::span<float>* out);
  Error read_convolution(const VectorTensor& spec, std::span<float>* out);
  Error read_decay_rate(const VectorTensor& spec, std::span<float>* out);
  Error read_xielu_alpha(const VectorTensor& spec, std::span<float>* out);
  Error read_number(const VectorTensor& spec, std::span<float>* out);
  Error read_head_rows(const VectorTensor& spec, std::span<float>* out);
  Error read_small_matrix(const VectorTensor& spec, std::span<float>* out);
  Error read_altup_scale(const VectorTensor& spec, std::span<float>* out);
  Error read_role(const VectorTensor& spec, std::span<float>* out);
};

}  // namespace pinion
