// Vectors and scores of texts, made from the hidden states after the final norm as the files of sentence-transformers
// 6.2 describe it (modules.json and the folders that it names), or by the score head of a classifier of transformers.
#pragma once

#include "engine/model/model.h"

namespace pinion {

// Makes a vector of a text's hidden states: the first or the last row, the largest elements, the mean, or the mean with
// the weights 1, 2, 3 ...
enum class Pooling : uint8_t { none, cls, last, max, mean, weighted_mean };

// y = activation(W x + b), in fp32.
struct DenseLayer {
  int64_t inputs = 0, outputs = 0;
  std::vector<float> weight;  // [outputs][inputs]
  std::vector<float> bias;    // [outputs]; empty: none
  bool has_tanh = false;      // the activation; false: none
};

struct EmbeddingConfig {
  Pooling pooling = Pooling::none;             // none: the folder describes no vectors
  bool pools_prompt = true;                    // false: the tokens of the prompt are attended to, but not pooled
  std::vector<DenseLayer> dense;               // in this order
  bool normalizes = false;                     // the vector has length 1
  bool is_score = false;                       // the outputs are scores of a pair of texts (a reranker), not a vector
  bool applies_sigmoid = true;                 // the relevance of a document is the sigmoid of its score
  int64_t skipped_end = -1;                    // token that is left out at the end of a pair; -1: none
  int64_t max_tokens = 0;                      // longer texts are truncated at the end; at most the context
  std::map<std::string, std::string> prompts;  // by name: "query", "document"
  std::string default_prompt;                  // its name; empty: none
};

// Reads a folder's description. pooling: replaces that of the folder, and makes the vectors of a model without one;
// none: the folder's. Errors name the file and the field; unknown kinds of modules are errors.
Error read_embedding_config(const std::string& folder, const Model& model, Pooling pooling, EmbeddingConfig* out);

// The name "cls", "lasttoken" ("last"), "max", "mean" or "weightedmean". Anything else is an error.
Error parse_pooling(const std::string& name, Pooling* out);

// The hidden states of one text; `config` must outlive it. The vector has the same bits for any division into passes.
struct PooledText {
  const EmbeddingConfig& config;
  int64_t prompt_tokens = 0;  // that config.pools_prompt excludes
  std::vector<double> sums = {};
  double weight = 0;

  bool needs_all_rows() const { return config.pooling != Pooling::last; }
  // rows: [tokens][hidden] from token `first` on. first = 0 resets the sums.
  void add(int64_t first, std::span<const float> rows, int64_t hidden_size);
  // The vector, its first `dimensions` elements before it is normalised (0: all); or the scores. An error: NaN or
  // infinity, or no token that counts.
  Error finish(int64_t dimensions, std::vector<float>* out) const;
};

}  // namespace pinion
