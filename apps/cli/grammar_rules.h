// A grammar as the rules of a text that a model writes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/cli/common.h"
#include "engine/session/text_rules.h"
#include "tokenizer/grammar/grammar.h"

namespace pinion {

// What a reply may have before, or instead of, the text that keeps to the grammar.
struct ReplyOpening {
  int32_t id;         // of the token that begins it
  std::string until;  // what ends it; empty: nothing, all the rest is free
};

struct GrammarOrder {
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string free_until = {};  // what ends a beginning in which anything may come; empty: there is none
  bool may_end_free = false;    // the text may end there: with a call, say
  std::vector<ReplyOpening> openings = {};
  // Of this thread's time that the grammar may take of a text, beside two milliseconds a token; 0: any. One that reads
  // a text in many ways takes the longer for each token the more there are.
  double most_seconds = 0;
};

MakeRules grammar_rules(GrammarOrder order);

// --json-schema and --grammar: files.
struct GrammarFlags {
  std::string json_schema, grammar;

  bool any() const { return !json_schema.empty() || !grammar.empty(); }
};

void add_grammar_options(Command app, GrammarFlags* flags);

// Nothing where neither is given. A null tokenizer is an error where one is.
Error read_grammar(const GrammarFlags& flags, const std::shared_ptr<const Tokenizer>& tokenizer, MakeRules* out);

}  // namespace pinion
