// One text as it is drawn, token by token: what generate() and the scheduler have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/session/logprobs.h"
#include "engine/session/sampler.h"
#include "engine/session/text_rules.h"
#include "kernels/base/error.h"
#include "kernels/base/workers.h"
#include "loader/config/model_config.h"

namespace pinion {

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampler = {};
  bool ignore_eos = false;
  bool hash_logits = true;      // reads every logit once more, alone
  int64_t tokens_per_hash = 0;  // the hash is kept after every this many tokens; 0: only the last
  // Log probabilities, each with those of so many of the likeliest tokens.
  std::optional<int32_t> logprobs = {};  // of the generated tokens
  // Of the prompt's, which is evaluated from its beginning then, whatever is held of it.
  std::optional<int32_t> prompt_logprobs = {};
  MakeRules rules = {};  // none: any token may come
};

enum class FinishReason : uint8_t {
  stop,     // an end-of-sequence id (not among the ids), the rules, the callback, or Session::interrupted
  length,   // max_tokens
  context,  // the model's context length or the cache is full
};

const char* finish_reason_name(FinishReason reason);

struct GenerateResult {
  std::vector<int32_t> ids;
  FinishReason finish_reason = FinishReason::length;
  int64_t reused_tokens = 0;  // of the prompt, held by the cache already
  int64_t prefilled_tokens = 0;
  double prefill_seconds = 0;  // until the first token's logits
  double decode_seconds = 0;   // all after that: passes, sampling, hashing and the callback
  int64_t decode_passes = 0;
  int64_t drafted = 0;                    // tokens that were evaluated on trial
  int64_t accepted = 0;                   // those of them that the text went on with
  int64_t regions = 0;                    // parallel regions that the decode passes and a draft model's took
  int64_t barriers = 0;                   // barriers likewise
  uint64_t logits_hash = 0;               // FNV-1a over 32-bit words: all logits that a token was drawn from
  std::vector<uint64_t> hashes;           // the same after every tokens_per_hash tokens
  std::vector<Logprobs> prompt_logprobs;  // of the prompt's tokens but the first, which nothing predicts
  std::vector<Logprobs> logprobs;         // of `ids`
  std::optional<Logprobs> end_logprobs;   // likewise of the end-of-sequence id, where one has ended the text
};

// Tokens that decode_seconds were for.
inline int64_t decoded_tokens(const GenerateResult& result) { return result.decode_passes + result.accepted; }

// Sees each id as it comes; returning false stops.
using OnToken = std::function<bool(int32_t)>;

// A token that was chosen and is not yet part of its text.
struct Choice {
  int32_t id;
  std::optional<Logprobs> logprobs;  // where they are wanted
};

struct Continuation {
  GenerateOptions options;
  std::vector<int32_t> history;  // the prompt and what was drawn
  Sampler sampler;
  GenerateResult result;
  std::unique_ptr<TextRules> rules = {};  // null: none
  Error failure = {};                     // of the rules: the text has ended with it
  std::optional<Choice> choice = {};      // between choose() and take(); none then: the text has ended
};

// An empty prompt, one of more than `capacity` tokens, ids outside the vocabulary.
Error check_prompt(const ModelConfig& config, std::span<const int32_t> prompt, int64_t capacity);
Error check_ids(const ModelConfig& config, std::span<const int32_t> ids);
// Fewer than no log probabilities; biases of ids outside the vocabulary, not ascending, or that are no numbers to add.
Error check_generate_options(const ModelConfig& config, const GenerateOptions& options);

// Whether log probabilities of the prompt are wanted that the result does not have yet.
bool lacks_prompt_logprobs(const Continuation& text);

// Adds those that come from the logits, [rows][vocab], after the prompt's first tokens: the next ones that the result
// lacks, at most to the prompt's end. The workers share the rows.
void add_prompt_logprobs(Continuation& text, std::span<const float> logits, int64_t vocab, const Workers& workers);

Continuation begin_continuation(std::span<const int32_t> prompt, const GenerateOptions& options);

// Chooses the next token from the logits after all of the history, and calls nobody back: other texts may do the same
// meanwhile. panel_best: as for sample(). eos_ids: ascending.
void choose(Continuation& text, std::span<const float> logits, std::span<const int32_t> panel_best,
            std::span<const int32_t> eos_ids);

// How many of a row's likeliest logits that needs; 0: all, and so do log probabilities of the prompt that are lacking.
int64_t candidates_needed(const Continuation& text);

// Adds what was chosen. Returns whether the text goes on; where it does not, its failure or the result's finish_reason
// says why. `capacity`: the most tokens of history that can be evaluated.
bool take(Continuation& text, std::span<const int32_t> eos_ids, int64_t capacity, const OnToken& on_token);

}  // namespace pinion
