// The continuation of one prompt, token by token: the state shared by generate() and the scheduler.
#pragma once

#include <functional>
#include <memory>

#include "engine/session/sampler.h"
#include "kernels/base/workers.h"
#include "loader/config/model_config.h"

namespace pinion {

// Constrains the tokens of a text, for example by a grammar. Logits, their hash and log probabilities do not change.
struct TextRules {
  virtual ~TextRules() = default;

  // Mask of the next token, set by begin() and add(): bit id % 32 of word id / 32. Empty: all tokens are allowed.
  std::vector<uint32_t> allowed;
  bool is_complete = false;  // no token may follow, not even an end-of-sequence id

  // False while another thread prepares the rules: the text's first draw waits for them, its prompt does not.
  virtual bool is_ready() const { return true; }
  // vocab_size: number of logits. eos_ids: allowed at every position at which the text may end.
  virtual Error begin(int64_t vocab_size, std::span<const int32_t> eos_ids) = 0;
  virtual Error add(int32_t id) = 0;  // id: an allowed token
  // Tokens that almost certainly follow, used as drafts; may be empty.
  virtual std::vector<int32_t> jump_forward() { return {}; }
};

// Creates the rules of a new text.
using MakeRules = std::function<std::unique_ptr<TextRules>()>;

inline bool is_allowed(const TextRules& rules, int32_t id) {
  return rules.allowed.empty() || (rules.allowed[id / 32] >> (id % 32) & 1) != 0;
}

inline constexpr const char* kAllowedTokens = "allowed tokens";  // Error::where if the options exclude all tokens

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampler = {};
  bool ignore_eos = false;
  int64_t min_tokens = 0;              // before these the text does not end by an id
  std::vector<int32_t> stop_ids = {};  // end the text as end-of-sequence ids do, also with ignore_eos
  bool hash_logits = true;             // costs one more single-threaded read of the logits
  int64_t tokens_per_hash = 0;         // records the hash after every n-th token; 0: only at the end
  // Log probabilities of tokens, and of so many of the most likely tokens at the same position; nullopt: off.
  std::optional<int32_t> logprobs = {};         // of generated tokens
  std::optional<int32_t> prompt_logprobs = {};  // of prompt tokens; the prompt is then evaluated from its beginning
  MakeRules rules = {};                         // empty: no rules
};

enum class FinishReason : uint8_t {
  stop,     // by an end-of-sequence or stop id (not part of the ids), the rules, the callback, or Session::interrupted
  length,   // max_tokens
  context,  // the context of the model or the cache is full
};

const char* finish_reason_name(FinishReason reason);

struct GenerateResult {
  std::vector<int32_t> ids;
  FinishReason finish_reason = FinishReason::length;
  int64_t reused_tokens = 0;  // prompt tokens that the cache already held
  int64_t loaded_tokens = 0;  // those of them that came from the prompt cache on disk
  int64_t prefilled_tokens = 0;
  double prefill_seconds = 0;  // until the first token's logits
  double decode_seconds = 0;   // after that: passes, sampling, hashing and the callback
  int64_t decode_passes = 0;
  int64_t drafted = 0;                    // evaluated drafts
  int64_t accepted = 0;                   // drafts that became part of the text
  int64_t regions = 0;                    // OpenMP regions: decode passes, and passes of a draft model
  int64_t barriers = 0;                   // barriers in these regions
  uint64_t logits_hash = 0;               // FNV-1a over 32-bit words of all logits that tokens were drawn from
  std::vector<uint64_t> hashes;           // the hash after every tokens_per_hash tokens
  std::vector<Logprobs> prompt_logprobs;  // of the prompt tokens except the first, which has no prediction
  std::vector<Logprobs> logprobs;         // of `ids`
  std::optional<Logprobs> end_logprobs;   // of the end-of-sequence id that ended the text
};

// Number of tokens generated during decode_seconds.
inline int64_t decoded_tokens(const GenerateResult& result) { return result.decode_passes + result.accepted; }

// Receives each generated id; returns false to stop.
using OnToken = std::function<bool(int32_t)>;

// A drawn token that is not yet part of the text.
struct DrawnToken {
  int32_t id;
  std::optional<Logprobs> logprobs;
};

struct Continuation {
  GenerateOptions options;
  std::vector<int32_t> history;  // the prompt and the generated ids
  Sampler sampler;
  GenerateResult result;
  std::unique_ptr<TextRules> rules = {};  // may be null
  Error failure = {};                     // of the rules; ends the text
  // Set by draw_token(), moved to the text by append_drawn(). nullopt after draw_token(): the text has ended.
  std::optional<DrawnToken> drawn = {};
};

// Fails for an empty prompt, one of more than `capacity` tokens, and ids outside the vocabulary.
Error check_prompt(const ModelConfig& config, std::span<const int32_t> prompt, int64_t capacity);
Error check_ids(const ModelConfig& config, std::span<const int32_t> ids);
// Fails for a negative number of log probabilities, ids outside the vocabulary, bad or unsorted logit biases.
Error check_generate_options(const ModelConfig& config, const GenerateOptions& options);

// True if requested log probabilities of the prompt are still missing in the result.
bool lacks_prompt_logprobs(const Continuation& text);

// Appends the next missing log probabilities of the prompt. logits: [rows][vocab]; the first row predicts the first
// prompt token without log probabilities, and rows beyond the prompt are ignored. The workers divide the rows.
void add_prompt_logprobs(Continuation& text, std::span<const float> logits, int64_t vocab, const Workers& workers);

Continuation begin_continuation(std::span<const int32_t> prompt, const GenerateOptions& options);

// Draws the next token from the logits after the whole history. Calls no callback, so several threads may draw tokens
// of different texts. panel_best: see sample(). eos_ids: ascending.
void draw_token(Continuation& text, std::span<const float> logits, std::span<const int32_t> panel_best,
                std::span<const int32_t> eos_ids);

// Number of a row's largest logits that draw_token() needs; 0: all.
int64_t candidates_needed(const Continuation& text);

// Appends the drawn token to the text. Returns false at the end of the text; `failure`, else result.finish_reason, then
// has the reason. capacity: largest history that can be evaluated.
bool append_drawn(Continuation& text, std::span<const int32_t> eos_ids, int64_t capacity, const OnToken& on_token);

}  // namespace pinion
