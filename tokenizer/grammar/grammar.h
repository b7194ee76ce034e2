// Constrained decoding: the tokens that may come next in a text that has to match a grammar, by XGrammar's pushdown
// automata over the bytes of tokens (Dong et al. 2024, arXiv:2411.15100). Only this folder uses the library.
#pragma once

#include <mutex>

#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

struct GrammarSource {
  enum class Kind : uint8_t {
    kJsonSchema,  // json-schema.org; unsupported keywords are errors
    kRegex,       // must match the whole text
    kGbnf,        // GBNF, as in llama.cpp; the whole text matches the rule `root`
    kToolCalls,   // calls of tools, from the opening mark on; see complete_calls() in sources.h
  };
  Kind kind = Kind::kJsonSchema;
  std::string text = {};

  bool operator==(const GrammarSource&) const = default;
};

struct Grammar;  // compiled for one vocabulary, immutable

// Tools whose schema the grammar cannot express, so that their arguments may be any object.
const std::vector<std::string>& loose_tools(const Grammar& grammar);

// Compiles grammars for the vocabulary of one tokenizer. Thread-safe.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(std::shared_ptr<const Tokenizer> tokenizer);
  ~GrammarCompiler();

  // May take seconds; recent grammars come from a cache. An untrusted source is first compiled for a sample of the
  // vocabulary in a child process with limits (the trial). Errors: the source cannot be parsed, is not supported,
  // matches no text, or takes too long. `where` names the source in them.
  Error compile(const GrammarSource& source, const std::string& where, bool is_trusted,
                std::shared_ptr<const Grammar>* out);
  // Looks up the cache only; returns whether the grammar was there.
  bool find(const GrammarSource& source, bool is_trusted, std::shared_ptr<const Grammar>* out);

 private:
  struct VocabularyCompiler;  // XGrammar's compiler for one vocabulary
  struct CachedGrammar {
    GrammarSource source;
    bool is_trusted;
    std::shared_ptr<const Grammar> grammar;
    size_t bytes;
  };
  struct LazyCompiler {  // built at the first use, which takes a moment
    std::once_flag once;
    std::unique_ptr<const VocabularyCompiler> compiler;
  };
  const VocabularyCompiler& compiler_of(LazyCompiler& lazy, int stride);
  Error compile_trial(const GrammarSource& source, const std::string& where, std::string* text);
  void add_to_cache(CachedGrammar entry);

  std::shared_ptr<const Tokenizer> tokenizer_;
  LazyCompiler full_, trial_;  // for the whole vocabulary, and for a sample
  std::mutex mutex_;
  std::vector<CachedGrammar> cache_;  // most recently used last
};

// Matches one text, token by token, to a grammar. A call fails after `max_seconds` of CPU time, or if the grammar is so
// ambiguous that matching takes too much memory; then every later call fails as well.
class GrammarMatcher {
 public:
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  // eos_ids: tokens that end the text where the grammar allows it.
  explicit GrammarMatcher(const Grammar& grammar, std::span<const int32_t> eos_ids, double max_seconds = kNoLimit);
  ~GrammarMatcher();

  // Whole characters, before any token. The marks of tool calls are tokens.
  Error begin_with(const std::string& text, double max_seconds = kNoLimit);
  // Sets bit id % 32 of word id / 32 for each token that may come next, EOS tokens if the text may end, and clears the
  // others. No bit is set if a complete text cannot continue; an incomplete one that no token continues is an error.
  Error fill_mask(std::span<uint32_t> allowed, double max_seconds = kNoLimit);
  Error accept(int32_t id, double max_seconds = kNoLimit);  // appends an allowed token
  // The text that must come next, up to the first point with a choice; may be empty, at most 256 bytes.
  std::string jump_forward(double max_seconds = kNoLimit);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pinion
