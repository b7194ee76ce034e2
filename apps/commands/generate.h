// pinion generate: the options, and the text output shared by one prompt and many.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/common.h"
#include "apps/cli/grammar_rules.h"
#include "engine/session/session.h"
#include "tokenizer/answers/answer_text.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

constexpr int64_t kUnlimitedTokens = 8192;  // --max-tokens -1

struct GenerateFlags {
  RunOptions run;
  SamplingFlags sampling;
  std::string speculate;  // empty: ngram with a grammar, otherwise off
  GrammarFlags grammar;
  std::optional<std::string> prompt, prompt_file, prompt_ids, prompts;
  std::string prompt_cache;  // DIR[,SIZE]; empty: none
  int64_t parallel = 0;      // 0: the default
  int64_t max_tokens = 256;
  std::vector<std::string> stops;
  std::optional<double> logprobs;
  bool ignore_eos = false;
  bool json = false;
  bool quiet = false;
};

// Decodes tokens to whole characters, up to the beginning of a stop text. Without a tokenizer the text is the ids,
// separated by commas.
class TextOutput {
 public:
  // at_start: see IncrementalDecoder.
  TextOutput(bool shown, const std::vector<std::string>& stops, std::shared_ptr<const Tokenizer> tokenizer,
             bool at_start)
      : shown_(shown), stop_texts_(stops) {
    if (tokenizer) decoder_.emplace(std::move(tokenizer), true, at_start);
  }

  void put_prompt(std::span<const int32_t> ids) {
    for (const int32_t id : ids) show(decoder_->put(id));
  }
  // Returns false after a stop text.
  bool put(int32_t id) {
    add(decoder_ ? stop_texts_.put(decoder_->put(id)) : (text_.empty() ? "" : ",") + std::to_string(id));
    return !stop_texts_.found();
  }
  void finish() {
    if (decoder_) add(stop_texts_.finish(decoder_->finish()));
    show("\n");
  }
  const std::string& text() const { return text_; }

 private:
  void add(const std::string& text) {
    text_ += text;
    show(text);
  }
  void show(std::string_view text) const {
    if (shown_) print(text);
  }

  bool shown_;
  std::optional<IncrementalDecoder> decoder_;
  StopTexts stop_texts_;
  std::string text_;
};

// True if the text starts without the tokenizer's leading space: constrained text is independent of its prompt, other
// text continues it.
inline bool is_at_start(const Tokenizer* tokenizer, std::span<const int32_t> prompt, const MakeRules& rules) {
  return tokenizer && !rules && !has_text(*tokenizer, prompt);
}

// ", seed 7" for the line of figures; empty in greedy decoding.
inline std::string seed_text(const SamplerOptions& sampler) {
  return sampler.temperature > 0 ? ", seed " + std::to_string(sampler.seed) : "";
}

// --prompts: decodes several requests at once and prints a line of JSON for each.
int generate_many(const GenerateFlags& flags, const SamplerOptions& sampler, const MakeRules& rules,
                  const std::shared_ptr<const Tokenizer>& tokenizer);

}  // namespace pinion
