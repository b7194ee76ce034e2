// What tokens a text may go on with: a grammar's, say. choose() asks them before each token. They change which token is
// drawn, not what it is drawn from: logits, their hash and log probabilities are the model's own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/error.h"

namespace pinion {

// Of one text.
struct TextRules {
  virtual ~TextRules() = default;

  // The next token's: bit id % 32 of word id / 32. Empty: any may come. begin() and add() set these two.
  std::vector<uint32_t> allowed;
  bool is_over = false;  // nothing more may come, not even the end of the text

  // vocab_size: of the logits. eos_ids: end a text, where the rules let it end.
  virtual Error begin(int64_t vocab_size, std::span<const int32_t> eos_ids) = 0;
  virtual Error add(int32_t id) = 0;  // it has come, and it was allowed
  // Tokens that come next for all but sure, to be tried in one pass; empty: none.
  virtual std::vector<int32_t> foreseen() { return {}; }
};

// Makes the rules of one more text.
using MakeRules = std::function<std::unique_ptr<TextRules>()>;

inline bool is_allowed(const TextRules& rules, int32_t id) {
  return rules.allowed.empty() || (rules.allowed[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

}  // namespace pinion
