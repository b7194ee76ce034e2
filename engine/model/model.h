// A model in memory: configuration, packed matrices, norm weights. Read-only once loaded.
#pragma once

#include "engine/boards/exchange.h"
#include "engine/model/load_options.h"
#include "loader/config/layer_tensors.h"
#include "loader/pack/pack_cache.h"

namespace pinion {

struct PackJob;

// --- A layer: its configuration and its packed weights.

// y = alpha W x + bias. `bias` is the file's bias times MatrixTensor::bias_scale, which covers the model's factors of
// the whole sum W x + bias: a multiplier of the output, branch_scale in the last matrix of a branch (unless a norm
// follows, whose output is scaled instead), logit_scale in the head.
struct Linear {
  Matrix weight;                // the rows of this board; n is 0 if it has none
  const float* bias = nullptr;  // [n] or null
  float alpha = 1;
  Division rows = {};  // of the whole matrix; count is 0 if the model has no such matrix
  int64_t first = 0;   // index in the whole matrix of the first row of `weight`
};

// Weights that are fp32 in every mode. Null: the layer has no such module, or the module no bias.
struct Vector {
  const float* weight = nullptr;
  const float* bias = nullptr;
};

// The matrices of an expert or a head: those with the roles from `first` on.
template <MatrixRole first, size_t count>
struct Linears {
  Linear matrix[count];

  const Linear& operator[](MatrixRole role) const { return matrix[static_cast<size_t>(role) - kFirst]; }
  Linear& operator[](MatrixRole role) { return matrix[static_cast<size_t>(role) - kFirst]; }
  static constexpr auto kFirst = static_cast<size_t>(first);
};
using Expert = Linears<MatrixRole::gate, 3>;          // gate, up, down; gate is empty in models without gates
using LatentHead = Linears<MatrixRole::latent_k, 2>;  // latent_k, latent_v; empty if another board has the head

struct Layer : LayerConfig {
  Linear matrix[kMatrixRoles];  // empty if the layer has none with this role
  Vector vector[kVectorRoles];
  std::vector<Expert> experts;                    // empty without experts
  std::vector<LatentHead> latent_heads;           // [heads]; empty without latent attention
  int64_t slot = 0;                               // index of its keys and values in the KV cache
  int64_t state_slot = 0;                         // index of its state in RecurrentState
  const float* v_norm = nullptr;                  // [head_dim], for which files have no tensor
  std::vector<float> key_balance, query_balance;  // [kv_heads * head_dim] or empty, see balance_heads()
  std::optional<float> gate_cut;  // sparse gate: its outputs below mean + gate_cut * deviation of the row become zero

  const Linear& operator[](MatrixRole role) const { return matrix[static_cast<size_t>(role)]; }
  Linear& operator[](MatrixRole role) { return matrix[static_cast<size_t>(role)]; }
  const Vector& operator[](VectorRole role) const { return vector[static_cast<size_t>(role)]; }
  Vector& operator[](VectorRole role) { return vector[static_cast<size_t>(role)]; }
  // The matrices that a stage multiplies; those that the layer lacks have no rows.
  std::span<const Linear> of(Stage stage) const {
    const RoleRange roles = roles_of(stage);
    return std::span(matrix).subspan(roles.first, roles.count);
  }
};

// Weights of norms for which files have no tensor.
const float* ones();

// Sets the fields that follow from the config and the layer's index alone.
void init_layer(const ModelConfig& config, int64_t index, Layer* out);

// Balances keys and queries for a q8 cache. In some models the weights of the k norm, or those of the q norm, make a
// few channels hundreds of times larger than the others. One scale for all codes of a head then wastes bits. Keys times
// s and queries divided by s, per channel, have the same products. s = sqrt(query size / key size), with the sizes
// taken from the norms' weights, minimises the error of the products (Cauchy-Schwarz). The two channels of a rope pair
// share a factor. Does nothing without norms. tools/MEASURED.md has the effect on two trained models. Earlier layers
// must be balanced: a layer that reads another layer's keys copies its factors.
void balance_heads(const ModelConfig& config, int64_t index, std::vector<Layer>* layers);

// --- The model

// ", and 3 more" after the first name of a list; empty for none.
inline std::string and_more(int64_t count) {
  return count > 0 ? ", and " + std::to_string(count) + " more" : std::string();
}

// Weights that the file and then the loader quantised, with a loss to report: one entry per pair of formats.
struct Conversion {
  std::string from;                 // the file's format
  std::string requantised_because;  // the reason if both formats have 4 bits, else empty
  Format to;
  std::string module;   // the first of these modules
  int64_t modules = 0;  // their number
};

// Input of an MTP layer (DeepSeek-V3), of the next token and the hidden state before it: x = fc [norm(e) | norm(h)].
struct MtpInput {
  Linear fc;  // [hidden, 2 hidden]
  Vector embedding_norm, hidden_norm;
};

// Per-layer embeddings (LayerInputConfig).
struct LayerInputs {
  TensorView embedding;  // [vocab * layers, size] in the mapped file
  Linear projection;     // [layers * size, hidden] of the token's embedding
  Vector norm;           // [size]
};

// AltUp's projections of every AltUp input but the first: from the embedding (in), and after the last layer (out).
struct AltupEnds {
  std::vector<Linear> in, out;  // [inputs - 1] of [hidden, hidden]
};

struct Model {
  ModelConfig config;
  Quant quant = Quant::w8a8;
  std::string calibration;  // name of the calibration texts; empty: none
  TensorView embedding;     // [vocab, hidden] in the mapped file (synthetic models: in the arena)
  TensorView positions;     // [position_rows, hidden], in the same way
  std::vector<Layer> layers;
  Vector final_norm, embedding_norm, head_norm;
  Linear head;        // [vocab, hidden]
  Linear head_dense;  // [hidden, hidden], which head_norm follows; most models have none
  LayerInputs layer_inputs;
  AltupEnds altup;
  MtpInput mtp;                  // only if this is an MTP layer; it has the embedding and the head of the main model
  Exchange* exchange = nullptr;  // to the boards with the other rows of the matrices; null: this board has all rows
  std::vector<int32_t> eos_ids;  // tokens that end a text, ascending; add_end_ids() (apps/model) completes them

