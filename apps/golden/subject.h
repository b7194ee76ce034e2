// What is recorded or checked: a model that runs here, or one behind a server.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/golden/file.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

struct Subject {
  std::string name;           // in messages: the folder, the address
  bool has_tokenizer = true;  // without one, prompts are ids and answers have no text
  int64_t context = 0;        // tokens that a text may have; 0: the model's own limit is the only one
  std::function<Error(const std::string& text, bool adds_special, std::vector<int32_t>* ids)> encode = {};
  std::function<std::string(std::span<const int32_t> ids)> decode = {};
  std::function<std::string(int32_t id)> token_text = {};
  // From an empty cache, or with the same bits: an answer does not depend on the prompts before it.
  std::function<Error(const Golden& golden, const GoldenPrompt& prompt, GoldenAnswer* out)> answer = {};
};

// The runtime outlives it, and may be opened later.
Subject model_subject(const Runtime& runtime, const std::string& folder, std::shared_ptr<const Tokenizer> tokenizer);

// Fills in the ids of the prompts, and the answers.
Error record(const Subject& subject, Golden* golden);

// Hash over the packed matrices: the same on every machine. Empty where several boards have them.
std::string weights_hash(const Model& model);

}  // namespace pinion
