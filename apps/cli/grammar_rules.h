// Constrained decoding: a grammar as TextRules, and the options --json-schema and --grammar.
#pragma once

#include "apps/cli/common.h"
#include "tokenizer/grammar/grammar.h"

namespace pinion {

// Unconstrained text that may come before the constrained text, or replace it.
struct ReplyOpening {
  int32_t id;         // token that begins it
  std::string until;  // text that ends it; empty: the rest of the reply is unconstrained
};

struct GrammarRulesOptions {
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string free_until = {};  // text that ends an unconstrained beginning; empty: the grammar applies at once
  bool may_end_free = false;    // the reply may end within that beginning, for example with a tool call
  std::vector<ReplyOpening> openings = {};
  std::string begun = {};  // of the constrained text, in the prompt; the fields above do not apply then
  // CPU time of the calling thread that the grammar may use, in addition to two milliseconds per token; 0: no limit. An
  // ambiguous grammar takes longer per token the more derivations it keeps open.
  double max_seconds = 0;
};

MakeRules grammar_rules(GrammarRulesOptions options);

// File names from --json-schema and --grammar.
struct GrammarFlags {
  std::string json_schema, grammar;

  bool any() const { return !json_schema.empty() || !grammar.empty(); }
};

void add_grammar_options(Command app, GrammarFlags* flags);

// Leaves *out empty if neither option is given. With one of them, a null tokenizer is an error.
Error read_grammar(const GrammarFlags& flags, const std::shared_ptr<const Tokenizer>& tokenizer, MakeRules* out);

}  // namespace pinion
