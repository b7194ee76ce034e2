// pinion generate: the options, and a text as it comes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/cli/common.h"
#include "apps/cli/grammar_rules.h"
#include "engine/session/generate.h"
#include "tokenizer/answers/stop_texts.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

struct GenerateFlags {
  RunOptions run;
  SamplingFlags sampling;
  std::string speculate;  // empty: not said
  GrammarFlags grammar;
  std::optional<std::string> prompt, prompt_file, prompt_ids, prompts;
  int64_t parallel = 0;  // 0: not said
  int64_t max_tokens = 256;
  std::vector<std::string> stops;
  std::optional<double> logprobs;
  bool ignore_eos = false;
  bool json = false;
  bool quiet = false;
};

// Text as it becomes whole characters, up to where a stop text begins; without a tokenizer the ids, separated by
// commas.
class TextStream {
 public:
  // at_start: see StreamDecoder.
  TextStream(bool shown, const std::vector<std::string>& stops, std::shared_ptr<const Tokenizer> tokenizer,
             bool at_start)
      : shown_(shown), stop_texts_(stops) {
    if (tokenizer) decoder_.emplace(std::move(tokenizer), true, at_start);
  }

  void put_prompt(std::span<const int32_t> ids) {
    for (const int32_t id : ids) show(decoder_->put(id));
  }
  // Whether the text goes on.
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
  std::optional<StreamDecoder> decoder_;
  StopTexts stop_texts_;
  std::string text_;
};

// A text in a form is one as it is; others go on with their prompt's.
inline bool is_at_start(const Tokenizer* tokenizer, std::span<const int32_t> prompt, const MakeRules& rules) {
  return tokenizer && !rules && !has_text(*tokenizer, prompt);
}

// ", seed 7" for a line of figures, so that the same text can be had again; empty where nothing is drawn.
inline std::string seed_text(const SamplerOptions& sampler) {
  return sampler.temperature > 0 ? ", seed " + std::to_string(sampler.seed) : "";
}

// --prompts: many texts at once, a line of JSON for each.
int generate_many(const GenerateFlags& flags, const SamplerOptions& sampler, const MakeRules& rules,
                  const std::shared_ptr<const Tokenizer>& tokenizer);

}  // namespace pinion
