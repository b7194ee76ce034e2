// Texts that keep to a grammar: which tokens may come next. XGrammar's pushdown automata over the bytes of tokens (Dong
// et al. 2024, arXiv:2411.15100); this is the only place that meets the library, and no exception leaves it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "tokenizer/tokens/tokenizer.h"

namespace pinion {

struct GrammarSource {
  enum class Kind : uint8_t {
    json_schema,  // json-schema.org; what is not supported is an error
    regex,        // the whole text matches it
    ebnf,         // as llama.cpp writes grammars (GBNF); the text is what `root` stands for
  };
  Kind kind = Kind::json_schema;
  std::string text = {};

  bool operator==(const GrammarSource&) const = default;
};

struct Grammar;  // for one vocabulary; never changes

// Grammars for one tokenizer's vocabulary. Any thread may compile one.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(std::shared_ptr<const Tokenizer> tokenizer);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Takes up to seconds; a source that came lately is not compiled again. `is_trusted`: nobody means harm. Otherwise it
  // is first tried in a process with limits, on part of the vocabulary. Errors, of which `where` names the source: it
  // cannot be read, is not supported, allows no text, or takes too long.
  Error compile(const GrammarSource& source, const std::string& where, bool is_trusted,
                std::shared_ptr<const Grammar>* out);
  // One that came lately.
  bool find(const GrammarSource& source, bool is_trusted, std::shared_ptr<const Grammar>* out);

 private:
  struct Library;
  struct Kept {
    GrammarSource source;
    bool is_trusted;
    std::shared_ptr<const Grammar> grammar;
    size_t bytes;
  };
  struct Lazy {  // made when it is needed first: that takes a moment
    std::once_flag once;
    std::unique_ptr<const Library> library;
  };
  const Library& library(Lazy& lazy, int share);
  Error try_out(const GrammarSource& source, const std::string& where, std::string* text);
  void keep(Kept kept);

  std::shared_ptr<const Tokenizer> tokenizer_;
  Lazy whole_, trial_;  // the second has a share of the vocabulary
  std::mutex mutex_;
  std::vector<Kept> kept_;  // the one that was asked for last is the last
};

// One text as it is written. A call fails once it has used `most_seconds` of CPU time, or when the grammar is so
// ambiguous that it takes too much memory. Every later call then fails, too.
class GrammarText {
 public:
  static constexpr double kAnyTime = std::numeric_limits<double>::infinity();
  // eos_ids: end the text where the grammar lets it end.
  explicit GrammarText(const Grammar& grammar, std::span<const int32_t> eos_ids, double most_seconds = kAnyTime);
  ~GrammarText();
  GrammarText(const GrammarText&) = delete;
  GrammarText& operator=(const GrammarText&) = delete;

  // Sets bit id % 32 of word id / 32 for each token that may come next, clears the others. Ends of text are among them
  // where the text may end. None is set where nothing can follow a text that is whole. Fails where nothing can follow
  // one that is not.
  Error next(std::span<uint32_t> allowed, double most_seconds = kAnyTime);
  Error add(int32_t id, double most_seconds = kAnyTime);  // one of those
  // What follows for sure, as far as that is known, at most 256 bytes; empty: nothing.
  std::string foreseen(double most_seconds = kAnyTime);

 private:
  struct Matcher;
  std::unique_ptr<Matcher> matcher_;
};

}  // namespace pinion
