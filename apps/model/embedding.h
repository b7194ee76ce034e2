// Models that make vectors of texts, or score pairs of them: the tokens that such a model reads.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/runtime.h"
#include "engine/session/embedding.h"
#include "tokenizer/templates/chat_template.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

struct EmbeddingModel {
  EmbeddingConfig config;
  std::shared_ptr<const Tokenizer> tokenizer;
  // With the roles query and document; null: a pair's texts follow each other.
  std::shared_ptr<const ChatTemplate> chat_template;
  std::string template_name = {};  // see Conversation
  int64_t ending_tokens = 0;       // that the tokenizer adds behind each text

  bool makes_vectors() const { return config.pooling != Pooling::none && !config.is_score; }
  int64_t dimensions(const ModelConfig& of) const {
    return config.dense.empty() ? of.hidden_size : config.dense.back().outputs;
  }
  double relevance(const std::vector<float>& scores) const;  // of a document: 0 to 1, unless the folder says otherwise
};

struct EmbeddingTokens {
  std::vector<int32_t> ids;
  int64_t prompt_tokens = 0;  // of the prompt at the beginning
  bool is_truncated = false;
};

// folder: of `model`. pooling: a name, or empty; see read_embedding_config().
Error open_embedding_model(const std::string& folder, const Model& model, const std::string& pooling,
                           std::shared_ptr<const Tokenizer> tokenizer, EmbeddingModel* out);

// The prompt of this name; empty: the folder's default. An unknown name is an error.
Error find_prompt(const EmbeddingConfig& config, const std::string& name, std::string* out);

// A text behind a prompt. Cut at the end to config.max_tokens; the tokens that end each text stay.
Error encode_text(const EmbeddingModel& model, const std::string& prompt, const std::string& text,
                  EmbeddingTokens* out);

// A query and a document, for a model that scores them. instruction: the template's system message; may be empty.
// Cut to config.max_tokens: the document behind a template, else the longer of both.
Error encode_pair(const EmbeddingModel& model, const std::string& instruction, const std::string& query,
                  const std::string& document, EmbeddingTokens* out);

// Encodes texts behind a prompt; with a query, which is not null, documents as pairs with it. Errors name the text.
Error encode_texts(const EmbeddingModel& model, const std::string& prompt, const std::string* query,
                   std::span<const std::string> texts, std::vector<EmbeddingTokens>* out);

// Evaluates texts, `parallel` at once (0: 32). Calls on_text for each in the order in which they end; its first error,
// or the first text's that fails, ends all.
Error pool_texts(const EmbeddingModel& model, const Runtime& runtime, std::span<const EmbeddingTokens> texts,
                 int64_t parallel, const std::function<Error(int64_t index, const PooledText& text)>& on_text);

}  // namespace pinion