  int64_t weight_bytes = 0;  // packed matrices on this board
  int64_t expert_bytes = 0;  // of the experts; part of weight_bytes
  double load_seconds = 0;
  std::vector<Conversion> conversions;
  std::vector<Error> notes;  // peculiarities of the checkpoint that the user should know; the model is usable

  Checkpoint checkpoint;                          // owns the mapped files
  Arena arena;                                    // owns the packed matrices, unless `cached` does
  MappedFile cached;                              // the mapped cache file
  PackCache cache;                                // layout of the cache file; empty path: no cache
  std::span<const std::byte> mapped;              // the packed matrices of a packed model; empty: of another one
  std::string layout;                             // layout_text() of the packed matrices
  std::map<std::string, TensorView> unpacked;     // tensors that are read as they are, by name
  std::vector<std::unique_ptr<float[]>> vectors;  // norm weights and biases

  Shares shares() const { return exchange ? exchange->shares() : Shares{}; }
  bool is_on_first_board() const { return !exchange || exchange->is_first(); }
  bool reads_hidden() const { return mtp.hidden_norm.weight != nullptr; }
  bool from_cache() const { return cached.pages != nullptr; }
  // Calls f for the matrices outside of layers; those that the model lacks have no rows.
  template <class F>
  void each_outer_matrix(F f) const {
    for (const Linear* linear : {&head, &head_dense, &mtp.fc, &layer_inputs.projection}) f(*linear);
    for (const auto* ends : {&altup.in, &altup.out}) std::ranges::for_each(*ends, f);
  }
  // All packed matrices: the same bytes on every kind of machine.
  std::span<const std::byte> packed() const {
    if (!mapped.empty()) return mapped;
    return from_cache() ? packed_contents(cache, cached) : std::span<const std::byte>(arena.data, arena.bytes);
  }
  // Bytes of packed weights that a pass of `tokens` tokens reads, at most: each token may choose different experts. The
  // low halves of a head are not counted, since ranked rows read few of them.
  int64_t bytes_per_pass(int64_t tokens) const {
    const int64_t low = padded_n(head.weight.n) * low_bytes(head.weight.format, head.weight.k);
    return weight_bytes - low - expert_bytes + config.experts.max_active(expert_bytes, tokens);
  }
};

// Tensors behind the final norm that engine/session/embedding.h reads: of classifiers of transformers, and of GGUF
// files.
inline constexpr const char* kPoolingTensors[] = {"score.weight", "dense_2.weight", "dense_3.weight",
                                                  "cls.output.weight"};

// Reads the vectors of the model from its checkpoint, and makes the jobs that pack its matrices. model->config and
// model->checkpoint must be set. Errors name a tensor that is missing, no part of the model, misshapen, or has NaN.
Error bind_tensors(const LoadOptions& options, Model* model, std::vector<PackJob>* jobs);

// If the adapter with this index or the model is a GGUF file and the other one is not: gives the adapter's tensors the
// names and the order of rows of the model's files. architecture: of a GGUF adapter, or empty. Tensors that the model
// lacks keep their names, so that binding reports them.
Error rename_adapter(const std::string& folder, const std::string& architecture, int64_t index, Model* model);

// The member of `model` that holds a tensor of the list (loader/config/layer_tensors.h).
template <class M>  // Model or const Model
auto& matrix_of(M& model, const MatrixTensor& tensor) {
  if (tensor.role == MatrixRole::head) return model.head;
  if (tensor.role == MatrixRole::head_dense) return model.head_dense;
  if (tensor.role == MatrixRole::mtp_fc) return model.mtp.fc;
  if (tensor.role == MatrixRole::layer_input) return model.layer_inputs.projection;
  if (tensor.role == MatrixRole::altup_in) return model.altup.in[tensor.layer];
  if (tensor.role == MatrixRole::altup_out) return model.altup.out[tensor.layer];
  auto& layer = model.layers[tensor.layer];
  if (tensor.head != kNoHead) return layer.latent_heads[tensor.head][tensor.role];
  return tensor.expert == kNoExpert ? layer[tensor.role] : layer.experts[tensor.expert][tensor.role];
}

// Sets Linear::rows and first of a matrix, and returns the rows that this board has.
inline RowRange divide(Model& model, const MatrixTensor& tensor) {
  const Shares shares = model.shares();
  const RowRange own = own_rows(model.config, tensor, shares);
  Linear& linear = matrix_of(model, tensor);
  linear.rows = division_of(model.config, tensor, shares);
  linear.first = own.first;
  return own;
}

// The largest number of rows of the matrices with this role in any layer, on all boards together; 0: no such layer.
inline int64_t max_rows(const Model& model, MatrixRole role) {
  int64_t n = 0;
  for (const Layer& layer : model.layers) n = std::max(n, layer[role].rows.count);
  return n;
}

}  // namespace pinion
