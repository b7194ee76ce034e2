// A model in memory: configuration, packed matrices, norm weights. Read-only once loaded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/boards/exchange.h"
#include "engine/model/layer.h"
#include "engine/model/load_options.h"
#include "kernels/base/error.h"
#include "kernels/layout.h"
#include "loader/checkpoint/checkpoint.h"
#include "loader/config/model_config.h"
#include "loader/files/arena.h"
#include "loader/pack/pack_cache.h"

namespace pinion {

// Quantised weights of the file that could not be kept and were quantised again: a loss to report.
struct Conversion {
  std::string from;                 // how the file holds them
  std::string requantised_because;  // of 4-bit codes that became other 4-bit codes: why they did not stay
  Format to;
  std::string module;   // the first
  int64_t modules = 0;  // in all
};

// What stands before the one layer of an MTP layer's model, which reads the next token and the hidden state before it:
// x = fc [RMSNorm(embedding) | RMSNorm(hidden state)].
struct MtpInput {
  Linear fc;  // [hidden, 2 hidden]
  Norm embedding_norm, hidden_norm;
};

// What stands before the layers where each has embeddings of its own (LayerInputConfig).
struct LayerInputs {
  TensorView embedding;  // [vocab * layers, size], rows are read from the mapped file
  Linear projection;     // [layers * size, hidden] of the token's embedding
  Norm norm;             // [size]
};

// Of several streams, without the first: what they begin as, and what becomes of them after the last layer.
struct AltupEnds {
  std::vector<Linear> in, out;  // [hidden, hidden]
};

struct Model {
  ModelConfig config;
  Quant quant = Quant::w8a8;
  std::string calibration;  // a name of the text that weights were quantised for; empty: none
  TensorView embedding;     // [vocab, hidden], rows are read from the mapped file (or from the arena: synthetic models)
  std::vector<Layer> layers;
  Norm final_norm;
  Linear head;  // [vocab, hidden]
  LayerInputs layer_inputs;
  AltupEnds altup;
  MtpInput mtp;                  // of an MTP layer's model, whose embedding and head are another's
  Exchange* exchange = nullptr;  // with the boards that have the other rows of the matrices; null: all are here
  std::vector<int32_t> eos_ids;  // of config.json and generation_config.json, sorted

  int64_t weight_bytes = 0;  // packed matrices, as far as they are here
  int64_t expert_bytes = 0;  // of these, experts'
  double load_seconds = 0;
  std::vector<Conversion> conversions;

  Checkpoint checkpoint;  // owns the mapped files
  Arena arena;            // owns the packed matrices
  MappedFile cached;      // owns them instead where the cache had them
  PackCache cache;        // where the cache has or wants them; the path is empty where it is off
  std::vector<std::unique_ptr<float[]>> vectors;  // norm weights and biases

  Shares shares() const { return exchange ? exchange->shares() : Shares{}; }
  bool is_on_first_board() const { return !exchange || exchange->is_first(); }
  bool reads_hidden() const { return mtp.hidden_norm.weight != nullptr; }
  bool from_cache() const { return cached.pages != nullptr; }
  // All packed matrices: the same bytes on every machine.
  std::span<const std::byte> packed() const {
    return from_cache() ? packed_contents(cache, cached) : std::span<const std::byte>(arena.data, arena.bytes);
  }
  // Bytes of packed weights that a pass of `tokens` reads. With experts and several tokens an upper bound: every token
  // is assumed to choose other ones.
  int64_t bytes_per_pass(int64_t tokens) const {
    return weight_bytes - expert_bytes + config.experts.part_read(expert_bytes, tokens);
  }
};

// Where a tensor of the list lies (engine/model/layer_tensors.h).
inline Linear& matrix_of(Model& model, const MatrixTensor& tensor) {
  if (tensor.role == MatrixRole::head) return model.head;
  if (tensor.role == MatrixRole::mtp_fc) return model.mtp.fc;
  if (tensor.role == MatrixRole::layer_input) return model.layer_inputs.projection;
  if (tensor.role == MatrixRole::altup_in) return model.altup.in[static_cast<size_t>(tensor.layer)];
  if (tensor.role == MatrixRole::altup_out) return model.altup.out[static_cast<size_t>(tensor.layer)];
  return matrix_of(model.layers[static_cast<size_t>(tensor.layer)], tensor.role, tensor.expert);
}

// Says which rows of a tensor's matrix are here, and returns them.
inline RowRange divide(Model& model, const MatrixTensor& tensor) {
  const Shares shares = model.shares();
  const RowRange own = own_rows(model.config, tensor, shares);
  Linear& linear = matrix_of(model, tensor);
  linear.rows = division_of(model.config, tensor, shares);
  linear.first = own.first;
  return own;
}

// The most rows that a matrix of this role has in any layer; 0 where none has it.
inline int64_t most_rows(const Model& model, MatrixRole role) {
  int64_t n = 0;
  for (const Layer& layer : model.layers) n = std::max(n, matrix_of(layer, role).rows.count);
  return n;
}

}  // namespace pinion
